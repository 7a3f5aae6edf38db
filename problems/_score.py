"""Teacher forcing: log-probabilities of known answers, and whether greedy decoding gives the answers."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from lpes_evo.accelerators import input_device, is_gpu
from lpes_evo.errors import TaskError
from lpes_evo.problems._encode import EncodedExample
from lpes_evo.problems._masks import pack_masks, repeat_entries
from lpes_evo.problems._pack import Batch, Pack, batches, pack_rows
from lpes_evo.workers import mark_step

if TYPE_CHECKING:
    import torch

PaddingSide = Literal["right", "left"]


@dataclass(frozen=True)
class AnswerScores:
    """The scores of a model on each example.

    Attributes:
        log_probability: Mean log-probability of the answer's tokens given the prompt, in nats per token,
            ``(n_examples,)`` or ``(n_candidates, n_examples)``; not finite where the model's output is not.
        correct: Whether greedy decoding gives the answer, of the same shape.
        score: What the task makes of the output of greedy generation, of the same shape; ``None`` where nothing was
            generated.
    """

    log_probability: npt.NDArray[np.float64]
    correct: npt.NDArray[np.bool_]
    score: npt.NDArray[np.float64] | None = None


def default_batch_tokens(device_type: str) -> int:
    """Return the tokens of one forward pass that suit a kind of device.

    Args:
        device_type: Kind of device, as torch names it.

    Returns:
        Enough tokens to keep a GPU busy; on a CPU, few enough to stay in its cache.
    """
    return 16384 if is_gpu(device_type) else 1024


def score_answers(
    model: Any,
    rows: Sequence[EncodedExample],
    *,
    scales: npt.NDArray[np.float64] | None = None,
    batch_tokens: int | None = None,
    share_prefixes: bool = False,
    padding_side: PaddingSide = "right",
    pad_id: int = 0,
) -> AnswerScores:
    """Score the answers of examples by one forward pass over prompt and answer.

    Rows are sorted by length and cut into batches, see `batches`. Where the frequencies of the model follow the length
    of its input (rotary types ``dynamic`` and ``longrope``), only rows that it rotates alike share a batch or a prefix,
    so each row is scored under the frequencies of its own tokens. Only logits at the answers are computed, and
    the log-softmax is float32 at least, whatever the model's dtype. In float32 neither the batch size, nor the company
    of other candidates, nor sharing changes a result beyond rounding.

    Args:
        model: A causal language model of transformers, in evaluation mode.
        rows: Token ids of the examples, ``n_examples`` of them.
        scales: Position divisors of some candidates, ``(n_candidates, n_layers)``; the model is patched for
            the time of the call. ``None`` scores the model as it is.
        batch_tokens: Tokens of one forward pass, padding included; a longer row is a batch of its own. ``None``
            chooses by the kind of device, see `default_batch_tokens`.
        share_prefixes: Whether rows that begin alike share one run over their common beginning. It needs a model in
            which tokens meet in attention alone, under masks that can be replaced; see `sharing_is_sound`.
        padding_side: Side on which shorter rows of a batch are padded. ``right`` needs no attention mask,
            which keeps the fast causal kernels; ``left`` does not go with ``share_prefixes``.
        pad_id: Token that fills the padding; it changes nothing.

    Returns:
        The scores, in the order of the rows: ``(n_examples,)``, or ``(n_candidates, n_examples)`` with
        ``scales``.

    Raises:
        TaskError: ``batch_tokens`` is not a positive integer, ``padding_side`` is unknown, or it is ``left`` together
            with ``share_prefixes``.
        UnsupportedModelError: Rotary frequencies depend on earlier inputs in an unknown way, see `forget_lengths`.
        ScalesError: The scales have the wrong shape, or a value that is not finite or outside 1e-6 to 1e6.
        UnsupportedModelError: Rows share prefixes, and the layers of the model get no masks that can be replaced.
    """
    import torch

    from lpes_evo.rope import CheckedScales, count_layers, forget_lengths, patch_rope

    if padding_side not in get_args(PaddingSide) or (share_prefixes and padding_side == "left"):
        raise TaskError(
            f"Expected padding_side to be right, or left without share_prefixes, but got {padding_side!r} and "
            f"share_prefixes={share_prefixes}."
        )

    length_key = forget_lengths(model)
    if batch_tokens is None:
        batch_tokens = default_batch_tokens(input_device(model).type)

    n_candidates = 1 if scales is None else len(scales)
    log_probability = np.empty((n_candidates, len(rows)), dtype=np.float64)
    correct = np.empty((n_candidates, len(rows)), dtype=np.bool_)
    packs = pack_rows(rows, share_prefixes=share_prefixes, length_key=length_key)

    # Results stay on the device until the last batch is launched, so that the device never waits for the host.
    pending = []
    checked = None if scales is None else CheckedScales(scales, count_layers(model))
    with nullcontext() if checked is None else patch_rope(model, checked) as patch, torch.inference_mode():
        for batch in batches(packs, batch_tokens, n_candidates, length_key=length_key):
            if checked is not None and patch is not None and n_candidates > 1:
                patch.set(checked.rows(_candidates_of(batch)))
            scores = answer_scores(
                model, batch.packs, len(batch.candidates), padding_side=padding_side, pad_id=pad_id
            )
            pending.append((batch, scores))

    for batch, (mean, greedy) in pending:
        candidates = slice(batch.candidates.start, batch.candidates.stop)
        indices = [index for pack in batch.packs for index in pack.indices]
        log_probability[candidates, indices] = mean.cpu().numpy()
        correct[candidates, indices] = greedy.cpu().numpy()

    if scales is None:
        return AnswerScores(log_probability[0], correct[0])
    return AnswerScores(log_probability, correct)


def _candidates_of(batch: Batch) -> list[int]:
    """Return the candidate of every entry of a batch, candidates outermost; once where there is one for all."""
    n_packs = len(batch.packs) if len(batch.candidates) > 1 else 1
    return [candidate for candidate in batch.candidates for _ in range(n_packs)]


def answer_scores(
    model: Any,
    packs: Sequence[Pack],
    n_candidates: int = 1,
    *,
    padding_side: PaddingSide = "right",
    pad_id: int = 0,
) -> "tuple[torch.Tensor, torch.Tensor]":
    """Score one batch; gradients flow where the caller has not switched them off.

    Args:
        model: A causal language model of transformers.
        packs: The packs of the batch.
        n_candidates: Number of times that the packs stand in the batch; the model tells the candidates apart by the
            scales of its patch.
        padding_side: Side on which shorter packs are padded.
        pad_id: Token that fills the padding.

    Returns:
        For each candidate and row, pack by pack: mean log-probability of the answer in nats per token,
        ``(n_candidates, n_rows)`` in float32 or the model's better dtype, and whether greedy decoding gives it,
        ``(n_candidates, n_rows)`` bool.
    """
    import torch

    layout = Layout(packs, padding_side, pad_id)
    device = input_device(model)

    def load(values: npt.NDArray[Any], device: torch.device = device) -> torch.Tensor:
        return repeat_entries(torch.from_numpy(values).to(device), n_candidates)

    inputs = {name: load(values) for name, values in layout.inputs.items()}

    pack, place = map(load, layout.places)
    first_entry = len(packs) * torch.arange(n_candidates, device=device)
    entry = pack + first_entry.repeat_interleave(len(pack) // n_candidates)[:, None]

    with (
        pack_masks(model, layout.segments, layout.inputs["position_ids"], n_candidates)
        if layout.shares
        else nullcontext()
    ):
        logits = _logits_at(model, inputs, entry, place)

    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    log_probabilities = logits.log_softmax(dim=-1)
    # The output head may be on another device than the embedding.
    wanted, used = load(layout.targets, logits.device), load(layout.counted, logits.device)
    chosen = log_probabilities.gather(-1, wanted[..., None])[..., 0]
    mean = torch.where(used, chosen, 0.0).sum(dim=-1) / used.sum(dim=-1)
    greedy = ((logits.argmax(dim=-1) == wanted) | ~used).all(dim=-1) & torch.isfinite(mean)
    mark_step()
    return mean.view(n_candidates, -1), greedy.view(n_candidates, -1)


class Layout:
    """The places of the tokens of a batch of packs, and of the logits that predict their answers.

    Attributes:
        inputs: Arrays for the model by name, each ``(n_packs, width)``.
        segments: Segment of each token, ``(n_packs, width)``: 0 for the shared prefix, -1 for padding.
        shares: Whether a pack has several rows.
        places: Pack and place of each answer token's logits, each ``(n_rows, n_answer)``.
        targets: Answer tokens, ``(n_rows, n_answer)``.
        counted: Which of them are real, ``(n_rows, n_answer)``.
    """

    def __init__(self, packs: Sequence[Pack], padding_side: PaddingSide = "right", pad_id: int = 0) -> None:
        width = max(pack.n_tokens for pack in packs)
        rows = [row for pack in packs for row in pack.rows]
        answers = (len(rows), max(len(row.answer_ids) for row in rows))
        ids = np.full((len(packs), width), pad_id, dtype=np.int64)
        positions = np.zeros_like(ids)
        self.segments = np.full_like(ids, -1)
        self.shares = len(rows) > len(packs)
        self.targets = np.zeros(answers, dtype=np.int64)
        self.counted = np.zeros(answers, dtype=np.bool_)
        self.places = np.zeros(answers, dtype=np.int64), np.zeros(answers, dtype=np.int64)

        number = 0
        for index, pack in enumerate(packs):
            start = 0 if padding_side == "right" else width - pack.n_tokens
            shared = pack.n_prefix
            ids[index, start : start + shared] = pack.rows[0].prompt_ids[:shared]
            positions[index, start : start + shared] = np.arange(shared)
            self.segments[index, start : start + shared] = 0
            start += shared

            for segment, row in enumerate(pack.rows, start=1):
                end = start + row.n_tokens - shared
                ids[index, start:end] = (row.prompt_ids + row.answer_ids)[shared:-1]
                positions[index, start:end] = np.arange(shared, row.n_tokens)
                self.segments[index, start:end] = segment
                length = len(row.answer_ids)

                # The logits at a token predict the next token, so the answer is read from the last prompt token on.
                # The places past a shorter answer repeat its last one and are not counted.
                self.places[0][number] = index
                self.places[1][number] = end - length + np.minimum(np.arange(answers[1]), length - 1)
                self.targets[number, :length] = row.answer_ids
                self.counted[number, :length] = True
                number += 1
                start = end

        self.inputs = {"input_ids": ids}
        if self.shares or padding_side == "left":
            self.inputs["position_ids"] = positions
        # Right padding needs no mask: attention is causal, so what follows a row cannot reach it.
        if padding_side == "left":
            self.inputs["attention_mask"] = (self.segments >= 0).astype(np.int64)
        elif self.shares:
            # Without a mask, transformers would take each segment for a separate text.
            self.inputs["attention_mask"] = np.ones_like(ids)


def _logits_at(
    model: Any, inputs: "dict[str, torch.Tensor]", entry: "torch.Tensor", place: "torch.Tensor"
) -> "torch.Tensor":
    """Return the logits at places ``(n_rows, n_answer)`` of batch entries, ``(n_rows, n_answer, n_vocabulary)``.

    The hidden states at the answers are picked out on their way into the output head, so that the model's own
    forward pass still does to the logits what its family does (soft capping, scaling).
    """
    picked = []

    def pick(_head: Any, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        picked.append(True)
        states = arguments[0]
        found = states[entry.to(states.device), place.to(states.device)]
        # The rows take the place of the sequence of a single batch entry, which every head maps alike.
        return (found.flatten(0, 1)[None], *arguments[1:])

    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    handle = head.register_forward_pre_hook(pick) if head is not None else None
    try:
        logits: torch.Tensor = model(**inputs, use_cache=False).logits
    finally:
        if handle is not None:
            handle.remove()
    if picked:
        return logits[0].reshape(*entry.shape, -1)
    return logits[entry.to(logits.device), place.to(logits.device)]
