"""Greedy generation for a batch of prompts, whatever the model's own generation settings say."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lpes_evo.accelerators import input_device
from lpes_evo.workers import mark_step

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Generated:
    """The output of a model for one prompt.

    Attributes:
        ids: The tokens up to, and without, the one that ends the output.
        is_finite: Whether every logit behind these tokens was finite.
    """

    ids: tuple[int, ...]
    is_finite: bool


def end_ids(model: Any, tokenizer: Any) -> tuple[int, ...]:
    """Return the tokens that end an output: those of the model's generation settings and of its tokenizer."""
    config = getattr(model, "generation_config", None)
    found = getattr(config, "eos_token_id", None)
    listed = list(found) if isinstance(found, (list, tuple)) else [found]
    return tuple(sorted({int(end) for end in [*listed, tokenizer.eos_token_id] if end is not None}))


def generate_greedy(
    model: Any,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: Sequence[int],
    *,
    ends: Sequence[int],
    pad_id: int = 0,
) -> list[Generated]:
    """Let a model answer prompts by its likeliest token, with cached keys, in one left-padded batch.

    Penalties, sampling and length limits in the model's own generation settings do not count: an evaluation takes the
    argmax and nothing else.

    Where the rotary frequencies of the model follow the length of its input, prompts of one length alone share a batch,
    so each is answered as a lone ``generate`` on a fresh model would.

    Args:
        model: A causal language model of transformers, in evaluation mode.
        prompts: Token ids, ``n_rows`` lists.
        max_new_tokens: Most tokens of each answer, ``(n_rows,)``.
        ends: Tokens that end an answer.
        pad_id: Token that fills the padding; it changes nothing.

    Returns:
        The answers, ``n_rows`` of them.

    Raises:
        UnsupportedModelError: Rotary frequencies depend on earlier inputs in an unknown way, see `forget_lengths`.
    """
    from lpes_evo.rope import forget_lengths

    together: dict[int, list[int]] = {}
    follows_length = forget_lengths(model)
    for row, prompt in enumerate(prompts):
        together.setdefault(len(prompt) if follows_length else 0, []).append(row)

    answers: dict[int, Generated] = {}
    for rows in together.values():
        found = _generate_together(
            model,
            [prompts[row] for row in rows],
            [max_new_tokens[row] for row in rows],
            ends=ends,
            pad_id=pad_id,
        )
        answers.update(zip(rows, found, strict=True))
    return [answers[row] for row in range(len(prompts))]


def _generate_together(
    model: Any,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: Sequence[int],
    *,
    ends: Sequence[int],
    pad_id: int,
) -> list[Generated]:
    """Answer the prompts of one batch, see `generate_greedy`."""
    import torch

    width = max(map(len, prompts))
    ids = torch.full((len(prompts), width), pad_id, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, width - len(prompt) :] = torch.as_tensor(prompt, dtype=torch.long)
        mask[row, width - len(prompt) :] = 1

    watch, device = _FiniteWatch(), input_device(model)
    with torch.inference_mode(), _plain_settings(model, max(max_new_tokens), ends, pad_id) as settings:
        said = model.generate(
            input_ids=ids.to(device),
            attention_mask=mask.to(device),
            generation_config=settings,
            logits_processor=[watch],
        )

    rows = said[:, width:].tolist()
    first_wrong = watch.first_wrong(len(prompts))
    answers = []
    for row, limit, wrong in zip(rows, max_new_tokens, first_wrong, strict=True):
        length = next(
            (place for place, token in enumerate(row[:limit]) if token in ends), min(limit, len(row))
        )
        # The step that chose the end token counts too, unless the limit ended the answer.
        answers.append(Generated(tuple(row[:length]), wrong >= min(length + 1, limit)))
    return answers


class _FiniteWatch:
    """A logits processor that changes nothing, and records where logits were not finite, without a wait for the GPU."""

    def __init__(self) -> None:
        self._wrong: list[torch.Tensor] = []

    def __call__(self, input_ids: "torch.Tensor", scores: "torch.Tensor") -> "torch.Tensor":  # noqa: ARG002
        # The pool learns from this that the worker is alive.
        mark_step()
        # The largest value is not finite where one is NaN or plus infinity, or all are minus infinity.
        self._wrong.append(~scores.amax(dim=-1).isfinite())
        return scores

    def first_wrong(self, n_rows: int) -> list[int]:
        """Return for each row the first step with a value that is not finite; beyond the last where there is none."""
        import torch

        steps = torch.stack(self._wrong, dim=1).int()
        beyond = torch.full((n_rows,), steps.shape[1] + 1)
        return torch.where(steps.any(dim=1).cpu(), steps.argmax(dim=1).cpu(), beyond).tolist()


@contextmanager
def _plain_settings(model: Any, max_new_tokens: int, ends: Sequence[int], pad_id: int) -> Iterator[Any]:
    """Put settings for greedy decoding in the place of the model's own for the length of a block."""
    from transformers import GenerationConfig

    settings = GenerationConfig(
        do_sample=False,
        num_beams=1,
        max_new_tokens=max_new_tokens,
        eos_token_id=list(ends) or None,
        pad_token_id=pad_id,
        use_cache=True,
    )

    own = model.generation_config
    # Values that the settings of a call leave unset would be filled in from those of the model.
    model.generation_config = settings
    try:
        yield settings
    finally:
        model.generation_config = own
