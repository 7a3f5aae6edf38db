"""Work of a search on its workers: scores and gradients of blocks of examples, in batches that fit the memory."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from lpes_evo.accelerators import empty_caches, is_out_of_memory
from lpes_evo.errors import EvaluationError, TaskError
from lpes_evo.problems import Problem

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class WorkPlan:
    """The shape and the cost of the work of an evaluator.

    Attributes:
        block_tokens: Number of tokens that one candidate forwards in each block, ``(n_blocks,)``.
        n_candidates: Number of candidates that share a forward pass.
        is_exact: Whether scores do not depend on the shape of a batch beyond rounding in float32. In half precision
            they do, and every pass is filled up to ``n_candidates``, so that all candidates are scored under one shape.
        gradient_tokens: Number of tokens that the gradient on each sample costs, ``(n_samples,)``; a backward pass
            counts as two forward passes.
    """

    block_tokens: tuple[int, ...]
    n_candidates: int
    is_exact: bool
    gradient_tokens: tuple[int, ...]


def plan_work(
    problem: Problem,
    blocks: Sequence[Sequence[str]],
    samples: Sequence[Sequence[str]],
    n_candidates: int | None,
) -> WorkPlan:
    """Return the cost of blocks of examples, and the number of candidates that fit in a forward pass.

    Args:
        problem: The problem.
        blocks: Ids of the examples of each block.
        samples: Ids of the examples of each sample on which gradients are taken.
        n_candidates: Number of candidates that share a forward pass; ``None`` for as many as fit.

    Returns:
        The plan.

    Raises:
        TaskError: The problem gives a number of candidates that is no positive integer.
    """
    if n_candidates is None:
        fitting = [problem.n_candidates_that_fit(block) for block in blocks]
        wrong = [number for number in fitting if not isinstance(number, int) or number < 1]
        if wrong:
            raise TaskError(
                "Expected n_candidates_that_fit of the problem to return a whole number of at least 1, but got "
                f"{wrong[0]!r}. Return 1 where candidates share no forward pass."
            )
        n_candidates = min(fitting)

    return WorkPlan(
        block_tokens=tuple(map(problem.n_tokens_of, blocks)),
        n_candidates=n_candidates,
        is_exact=problem.is_exact,
        gradient_tokens=tuple(problem.gradient_cost * problem.n_tokens_of(sample) for sample in samples),
    )


def score_block(
    problem: Problem, scales: npt.NDArray[np.float64], example_ids: Sequence[str]
) -> tuple[npt.NDArray[np.float64], int]:
    """Score some examples under several curves.

    Args:
        problem: The problem.
        scales: The curves, ``(n_candidates, n_layers)``.
        example_ids: The examples.

    Returns:
        The scores, ``(n_candidates, n_examples)``, and the number of times the batch was halved for want of memory.

    Raises:
        EvaluationError: The problem returned another shape.
    """
    scores, n_halvings = with_less_memory(problem, lambda smaller: smaller.score_many(scales, example_ids))
    array = np.asarray(scores)
    if array.shape != (len(scales), len(example_ids)) or np.iscomplexobj(array):
        raise EvaluationError(
            f"Expected real scores of shape (n_candidates, n_examples) = {(len(scales), len(example_ids))}, but got "
            f"{array.dtype} of shape {array.shape}."
        )
    return array.astype(np.float64), n_halvings


def gradient_block(
    problem: Problem,
    scales: npt.NDArray[np.float64],
    example_ids: Sequence[str],
    weights: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], int]:
    """Score some examples under one curve, and take the gradient of the weighted sum of their scores.

    Args:
        problem: The problem.
        scales: The curve, ``(n_layers,)``.
        example_ids: The examples.
        weights: The weight of each score, ``(n_examples,)``.

    Returns:
        The scores, ``(n_examples,)``, the gradient, ``(n_layers,)``, and the number of times the batch was halved for
        want of memory.

    Raises:
        EvaluationError: The problem returned other shapes, or values that are not finite real numbers.
    """
    pair, n_halvings = with_less_memory(
        problem, lambda smaller: smaller.gradient(scales, example_ids, weights)
    )
    try:
        scores, gradient = (np.asarray(part) for part in pair)
    except (TypeError, ValueError) as error:
        raise EvaluationError(f"Expected a pair of scores and gradient, but got {pair!r:.80}.") from error

    if scores.shape != (len(example_ids),) or gradient.shape != scales.shape:
        raise EvaluationError(
            f"Expected scores of shape (n_examples,) = ({len(example_ids)},) and a gradient of shape (n_layers,) = "
            f"{scales.shape}, but got {scores.shape} and {gradient.shape}."
        )
    for name, array in (("scores", scores), ("gradient", gradient)):
        if array.dtype.kind not in "biuf" or not np.isfinite(array).all():
            raise EvaluationError(f"Expected {name} of finite real numbers, but got {array[:3].tolist()}.")
    return scores.astype(np.float64), gradient.astype(np.float64), n_halvings


def with_less_memory(problem: Problem, work: Callable[[Any], _Value]) -> tuple[_Value, int]:
    """Do some work, with half the batch each time the device runs out of memory.

    Args:
        problem: The problem.
        work: Function that takes the problem, and then ever smaller versions of it.

    Returns:
        The result of the work, and the number of times the batch was halved.
    """
    n_halvings = 0
    while True:
        try:
            return work(problem), n_halvings
        except (
            Exception
        ) as error:  # errors for want of memory have several classes; all others are raised again
            smaller = problem.smaller() if is_out_of_memory(error) else None
            if smaller is None:
                raise

        # Outside of the handler, the frames that hold tensors of the device are gone, so their memory is free.
        problem = smaller
        n_halvings += 1
        empty_caches()
