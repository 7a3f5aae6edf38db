"""The outcome of one evaluation, and how a genome is evaluated in this process."""

import dataclasses
import math
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from lpes_evo.errors import JournalError
from lpes_evo.operators import BezierGenome, CurveSpace
from lpes_evo.problems import Problem, aggregate


@dataclass(frozen=True)
class Evaluation:
    """What is known about one genome after its evaluation.

    Attributes:
        values: Fitness values, one per objective, larger is better; empty when the evaluation failed.
        scores: Score of each search example, in the order of the problem's example ids; empty when it failed.
        seconds: Wall-clock time of the evaluation.
        status: ``"ok"`` or ``"failed"``.
        error: The traceback of a failed evaluation, else ``None``.
    """

    values: tuple[float, ...]
    scores: tuple[float, ...]
    seconds: float
    status: Literal["ok", "failed"] = "ok"
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the evaluation as values that `json` can write."""
        record: dict[str, Any] = {
            "status": self.status,
            "values": list(self.values),
            "scores": list(self.scores),
            "seconds": self.seconds,
        }
        return record if self.error is None else record | {"error": self.error}

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "Evaluation":
        """Read what `to_json` gave, checking every value.

        Args:
            record: A mapping with the fields of this class.

        Returns:
            The evaluation.

        Raises:
            JournalError: A field is missing, has the wrong type, or a number is not finite.
        """
        try:
            evaluation = cls(
                values=tuple(_real(value) for value in record["values"]),
                scores=tuple(_real(score) for score in record["scores"]),
                seconds=_real(record["seconds"]),
                status=record["status"],
                error=None if record.get("error") is None else _text(record["error"]),
            )
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise JournalError(
                f"Expected an evaluation with values, scores, seconds and status, but got {error!r}."
            ) from error
        numbers = [*evaluation.values, *evaluation.scores, evaluation.seconds]
        succeeded = evaluation.status == "ok"
        if (
            not (succeeded or evaluation.status == "failed")
            or not np.isfinite(numbers).all()
            or succeeded != bool(evaluation.values)
        ):
            raise JournalError(
                f"Expected finite values with the status 'ok' or 'failed', but got status {evaluation.status!r} "
                f"and values {list(evaluation.values)}."
            )
        return evaluation


def checked_evaluation(evaluation: Evaluation) -> Evaluation:
    """Return an evaluation whose values are plain finite floats, or a failed one that says what came instead.

    Args:
        evaluation: An evaluation that may come from code of a user.

    Returns:
        The evaluation; failed where a value is not a finite real number.
    """
    if evaluation.status == "failed":
        return evaluation
    try:
        values = tuple(float(value) for value in evaluation.values)
    except (TypeError, ValueError, OverflowError):
        values = (math.nan,)
    if not values or not all(map(math.isfinite, values)):
        error = f"ValueError: Expected fitness values that are finite real numbers, but got {evaluation.values!r:.80}."
        return dataclasses.replace(evaluation, values=(), status="failed", error=error)
    return dataclasses.replace(evaluation, values=values)


def _real(value: Any) -> float:
    """Return a number of a JSON file as float."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{value!r:.40} is not a number")
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is not text")
    return value


Evaluator = Callable[[Sequence[BezierGenome]], Iterator[tuple[int, Evaluation]]]
"""Takes genomes and yields ``(index, evaluation)`` as each is finished, in any order."""


def evaluate_genome(
    genome: BezierGenome, space: CurveSpace, problem: Problem, how: str = "mean"
) -> Evaluation:
    """Score one genome; whatever the problem raises becomes a failed evaluation with its traceback.

    Args:
        genome: The genome.
        space: The space that decodes it.
        problem: The problem that scores the decoded curve.
        how: Aggregate of the begin, middle and end sets, see `lpes_evo.problems.aggregate`.

    Returns:
        The evaluation; failed when the problem raised or gave a score that is not a finite real number.
    """
    start = time.perf_counter()
    try:
        scores = np.asarray(problem.score(space.decode([genome])[0]))
        if scores.shape != (len(problem.example_ids),):
            raise ValueError(
                f"Expected scores of shape (n_examples,) = ({len(problem.example_ids)},), but got {scores.shape}."
            )
        if np.iscomplexobj(scores) or not np.isfinite(scores).all():
            raise ValueError(f"Expected finite real scores, but got {scores[~np.isfinite(scores)][:3]}.")
        values = aggregate(scores, problem.groups, how)
    except Exception:  # one bad candidate must not end a search of hours
        return Evaluation((), (), time.perf_counter() - start, "failed", traceback.format_exc())
    return Evaluation(values, tuple(float(score) for score in scores), time.perf_counter() - start)


class SerialEvaluator:
    """Evaluates genomes one after another in this process.

    Args:
        problem: The problem that scores the curves.
        space: The space that decodes genomes.
        how: Aggregate of the begin, middle and end sets.
    """

    def __init__(self, problem: Problem, space: CurveSpace, how: str = "mean") -> None:
        self._problem = problem
        self._space = space
        self._how = how

    def __call__(self, genomes: Sequence[BezierGenome]) -> Iterator[tuple[int, Evaluation]]:
        """Yield ``(index, evaluation)`` of each genome as it is finished."""
        for index, genome in enumerate(genomes):
            yield index, evaluate_genome(genome, self._space, self._problem, self._how)
