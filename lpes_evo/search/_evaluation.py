"""Evaluation: the outcome of one evaluation, and its record in a journal."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import NonNegativeFloat, NonNegativeInt, model_validator

from lpes_evo.storage import Record

_ALWAYS = ("status", "values", "scores", "seconds")
STEEPEST = 1e100
"""Derivatives are below this, so that their squares are finite."""


@dataclass(frozen=True)
class Evaluation:
    """The outcome of the evaluation of one genome or probe.

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
        violation: How much worse than the untouched model the guards of the search are beyond their tolerance; 0 where
            all are kept, and without guards. An evaluation with a violation loses to every one without.
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
    violation: float = 0.0

    @property
    def standing(self) -> tuple[float, float]:
        """What full evaluations are ranked by, the larger the better: minus the violation, then the mean fitness.

        The order is the rule of Deb, see `lpes_evo.operators.CurveFitness`.

        Raises:
            ValueError: The evaluation has no fitness values.
        """
        if not self.values:
            raise ValueError(
                f"Expected a full evaluation, but got one of status {self.status!r}. Rank those of status 'ok' alone."
            )
        return 0.0 - self.violation, float(np.mean(self.values))

    def to_json(self) -> dict[str, Any]:
        """Return the evaluation as values that `json` can write, without fields that are empty."""
        given = {name: value for name, value in vars(self).items() if value or name in _ALWAYS}
        return EvaluationRecord.of(given, "an evaluation").to_json()

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "Evaluation":
        """Read what `to_json` gave, checking every value.

        Args:
            record: A mapping with the fields of this class.

        Returns:
            The evaluation.

        Raises:
            JournalError: A field is missing, unknown or of a wrong type, a number is not finite, or the fields
                contradict each other.
        """
        return EvaluationRecord.of(record, "an evaluation").evaluation


class EvaluationRecord(Record):
    """The record of an evaluation in a journal; the fields are those of `Evaluation`."""

    WHAT: ClassVar[str] = "an evaluation"
    REMEDY: ClassVar[str] = "The journal was edited; restore it or start a new run."

    status: Literal["ok", "failed", "raced", "sampled"]
    values: tuple[float, ...]
    scores: tuple[float, ...]
    seconds: float
    error: str | None = None
    scored: tuple[NonNegativeInt, ...] = ()
    gradient: tuple[float, ...] = ()
    tokens: NonNegativeInt = 0
    halvings: NonNegativeInt = 0
    violation: NonNegativeFloat = 0.0

    @model_validator(mode="after")
    def _fields_agree(self) -> "EvaluationRecord":
        """Refuse fields that contradict each other.

        Raises:
            ValueError: They do; the message names the fields.
        """
        if (self.status == "ok") != bool(self.values) or (self.status == "sampled") != bool(self.gradient):
            raise ValueError(
                f"status {self.status!r} came with values {list(self.values)} and a gradient of {len(self.gradient)} "
                "numbers, where values belong to 'ok' alone and a gradient to 'sampled' alone"
            )
        if self.violation and self.status != "ok":
            raise ValueError(
                f"a violation of guards came with status {self.status!r}, where it belongs to 'ok' alone"
            )

        n_expected = len(self.scores) if self.status in ("raced", "sampled") else 0
        if len(self.scored) != n_expected or len(set(self.scored)) != n_expected:
            raise ValueError(
                f"a distinct example number belongs to each of {n_expected} scores of status 'raced' or 'sampled', and "
                f"{list(self.scored)!r:.80} came"
            )
        return self

    @property
    def evaluation(self) -> Evaluation:
        """The evaluation."""
        return Evaluation(
            **{field.name: getattr(self, field.name) for field in dataclasses.fields(Evaluation)}
        )


def checked_evaluation(evaluation: Evaluation) -> Evaluation:
    """Return an evaluation whose values are plain finite floats, or a failed one that names the wrong value.

    Args:
        evaluation: An evaluation that may come from code of a user.

    Returns:
        The evaluation; failed where a value or the violation is not a finite real number, or a derivative is not a real
        number below `STEEPEST`.
    """
    if evaluation.status not in ("ok", "sampled"):
        return evaluation

    if evaluation.status == "ok":
        values, violation = _below(math.inf, evaluation.values), _below(math.inf, [evaluation.violation])
        if values is not None and violation is not None and violation[0] >= 0:
            return dataclasses.replace(evaluation, values=values, violation=violation[0])
        expected, came = "fitness values that are finite real numbers", evaluation.values
        if values is not None:
            expected, came = "a violation that is a finite number of at least 0", (evaluation.violation,)
    else:
        gradient = _below(STEEPEST, evaluation.gradient)
        if gradient is not None:
            return dataclasses.replace(evaluation, gradient=gradient)
        expected, came = f"derivatives that are real numbers below {STEEPEST:g}", evaluation.gradient

    error = f"ValueError: Expected {expected}, but got {came!r:.80}."
    return dataclasses.replace(
        evaluation, values=(), gradient=(), violation=0.0, status="failed", error=error
    )


def _below(most: float, numbers: Any) -> tuple[float, ...] | None:
    """Return numbers as floats; ``None`` for no numbers, or where one is not real or not below a limit."""
    try:
        floats = tuple(float(number) for number in numbers)
    except (TypeError, ValueError, OverflowError):
        return None
    return floats if floats and all(abs(number) < most for number in floats) else None
