"""EvalResults: the result of an evaluation as a file, checked in every field when it is read."""

from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from lpes_evo.problems import is_folder
from lpes_evo.storage import Record


class Difference(Record):
    """An arm against the untouched model on the same examples.

    Attributes:
        value: Score of the arm minus score of the untouched model.
        low: Lower limit of the 95 % interval.
        high: Upper limit.
        p_value: Probability of a difference at least as large where the arms are alike.
        test: Name of the test.
        n: Number of examples that both answered.
    """

    value: float
    low: float
    high: float
    p_value: float
    test: str
    n: int


class Row(Record):
    """A score over several examples.

    Attributes:
        position: Gold position from 0 to 1; ``None`` for all examples.
        n: Number of examples.
        score: The headline score of the task.
        low: Lower limit of the 95 % interval.
        high: Upper limit.
        interval: Name of the method that made the interval.
        difference: Against the untouched model; ``None`` for that one itself.
    """

    position: float | None
    n: int
    score: float
    low: float
    high: float
    interval: str
    difference: Difference | None


class ArmResult(Record):
    """The result of one arm on one task.

    Attributes:
        overall: Over all examples.
        positions: By gold position, where the task has positions.
        n_failed: Examples without an answer.
        n_in_smaller_batches: Examples answered in smaller batches than planned, as where memory was short; in half
            precision that can change a score.
    """

    overall: Row
    positions: list[Row]
    n_failed: int
    n_in_smaller_batches: int


class TaskResult(Record):
    """The outcome of one task.

    Attributes:
        name: Name of the task.
        metric: Name of the score.
        larger_is_better: Whether a larger score is a better one.
        mode: The way in which the examples were answered.
        data: SHA-256 of the examples that were asked.
        n_examples: Number of them.
        n_sources: Number of independent materials they are made of.
        n_skipped: Examples left out because they are too long.
        n_cut: Examples whose document was cut.
        n_gold_lost: Examples among them that lost a part of the needed fact.
        n_with_unknown: Examples with text that the tokenizer does not know.
        notes: Notes for the reader of the scores, one line each.
        arms: Results by name of the arm.
    """

    name: str
    metric: str
    larger_is_better: bool
    mode: str
    data: str
    n_examples: int
    n_sources: int
    n_skipped: int
    n_cut: int
    n_gold_lost: int
    n_with_unknown: int
    notes: list[str]
    arms: dict[str, ArmResult]


class EvalResults(Record):
    """The outcome of an evaluation.

    Attributes:
        format: Name of the format.
        version: Version of the format.
        model: The model.
        facts: Facts about the model and the way in which it ran.
        arms: The record of each arm, by name.
        notes: Notes for the reader, one line each.
        tasks: Results of the tasks.
        missing: The reason why a task has no result, by its name.
        command: The command that made the result.
    """

    CHECKED: ClassVar[bool] = True

    WHAT: ClassVar[str] = "the results of an evaluation"
    SOUGHT: ClassVar[str] = "a finished evaluation with"
    MISSING: ClassVar[str] = "Finish the evaluation with 'lpes-evo eval --resume'."
    REMEDY: ClassVar[str] = "Write it again with 'lpes-evo eval --resume'."

    format: Literal["lpes-evo/eval"] = "lpes-evo/eval"
    version: Literal[1] = 1
    model: str
    facts: dict[str, Any]
    arms: dict[str, dict[str, Any]]
    notes: list[str]
    tasks: list[TaskResult]
    missing: dict[str, str] = Field(default_factory=dict)
    command: str


def save_results(path: Path, results: EvalResults) -> None:
    """Write ``results.json``.

    Raises:
        StorageError: The file cannot be written.
    """
    results.save(path)


def load_results(path: Path) -> EvalResults:
    """Read ``results.json``.

    Args:
        path: The file, or the folder of a finished evaluation that holds it.

    Returns:
        The results.

    Raises:
        JournalError: The file is missing or malformed.
    """
    file = path / "results.json" if is_folder(path) else path
    return EvalResults.load(file)
