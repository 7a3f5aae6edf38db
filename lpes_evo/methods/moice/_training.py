"""`train_routers`: the training of the routers of MoICE, which leaves the model itself unchanged."""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from lpes_evo.accelerators import input_device
from lpes_evo.config import Settings
from lpes_evo.errors import ConfigError, EvaluationError
from lpes_evo.methods import BASE_SETS
from lpes_evo.methods.takeover import MethodHandle

if TYPE_CHECKING:
    import torch

    from lpes_evo.methods.moice._routers import Routers

Base = Annotated[float, Field(gt=1, allow_inf_nan=False)]


class TrainingSettings(Settings):
    """The settings of the training of routers; the defaults are the released recipe.

    The released script states a warm-up that its constant schedule does not use, and an auxiliary loss that is constant
    if ``top_k`` equals the number of bases. Both hold here too.

    Attributes:
        bases: Rotary bases of the experts; ``None`` for the published set, which is relative to a base of 10000.
        top_k: Bases that count for a token; ``None`` for all.
        steps: Steps of the optimiser.
        sequences: Sequences in each step.
        learning_rate: Constant learning rate of AdamW, without weight decay.
        auxiliary: Factor of the loss that balances the experts.
        max_length: Length in tokens to which sequences are cut.
        held_out: Sequences that are kept out of the training, and measured before and after it.
        checkpointing: Whether gradient checkpointing saves memory by computing activations twice.
        seed: Seed of the initial weights of the routers and of the order of sequences.
    """

    bases: tuple[Base, ...] | None = Field(default=None, min_length=1)
    top_k: int | None = Field(default=None, ge=1)
    steps: int = Field(default=7, ge=1)
    sequences: int = Field(default=128, ge=1)
    learning_rate: float = Field(default=1e-4, gt=0, le=10, allow_inf_nan=False)
    auxiliary: float = Field(default=0.3, ge=0, allow_inf_nan=False)
    max_length: int = Field(default=4608, ge=2)
    held_out: int = Field(default=16, ge=1)
    checkpointing: bool = True
    seed: int = Field(default=0, ge=0, lt=2**63)


@dataclass(frozen=True)
class RouterTraining:
    """Trained routers and the losses of their training, in nats per token.

    Attributes:
        routers: The routers.
        losses: Mean language-model loss of each step, ``(steps,)``.
        untouched: Loss of the untouched model on the held-out sequences.
        before: Loss under the untrained routers on the held-out sequences.
        after: Loss under the trained routers on the held-out sequences.
    """

    routers: "Routers"
    losses: tuple[float, ...]
    untouched: float
    before: float
    after: float


def train_routers(
    model: Any,
    name: str,
    sequences: Sequence[Sequence[int]],
    settings: TrainingSettings,
    *,
    on_step: Callable[[int, float], None] | None = None,
) -> RouterTraining:
    """Train routers of MoICE for a model, whose own weights do not change.

    Args:
        model: A causal language model of transformers; it may be wrapped.
        name: Name of the model, for the file of routers.
        sequences: Token ids of texts; the loss counts every token after the first.
        settings: The settings of the training.
        on_step: Called with the number and the loss of each step, in nats per token.

    Returns:
        The routers and the losses.

    Raises:
        ConfigError: There are too few sequences, or the bases do not suit the model.
        EvaluationError: A loss is not finite.
        ModelError: A method or scales are on the model.
        UnsupportedModelError: The attention of the model cannot be taken over.
    """
    import torch

    from lpes_evo.methods import base_ratios
    from lpes_evo.methods.moice._experts import mixed_experts
    from lpes_evo.methods.moice._routers import new_routers
    from lpes_evo.methods.takeover import check_describes, sole_method
    from lpes_evo.rope import unwrapped_model

    model = unwrapped_model(model)
    usable = [list(ids[: settings.max_length]) for ids in sequences if len(ids) > 1]
    if len(usable) <= settings.held_out:
        raise ConfigError(
            f"Expected more than the {settings.held_out} sequences that are held out, but got {len(usable)} of at "
            "least two tokens. Give more data, or set held_out."
        )

    order = random.Random(settings.seed)
    order.shuffle(usable)
    held_out, training = usable[: settings.held_out], usable[settings.held_out :]

    check_describes(model, "moice", any_static_type=True)
    ratios = base_ratios(model, settings.bases, BASE_SETS["moice"])
    top_k = settings.top_k or len(ratios)
    recipe = settings.model_dump(mode="json") | {"n_sequences": len(training)}
    routers = new_routers(model, name, ratios, top_k, seed=settings.seed, trained=recipe)

    seen: dict[int, torch.Tensor] = {}
    losses = []
    untouched = _mean_loss(model, held_out)

    with sole_method(model, "moice"), mixed_experts(model, routers, MethodHandle(), top_k=top_k, seen=seen):
        before = _mean_loss(model, held_out)
        optimiser = torch.optim.AdamW(routers.parameters(), lr=settings.learning_rate, weight_decay=0.0)

        with _trained_mode(model, settings.checkpointing), torch.enable_grad():
            endless = _endless(training, order)
            for step in range(settings.steps):
                batch = [next(endless) for _ in range(settings.sequences)]
                loss = accumulate_gradients(model, batch, seen, top_k, settings.auxiliary)
                if not math.isfinite(loss):
                    raise EvaluationError(
                        f"Expected a finite loss, but got {loss} in step {step}. With float16, try bfloat16 or float32."
                    )

                optimiser.step()
                optimiser.zero_grad()
                losses.append(loss)

                if on_step is not None:
                    on_step(step, loss)

        after = _mean_loss(model, held_out)

    return RouterTraining(routers.requires_grad_(False), tuple(losses), untouched, before, after)


def accumulate_gradients(
    model: Any,
    batch: Sequence[Sequence[int]],
    seen: "dict[int, torch.Tensor]",
    top_k: int,
    auxiliary: float,
) -> float:
    """Add the gradients of one step to those of the routers, and return the mean language-model loss.

    Sequences run one by one, as in the released recipe, so that there is no padding.

    Args:
        model: The model under `mixed_experts`.
        batch: Token ids of the sequences of the step.
        seen: The dict that holds the probabilities of the experts after a forward pass.
        top_k: Experts that count for a token.
        auxiliary: Factor of the balancing loss.

    Returns:
        The mean over sequences of their mean loss, in nats per token.
    """
    total = 0.0
    for ids in batch:
        seen.clear()
        loss = _loss(model, ids)
        balance = balancing_loss(list(seen.values()), top_k)
        ((loss + auxiliary * balance) / len(batch)).backward()  # type: ignore[no-untyped-call]
        total += float(loss.detach())
    return total / len(batch)


def balancing_loss(probabilities: "Sequence[torch.Tensor]", top_k: int) -> "torch.Tensor":
    """Return the loss that balances the use of experts: ``N sum_kn f[k, n] P[n]``.

    Here f is the share of tokens whose k-th choice is expert n, and P is the mean probability of n, over all layers. At
    equal use the loss is 1 for each kept place. Where all N experts are kept, it is therefore the constant N.

    Args:
        probabilities: Probabilities of the experts by layer, each ``(..., n_experts)``.
        top_k: Experts that count for a token.

    Returns:
        The loss, a scalar.
    """
    import torch

    flat = torch.cat([layer.flatten(0, -2) for layer in probabilities])
    n_experts = flat.shape[-1]
    chosen = flat.detach().topk(top_k, dim=-1).indices
    used = torch.bincount(chosen.flatten(), minlength=n_experts) / len(flat)
    return n_experts * (used * flat.mean(dim=0)).sum()


def _loss(model: Any, ids: Sequence[int]) -> "torch.Tensor":
    """Return the mean negative log-likelihood of all tokens after the first, in nats."""
    import torch

    inputs = torch.tensor([list(ids)], device=input_device(model))
    logits = model(input_ids=inputs, use_cache=False).logits[0, :-1].float()
    return torch.nn.functional.cross_entropy(logits, inputs[0, 1:])


def _mean_loss(model: Any, sequences: Sequence[Sequence[int]]) -> float:
    """Return the loss over the tokens of all sequences, in nats per token."""
    import torch

    with torch.inference_mode():
        nats = [float(_loss(model, ids)) * (len(ids) - 1) for ids in sequences]
    return math.fsum(nats) / sum(len(ids) - 1 for ids in sequences)


def _endless(sequences: list[list[int]], order: random.Random) -> Iterator[list[int]]:
    """Yield sequences without end, in another order each round."""
    while True:
        yield from order.sample(sequences, len(sequences))


@contextmanager
def _trained_mode(model: Any, checkpointing: bool) -> Iterator[None]:
    """Freeze the weights of a model, and put it into training mode if wanted, for the length of a block."""
    wanted = {parameter: parameter.requires_grad for parameter in model.parameters()}
    training, checkpointed = model.training, getattr(model, "is_gradient_checkpointing", False)
    try:
        model.requires_grad_(False)
        if checkpointing:
            # Reentrant checkpointing gives no gradients where no input requires any.
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            model.train()
        yield
    finally:
        if checkpointing and not checkpointed:
            model.gradient_checkpointing_disable()
        model.train(training)
        for parameter, flag in wanted.items():
            parameter.requires_grad_(flag)
