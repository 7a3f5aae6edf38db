"""The loop of a search: ask, evaluate, keep, tell."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lpes_evo.errors import EvaluationError, JournalError
from lpes_evo.evaluation import Evaluation, Evaluator
from lpes_evo.journal import Journal
from lpes_evo.operators import BezierGenome
from lpes_evo.progress import Reporter
from lpes_evo.search import Search


def drive(
    search: Search, evaluator: Evaluator, journal: Journal | None = None, reporter: Reporter | None = None
) -> None:
    """Ask, evaluate and tell until the search stops.

    Args:
        search: The search.
        evaluator: Evaluates genomes, such as `lpes_evo.evaluation.SerialEvaluator`.
        journal: Answers known genomes and keeps new evaluations.
        reporter: Hears how the work goes.

    Raises:
        EvaluationError: ``max_failures`` evaluations failed in a row, or all of a generation without a survivor. A
            resumed search tries them again.
        JournalError: The journal holds an evaluation that is not valid.
        StorageError: The journal cannot be written.
    """
    reporter = reporter if reporter is not None else Reporter()
    reporter.begin(search.settings.max_evaluations)
    keeper = _Keeper(journal, search.settings.max_failures)
    best: float | None = None
    while not search.stop():
        genomes = search.ask()
        evaluations: dict[int, Evaluation] = {}
        for index, evaluation, fresh in _answers(genomes, evaluator, journal):
            evaluations[index] = evaluation
            if evaluation.status == "ok":
                best = max(float(np.mean(evaluation.values)), -np.inf if best is None else best)
            reporter.evaluated(search.generation, evaluation, best, fresh=fresh)
            keeper.take(genomes[index], evaluation, fresh=fresh)
        if best is None and genomes:
            keeper.give_up()
        keeper.settle()
        search.tell([evaluations[index] for index in range(len(genomes))])
        reporter.generation(search.logbook[-1])


def _answers(
    genomes: Sequence[BezierGenome], evaluator: Evaluator, journal: Journal | None
) -> Iterator[tuple[int, Evaluation, bool]]:
    """Yield ``(index, evaluation, fresh)``: first what the journal knows, then the rest as it is finished."""
    missing = []
    for index, genome in enumerate(genomes):
        record = journal.get(genome.key) if journal is not None else None
        if journal is None or record is None:
            missing.append(index)
        else:
            yield index, _recorded(genome, record, journal.path), False
    for number, evaluation in evaluator([genomes[index] for index in missing]):
        yield missing[number], evaluation, True


def read_evaluation(record: dict[str, Any], path: Path) -> Evaluation:
    """Read the evaluation of a journal line.

    Args:
        record: The line.
        path: The journal it stands in.

    Returns:
        The evaluation.

    Raises:
        JournalError: The line is not a valid evaluation; the message names file and key.
    """
    try:
        return Evaluation.from_json(record)
    except JournalError as error:
        raise JournalError(
            f"In {path}, key {record['key']}: {error} Restore the journal or start a new run."
        ) from error


def _recorded(genome: BezierGenome, record: dict[str, Any], path: Path) -> Evaluation:
    """Read the evaluation of a genome from a journal line."""
    evaluation = read_evaluation(record, path)
    if record.get("control_points") != _points(genome):
        raise JournalError(
            f"Expected control points {_points(genome)} under their key in {path}, but got "
            f"{record.get('control_points')!r:.80}. The journal was edited; restore it or start a new run."
        )
    return evaluation


def _points(genome: BezierGenome) -> list[list[float]]:
    return [list(point) for point in genome]


class _Keeper:
    """Writes evaluations to the journal, and counts failures.

    A failure becomes final once a success follows or its generation ends. Failures that stop the run are written
    beside the others and answer nothing, so that a resumed run, its cause mended, tries them again.
    """

    def __init__(self, journal: Journal | None, max_failures: int) -> None:
        self._journal = journal
        self._max_failures = max_failures
        self._n_in_a_row = 0
        self._open: list[tuple[BezierGenome, Evaluation]] = []
        self._last: Evaluation | None = None

    def take(self, genome: BezierGenome, evaluation: Evaluation, *, fresh: bool) -> None:
        """Keep an evaluation.

        Raises:
            EvaluationError: It is one failure too many.
        """
        if evaluation.status == "ok":
            self.settle()
            self._n_in_a_row = 0
            if fresh:
                self._write(genome.key, genome, evaluation)
            return
        self._n_in_a_row += 1
        self._last = evaluation
        if fresh:
            self._open.append((genome, evaluation))
        if self._n_in_a_row >= self._max_failures:
            self.give_up()

    def settle(self) -> None:
        """Make the open failures final."""
        for genome, evaluation in self._open:
            self._write(genome.key, genome, evaluation)
        self._open.clear()

    def give_up(self) -> None:
        """Write the open failures where they answer nothing, and stop the run.

        Raises:
            EvaluationError: Always.
        """
        for genome, evaluation in self._open:
            number = 0 if self._journal is None else len(self._journal)
            self._write(f"failed {number}: {genome.key}", genome, evaluation)
        traceback = (self._last.error if self._last is not None else None) or ""
        reason = "".join(traceback.strip().splitlines()[-1:]).rstrip(".")
        raise EvaluationError(
            f"Expected evaluations to succeed, but {self._n_in_a_row} in a row failed, the last with: "
            f"{reason}. Their tracebacks are in the journal; mend the cause and "
            "go on with --resume."
        )

    def _write(self, key: str, genome: BezierGenome, evaluation: Evaluation) -> None:
        if self._journal is not None:
            self._journal.append(key, {"control_points": _points(genome), **evaluation.to_json()})
