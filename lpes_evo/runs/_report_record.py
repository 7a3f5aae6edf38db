"""Records of a measurement on held-out examples: the file ``report.json``, and the lines of ``report.jsonl``."""

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from lpes_evo.runs._outcome import Outcome
from lpes_evo.storage import Record

REPORT_JOURNAL_FORMAT = "lpes-evo/report-journal"
"""The format that the header of the journal of the measurement names."""

UNTOUCHED, CONSTANT, LPES = "untouched", "constant", "lpes"


class _PositionRow(Record):
    """Scores of one method at one gold position; ``accuracy`` is the number that ``measure`` names."""

    position: float
    n: PositiveInt
    accuracy: float
    low: float
    high: float
    log_probability: float


class _MethodRow(Record):
    """Scores of one method over all positions; ``accuracy`` is the number that ``measure`` names."""

    scales: Annotated[tuple[float, ...], Field(min_length=1)]
    n: PositiveInt
    accuracy: float
    low: float
    high: float
    log_probability: float
    positions: tuple[_PositionRow, ...]


class _DifferenceRow(Record):
    """LPES against another method on the same examples."""

    difference: float
    low: float
    high: float


class _TaskMethodRow(Record):
    """Scores of one method on the held-out examples of one task; known texts have no accuracy."""

    accuracy: float | None = None
    low: float | None = None
    high: float | None = None
    log_probability: float


class _TaskDifferenceRow(Record):
    """LPES against another method on the examples of one task, in accuracy and in nats per token."""

    accuracy: _DifferenceRow | None = None
    log_probability: _DifferenceRow


class _TaskRow(Record):
    """The measurement on one task of a mixture, or on one guard.

    ``weight`` is that of a searched task, and ``tolerance`` that of a guard, in nats per token.
    """

    n: PositiveInt
    weight: float | None = None
    tolerance: float | None = None
    methods: dict[str, _TaskMethodRow]
    differences: dict[str, _TaskDifferenceRow]


class _ShufflePosition(Record):
    """Mean accuracy of the shuffles at one gold position."""

    position: float
    accuracy: float


class _Shuffles(Record):
    """Random orders of the found scales."""

    n_shuffles: PositiveInt
    median_accuracy: float
    least_accuracy: float
    largest_accuracy: float
    accuracies: tuple[float, ...]
    positions: tuple[_ShufflePosition, ...]


class _SmallerBatches(Record):
    """Scores that come from smaller batches than the rest, see `smaller_batches`."""

    n_candidates: NonNegativeInt
    best: bool
    methods: tuple[str, ...]


class Report(Record):
    """The measurement of a run on held-out examples: the file ``report.json``.

    Attributes:
        format: Name of the format.
        version: Version of the format.
        methods: Scores by name of the method.
        differences: LPES against every other method.
        shuffles: Random orders of the found scales, where they were measured.
        measure: Name of the number that stands under ``accuracy``; files of version 0.1 hold accuracies alone.
        tasks: Scores by task, where there are several tasks or guards; the searched tasks alone are in ``methods``.
        model: Name of the model.
        task: Name of the task.
        data: SHA-256 of the held-out examples.
        skipped: Examples that are longer than the window.
        smaller_batches: Scores that come from smaller batches than the rest.
        outcome: What the search found beside the untouched model, where that is known.
        command: The command that made the report.
    """

    CHECKED: ClassVar[bool] = True

    WHAT: ClassVar[str] = "a whole report"
    SOUGHT: ClassVar[str] = "a finished run with"
    MISSING: ClassVar[str] = "Finish the run with 'lpes-evo search --resume'."
    REMEDY: ClassVar[str] = "Write it again with 'lpes-evo search --resume'."

    format: Literal["lpes-evo/report"] = "lpes-evo/report"
    version: Literal[1] = 1
    methods: dict[str, _MethodRow]
    differences: dict[str, _DifferenceRow]
    shuffles: _Shuffles | None = None
    measure: str = "accuracy"
    tasks: dict[str, _TaskRow] | None = None
    model: str | None = None
    task: str | None = None
    data: str | None = None
    skipped: NonNegativeInt | None = None
    smaller_batches: _SmallerBatches | None = None
    outcome: Outcome | None = None
    command: str | None = None

    @model_validator(mode="after")
    def _parts_agree(self) -> "Report":
        missing = {UNTOUCHED, LPES} - self.methods.keys()
        if missing:
            raise ValueError(f"the method {min(missing)!r} is missing")

        lists = {name: [row.position for row in method.positions] for name, method in self.methods.items()}
        if self.shuffles is not None:
            lists["shuffles"] = [row.position for row in self.shuffles.positions]
        for name, positions in lists.items():
            if positions != lists[LPES]:
                raise ValueError(f"{name!r} has the positions {positions} and {LPES!r} has {lists[LPES]}")

        unknown = self.differences.keys() - self.methods.keys()
        if unknown:
            raise ValueError(f"a difference names the method {min(unknown)!r}, which was not measured")
        return self


class MeasuredLine(Record):
    """A line of ``report.jsonl``: the scores of one vector of scales on the held-out examples.

    Attributes:
        key: Name of the vector.
        scales: The vector, ``(n_layers,)``.
        log_probability: Log-probability of each answer in nats per token, ``(n_examples,)``.
        correct: 1 for each right answer, else 0, ``(n_examples,)``.
        score: What the task makes of each output, ``(n_examples,)``; ``None`` where nothing was generated.
        halvings: Number of times that the batch was halved for want of memory.
    """

    WHAT: ClassVar[str] = "the scores of a vector of scales"
    REMEDY: ClassVar[str] = "The file was edited; move it away and run again with --resume."

    key: str
    scales: tuple[float, ...]
    log_probability: tuple[float, ...]
    correct: tuple[Annotated[int, Field(ge=0, le=1)], ...]
    score: tuple[float, ...] | None = None
    halvings: NonNegativeInt = 0


def save_report(path: Path, summary: dict[str, Any]) -> None:
    """Write ``report.json``.

    Args:
        path: The file.
        summary: The values that `summarise` returned, with those that a run adds.

    Raises:
        StorageError: The file cannot be written.
        JournalError: The summary is not whole.
    """
    Report.of(summary, str(path)).save(path)


def load_report(path: Path) -> dict[str, Any]:
    """Read ``report.json``.

    Args:
        path: The file.

    Returns:
        The values that `summarise` returned, with those that a run added.

    Raises:
        JournalError: The file is missing or malformed.
    """
    return Report.load(path).to_json()
