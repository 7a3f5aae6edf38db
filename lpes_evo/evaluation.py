"""The outcome of one evaluation."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from lpes_evo.errors import JournalError

STEEPEST = 1e100
"""Derivatives are below this, so that their squares are finite."""


@dataclass(frozen=True)
class Evaluation:
    """What is known about one genome after its evaluation.

    Attributes:
        values: Fitness values, one per objective, larger is better; empty unless the status is ``"ok"``.
        scores: Score of each search example, in the order of the problem's example ids; of a raced-out or sampled
            evaluation, of the examples in ``scored``; empty when it failed.
        seconds: Wall-clock time of the evaluation.
        status: ``"ok"``, ``"failed"``, ``"raced"`` when it was stopped early as worse than a parent, or ``"sampled"``
            when the gradient on a sample of the examples was wanted.
        error: The traceback of a failed evaluation, else ``None``.
        scored: Indices into the problem's example ids of the scores of a raced-out or sampled evaluation, else empty.
        tokens: Tokens that the evaluation forwarded, a backward pass counted as two; 0 for problems without tokens.
        halvings: How often the batch was halved because the device ran out of memory.
        gradient: Derivative of the fitness on the sample with respect to each scale, ``(n_layers,)``; of sampled
            evaluations alone.
    """

    values: tuple[float, ...]
    scores: tuple[float, ...]
    seconds: float
    status: Literal["ok", "failed", "raced", "sampled"] = "ok"
    error: str | None = None
    scored: tuple[int, ...] = ()
    tokens: int = 0
    halvings: int = 0
    gradient: tuple[float, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the evaluation as values that `json` can write."""
        record: dict[str, Any] = {
            "status": self.status,
            "values": list(self.values),
            "scores": list(self.scores),
            "seconds": self.seconds,
        }
        if self.error is not None:
            record["error"] = self.error
        if self.scored:
            record["scored"] = list(self.scored)
        if self.gradient:
            record["gradient"] = list(self.gradient)
        record |= {
            name: count for name, count in (("tokens", self.tokens), ("halvings", self.halvings)) if count
        }
        return record

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "Evaluation":
        """Read what `to_json` gave, checking every value.

        Args:
            record: A mapping with the fields of this class.

        Returns:
            The evaluation.

        Raises:
            JournalError: A field is missing, has the wrong type, a number is not finite, or the fields contradict each
                other.
        """
        try:
            evaluation = cls(
                values=tuple(_real(value) for value in record["values"]),
                scores=tuple(_real(score) for score in record["scores"]),
                seconds=_real(record["seconds"]),
                status=record["status"],
                error=None if record.get("error") is None else _text(record["error"]),
                scored=tuple(_count(index) for index in record.get("scored", ())),
                tokens=_count(record.get("tokens", 0)),
                halvings=_count(record.get("halvings", 0)),
                gradient=tuple(_real(slope) for slope in record.get("gradient", ())),
            )
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise JournalError(
                f"Expected an evaluation with values, scores, seconds and status, but got {error!r}."
            ) from error
        numbers = [*evaluation.values, *evaluation.scores, evaluation.seconds, *evaluation.gradient]
        if (
            evaluation.status not in ("ok", "failed", "raced", "sampled")
            or not np.isfinite(numbers).all()
            or (evaluation.status == "ok") != bool(evaluation.values)
            or (evaluation.status == "sampled") != bool(evaluation.gradient)
        ):
            raise JournalError(
                "Expected finite values with the status 'ok', or none with 'failed', 'raced' or 'sampled', and a "
                f"finite gradient with 'sampled' alone, but got status {evaluation.status!r} and values "
                f"{list(evaluation.values)} with a gradient of {len(evaluation.gradient)} numbers."
            )
        n_expected = len(evaluation.scores) if evaluation.status in ("raced", "sampled") else 0
        n_scored = len(evaluation.scored)
        if n_scored != n_expected or len(set(evaluation.scored)) != n_scored:
            raise JournalError(
                f"Expected a distinct example number for each of {n_expected} scores of status 'raced' or 'sampled', "
                f"but got {list(evaluation.scored)!r:.80}."
            )
        return evaluation


def checked_evaluation(evaluation: Evaluation) -> Evaluation:
    """Return an evaluation whose values are plain finite floats, or a failed one that says what came instead.

    Args:
        evaluation: An evaluation that may come from code of a user.

    Returns:
        The evaluation; failed where a value is not a finite real number, or a derivative is none below `STEEPEST`.
    """
    if evaluation.status not in ("ok", "sampled"):
        return evaluation
    if evaluation.status == "ok":
        values = _below(math.inf, evaluation.values)
        if values is not None:
            return dataclasses.replace(evaluation, values=values)
        expected, came = "fitness values that are finite real numbers", evaluation.values
    else:
        gradient = _below(STEEPEST, evaluation.gradient)
        if gradient is not None:
            return dataclasses.replace(evaluation, gradient=gradient)
        expected, came = f"derivatives that are real numbers below {STEEPEST:g}", evaluation.gradient
    error = f"ValueError: Expected {expected}, but got {came!r:.80}."
    return dataclasses.replace(evaluation, values=(), gradient=(), status="failed", error=error)


def _below(most: float, numbers: Any) -> tuple[float, ...] | None:
    """Return numbers as floats; ``None`` where there are none, or one is not real or not below a limit."""
    try:
        floats = tuple(float(number) for number in numbers)
    except (TypeError, ValueError, OverflowError):
        return None
    return floats if floats and all(abs(number) < most for number in floats) else None


def _real(value: Any) -> float:
    """Return a number of a JSON file as float."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{value!r:.40} is not a number")
    return float(value)


def _count(value: Any) -> int:
    """Return a number of a JSON file that counts something."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise TypeError(f"{value!r:.40} is not a whole number from 0")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is not text")
    return value
