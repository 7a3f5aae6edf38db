"""Gradients: derivatives of the log-probabilities of answers with respect to the scales."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any

import numpy as np
import numpy.typing as npt

from lpes_evo.accelerators import input_device
from lpes_evo.errors import EvaluationError
from lpes_evo.problems._encode import EncodedExample
from lpes_evo.problems._pack import batches, pack_rows
from lpes_evo.problems._score import answer_scores, default_batch_tokens

# Words by which torch says that a kernel or an operator of another library has no backward pass.
_SIGNS_OF_NO_BACKWARD = (
    "derivative for",
    "backward formula",
    "not implemented",
    "require grad",
    "in the graph",
)


def answer_gradient(
    model: Any,
    rows: Sequence[EncodedExample],
    scales: npt.NDArray[np.float64],
    weights: npt.NDArray[np.float64],
    *,
    batch_tokens: int | None = None,
    share_prefixes: bool = False,
    checkpointing: bool = False,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Score the answers of examples and take the gradient of the weighted sum of the scores.

    Rows are batched as in `score_answers`, one backward pass for each forward pass. The weights of the model are frozen
    for the time of the call, so memory goes to activations alone.

    Args:
        model: A causal language model of transformers, in evaluation mode.
        rows: Token ids of the examples, ``n_examples`` of them.
        scales: Position divisors, ``(n_layers,)``; the model is patched for the time of the call.
        weights: Weight of each score, ``(n_examples,)``.
        batch_tokens: Tokens of one forward pass, see `score_answers`.
        share_prefixes: Whether rows that begin alike share one run over their common beginning.
        checkpointing: Whether the activations of a layer are computed again in the backward pass instead of kept.

    Returns:
        The mean log-probabilities of the answers in nats per token, ``(n_examples,)``, and the derivative of their
        weighted sum with respect to each scale, ``(n_layers,)``; not finite where the model's output is not.

    Raises:
        EvaluationError: The attention backend, or another operator of the model, has no backward pass.
        ScalesError: The scales have the wrong shape, or a value that is not finite or outside 1e-6 to 1e6.
        TaskError: ``batch_tokens`` is not a positive integer.
    """
    import torch

    from lpes_evo.rope import forget_lengths, patch_rope

    if batch_tokens is None:
        batch_tokens = default_batch_tokens(input_device(model).type)
    log_probability = np.empty(len(rows), dtype=np.float64)
    gradient = np.zeros(len(scales), dtype=np.float64)

    # In half precision, small weights would let gradients underflow on their way.
    largest = float(np.abs(weights).max(initial=0.0)) or 1.0
    length_key = forget_lengths(model)
    packs = pack_rows(rows, share_prefixes=share_prefixes, length_key=length_key)

    # Inference mode is left first: a tensor that is made in it has no gradient even outside of it.
    with torch.inference_mode(False), torch.enable_grad(), _differentiable(model, checkpointing):
        live = torch.tensor(scales, dtype=torch.float64, requires_grad=True)
        with patch_rope(model, live):
            for batch in batches(packs, batch_tokens, length_key=length_key):
                indices = [index for pack in batch.packs for index in pack.indices]
                factors = torch.from_numpy(weights[indices] / largest)
                with _explained(model):
                    (mean,), _ = answer_scores(model, batch.packs)
                    (slope,) = torch.autograd.grad((mean * factors.to(mean)).sum(), live)
                log_probability[indices] = mean.detach().cpu().numpy()
                gradient += largest * slope.numpy()
    return log_probability, gradient


@contextmanager
def _explained(model: Any) -> Iterator[None]:
    """Turn what torch raises for a missing backward pass into one clear error, for the length of a block."""
    try:
        yield
    except (RuntimeError, NotImplementedError) as error:
        if not isinstance(error, NotImplementedError) and not any(
            sign in str(error) for sign in _SIGNS_OF_NO_BACKWARD
        ):
            raise

        attention = getattr(model.config, "_attn_implementation", "eager")
        reason = next(iter(str(error).splitlines()), type(error).__name__).rstrip(".")
        raise EvaluationError(
            f"Expected a model with a backward pass, but with the attention backend {attention!r} it has none: "
            f"{reason:.200}. Set model.attention to sdpa or eager, or use an algorithm without gradients."
        ) from error


@contextmanager
def _differentiable(model: Any, checkpointing: bool) -> Iterator[None]:
    """Freeze the weights of a model and let its layers checkpoint for the length of a block."""
    from lpes_evo.rope import decoder_layers

    wanted = {parameter: parameter.requires_grad for parameter in model.parameters()}
    # The switch of transformers works in training alone, in which many layers also drop out at random.
    layers = decoder_layers(model) if checkpointing else ()
    before = [layer.__dict__.get("forward") for layer in layers]
    try:
        model.requires_grad_(False)
        for layer in layers:
            layer.forward = _checkpointed(layer.forward)
        yield
    finally:
        for layer, forward in zip(layers, before, strict=True):
            layer.__dict__.pop("forward", None)
            if forward is not None:
                layer.forward = forward
        for parameter, flag in wanted.items():
            parameter.requires_grad_(flag)


def _checkpointed(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Return a layer's forward that computes its activations again in the backward pass instead of keeping them."""
    from torch.utils.checkpoint import checkpoint

    @wraps(forward)
    def again(*args: Any, **kwargs: Any) -> Any:
        # Reentrant checkpoints give no gradients where no positional argument requires any.
        return checkpoint(partial(forward, **kwargs), *args, use_reentrant=False)

    return again
