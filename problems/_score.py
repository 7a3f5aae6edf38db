"""Teacher forcing: the log-probability of known answers, and whether greedy decoding gives them."""

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from lpes_evo.errors import TaskError
from lpes_evo.problems._encode import EncodedExample

if TYPE_CHECKING:
    import torch

DEFAULT_BATCH_TOKENS = 8192
PaddingSide = Literal["right", "left"]


@dataclass(frozen=True)
class AnswerScores:
    """How a model does on each example.

    Attributes:
        log_probability: Mean log-probability of the answer's tokens given the prompt, in nats per token,
            ``(n_examples,)``; not finite where the model's output is not.
        correct: Whether greedy decoding gives the answer, ``(n_examples,)``.
    """

    log_probability: npt.NDArray[np.float64]
    correct: npt.NDArray[np.bool_]


def score_answers(
    model: Any,
    rows: Sequence[EncodedExample],
    *,
    batch_tokens: int = DEFAULT_BATCH_TOKENS,
    padding_side: PaddingSide = "right",
    pad_id: int = 0,
) -> AnswerScores:
    """Score the answers of examples by one forward pass over prompt and answer.

    Rows are sorted by length and cut into batches. Only logits near the answers are computed, and the
    log-softmax is float32 whatever the model's dtype. In float32 the batch size does not change a result
    beyond rounding.

    Args:
        model: A causal language model of transformers, in evaluation mode.
        rows: Token ids of the examples, ``n_examples`` of them.
        batch_tokens: Tokens of one forward pass, padding included; a longer row is a batch of its own.
        padding_side: Side on which shorter rows of a batch are padded. ``right`` needs no attention mask,
            which keeps the fast causal kernels.
        pad_id: Token that fills the padding; it changes nothing.

    Returns:
        The scores, in the order of the rows.

    Raises:
        TaskError: ``batch_tokens`` is not positive or ``padding_side`` is unknown.
    """
    import torch

    log_probability = np.empty(len(rows), dtype=np.float64)
    correct = np.empty(len(rows), dtype=np.bool_)
    # Results stay on the device until the last batch is launched, so that the device never waits for the
    # host.
    pending = []
    with torch.inference_mode():
        for indices in batches(rows, batch_tokens):
            batch = [rows[index] for index in indices]
            pending.append((indices, answer_scores(model, batch, padding_side=padding_side, pad_id=pad_id)))
    for indices, (mean, greedy) in pending:
        log_probability[indices] = mean.cpu().numpy()
        correct[indices] = greedy.cpu().numpy()
    return AnswerScores(log_probability, correct)


def batches(rows: Sequence[EncodedExample], batch_tokens: int) -> Iterator[list[int]]:
    """Yield the indices of rows of similar length, longest first.

    The longest batch comes first so that a device too small for it says so at once.

    Args:
        rows: Token ids of the examples.
        batch_tokens: Tokens of one batch, padding included.

    Yields:
        Indices of the rows of one batch.

    Raises:
        TaskError: ``batch_tokens`` is not positive.
    """
    if batch_tokens < 1:
        raise TaskError(f"Expected batch_tokens to be at least 1, but got {batch_tokens}.")
    order = sorted(range(len(rows)), key=lambda index: -rows[index].n_tokens)
    start = 0
    while start < len(order):
        n_rows = max(1, batch_tokens // rows[order[start]].n_tokens)
        yield order[start : start + n_rows]
        start += n_rows


def answer_scores(
    model: Any, batch: Sequence[EncodedExample], *, padding_side: PaddingSide = "right", pad_id: int = 0
) -> "tuple[torch.Tensor, torch.Tensor]":
    """Score one batch; gradients flow where the caller has not switched them off.

    Args:
        model: A causal language model of transformers.
        batch: Token ids of the rows of the batch.
        padding_side: Side on which shorter rows are padded.
        pad_id: Token that fills the padding.

    Returns:
        Mean log-probability of each answer in nats per token, ``(n_rows,)`` float32, and whether greedy
        decoding gives it, ``(n_rows,)`` bool.

    Raises:
        TaskError: ``padding_side`` is unknown.
    """
    import torch

    if padding_side not in ("right", "left"):
        raise TaskError(f"Expected padding_side to be right or left, but got {padding_side!r}.")
    width = max(row.n_tokens for row in batch)
    n_answer = max(len(row.answer_ids) for row in batch)
    ids = np.full((len(batch), width), pad_id, dtype=np.int64)
    mask = np.zeros((len(batch), width), dtype=np.int64)
    places = np.zeros((len(batch), n_answer), dtype=np.int64)
    targets = np.zeros((len(batch), n_answer), dtype=np.int64)
    counted = np.zeros((len(batch), n_answer), dtype=np.bool_)
    for index, row in enumerate(batch):
        length = len(row.answer_ids)
        start = 0 if padding_side == "right" else width - row.n_tokens
        ids[index, start : start + row.n_tokens] = (row.prompt_ids + row.answer_ids)[:-1]
        mask[index, start : start + row.n_tokens] = 1
        # The logits at a token predict the next one, so the answer is read from the last prompt token on. The
        # places past a shorter answer repeat its last one and are not counted.
        first = start + len(row.prompt_ids) - 1
        places[index] = first + np.minimum(np.arange(n_answer), length - 1)
        targets[index, :length] = row.answer_ids
        counted[index, :length] = True
    inputs = {"input_ids": ids}
    if padding_side == "left":
        # Right padding needs neither: attention is causal, so what follows a row cannot reach it.
        inputs |= {"attention_mask": mask, "position_ids": np.maximum(mask.cumsum(axis=1) - 1, 0)}
    device = model.device
    tensors = {name: torch.from_numpy(values).to(device) for name, values in inputs.items()}
    logits = _logits_at(model, tensors, places).float()
    log_probabilities = logits.log_softmax(dim=-1)
    wanted = torch.from_numpy(targets).to(device)
    used = torch.from_numpy(counted).to(device)
    chosen = log_probabilities.gather(-1, wanted[..., None])[..., 0]
    mean = torch.where(used, chosen, 0.0).sum(dim=-1) / used.sum(dim=-1)
    greedy = ((logits.argmax(dim=-1) == wanted) | ~used).all(dim=-1) & torch.isfinite(mean)
    return mean, greedy


def _logits_at(
    model: Any, inputs: "dict[str, torch.Tensor]", places: npt.NDArray[np.int64]
) -> "torch.Tensor":
    """Return the logits at ``places`` ``(n_rows, n_answer)`` as ``(n_rows, n_answer, n_vocabulary)``."""
    import torch

    arguments: dict[str, Any] = dict(inputs) | {"use_cache": False}
    device = inputs["input_ids"].device
    if "logits_to_keep" in inspect.signature(model.forward).parameters:
        # The model's own argument keeps what a family does to its logits (soft capping, scaling). It takes
        # one set of positions for all rows; rows of similar length make the union small.
        union, inverse = np.unique(places, return_inverse=True)
        arguments["logits_to_keep"] = torch.from_numpy(union).to(device)
        places = inverse.reshape(places.shape)
    logits = model(**arguments).logits
    index = torch.from_numpy(places).to(device)
    gathered: torch.Tensor = logits.gather(1, index[..., None].expand(-1, -1, logits.shape[-1]))
    return gathered
