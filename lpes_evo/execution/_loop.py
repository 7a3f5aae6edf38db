"""The loop of a search: ask, evaluate, keep in a journal, tell."""

import itertools
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, NoReturn

from pydantic import Field

from lpes_evo.errors import ConfigError, EvaluationError, JournalError
from lpes_evo.execution._evaluator import Evaluator
from lpes_evo.operators import BezierGenome
from lpes_evo.reporting import Reporter
from lpes_evo.search import Evaluation, EvaluationRecord, GradientProbe, Search
from lpes_evo.storage import Journal

JOURNAL_FORMAT = "lpes-evo/journal"
"""The ``format`` in the header of the journal of a search."""

UNTOUCHED_KEY = "untouched"
"""The key of the line that holds the scores of the untouched model in units of their tasks; no genome has it."""


Coordinate = Annotated[float, Field(ge=-1e6, le=1e6)]
"""A layer or a scale; larger numbers draw no curve."""


class SearchLine(EvaluationRecord):
    """A line of the journal of a search.

    Attributes:
        key: The key of the genome or probe; another key for a failure that answers no later question.
        control_points: The control points as (layer, scale).
    """

    WHAT: ClassVar[str] = "a line of the journal of a search"

    key: str
    control_points: Annotated[tuple[tuple[Coordinate, Coordinate], ...], Field(min_length=1)]

    @classmethod
    def read(cls, record: dict[str, Any], path: Path) -> "SearchLine":
        """Check a record of a journal.

        Args:
            record: The record.
            path: The journal that holds it, for messages.

        Returns:
            The line.

        Raises:
            JournalError: The record is no valid evaluation of a curve; the message names file and key.
        """
        return cls.of(record, f"the line of key {str(record.get('key'))[:80]!r} in {path}")


def drive(
    search: Search, evaluator: Evaluator, journal: Journal | None = None, reporter: Reporter | None = None
) -> None:
    """Ask, evaluate and tell until the search stops.

    Candidates go to workers as these become free, and each evaluation is kept in the journal as soon as it is
    finished. The search is told in the order in which it asked.

    For a mixture of tasks, the untouched model is measured before everything else. Its scores are the first line of the
    journal, so that a resumed run measures gains over the same scores to the last digit.

    A failure is told once a later candidate has succeeded, or once nothing else is on its way. It is kept as the
    answer to its genome once a later candidate of its kind has succeeded, or once the search has ended; gradients are
    one kind, full evaluations the other. Failures that stop the run are kept beside the others and answer nothing, so
    that a resumed run, its cause mended, tries these candidates again.

    Args:
        search: The search.
        evaluator: Evaluates what the search asks for.
        journal: Answers what is known already, and keeps new evaluations.
        reporter: Is told of every evaluation and generation.

    Raises:
        ConfigError: Search and evaluator have different spaces.
        EvaluationError: ``max_failures`` evaluations of a kind failed in a row, in the order in which they were asked
            for; or all of a generation without a survivor failed, or every gradient of the search; or the untouched
            model could not be scored and a mixture needs its scores.
        TaskError: The untouched model gives a task of a mixture no unit.
        JournalError: The journal holds an evaluation that is not valid.
        StorageError: The journal cannot be written.
    """
    if search.space != evaluator.space:
        raise ConfigError(
            f"Expected search and evaluator to have one space, but got {search.space} and {evaluator.space}. Make both "
            "with the same one."
        )
    _Drive(search, evaluator, journal, reporter if reporter is not None else Reporter()).run()


@dataclass
class _Entry:
    """A genome or a probe that the search asked for, until the search is told its evaluation.

    Attributes:
        request: The genome or the probe.
        generation: The generation it counts for.
        evaluation: The evaluation; ``None`` while it is on its way.
        is_kept: Whether the evaluation is in the journal.
    """

    request: BezierGenome | GradientProbe
    generation: int
    evaluation: Evaluation | None = None
    is_kept: bool = False

    @property
    def has_failed(self) -> bool:
        """Whether the evaluation is a failure."""
        return self.evaluation is not None and self.evaluation.status == "failed"

    @property
    def is_probe(self) -> bool:
        """Whether a gradient is wanted."""
        return isinstance(self.request, GradientProbe)

    @property
    def control_points(self) -> list[list[float]]:
        """The control points of the genome, or the corners of the curve of the probe, as a journal has them."""
        request = self.request
        points = request.control_points if isinstance(request, GradientProbe) else request
        return [list(point) for point in points]


class _Drive:
    """The state of the loop.

    Args:
        search: The search.
        evaluator: Evaluates what the search asks for.
        journal: Answers what is known already, and keeps new evaluations.
        reporter: Is told of every evaluation and generation.
    """

    def __init__(
        self, search: Search, evaluator: Evaluator, journal: Journal | None, reporter: Reporter
    ) -> None:
        self._search = search
        self._evaluator = evaluator
        self._journal = journal
        self._reporter = reporter

        # What the search asked for and was not told yet, oldest first; and what of it is at the evaluator, by group.
        self._line: deque[_Entry] = deque()
        self._groups: dict[int, list[_Entry]] = {}
        self._n_asked = 0
        self._n_logged = 0

        # The failures that the search was told since the last success of their kind, by whether they are probes.
        self._failed: dict[bool, list[_Entry]] = {False: [], True: []}
        self._has_gradients = False
        self._best: tuple[float, float] | None = None

    def run(self) -> None:
        """Run to the end of the search."""
        if not self._evaluator.rule.is_ready:
            self._evaluator.relate(self._untouched())
        self._reporter.begin(self._search.settings.max_evaluations)
        while True:
            self._ask()
            if self._groups:
                self._collect()
            self._tell()

            if not self._line and not self._search.can_ask():
                self._end()
                return

    def _untouched(self) -> tuple[float, ...]:
        """Return the scores of the untouched model out of the journal, or measure and keep them.

        Raises:
            EvaluationError: The untouched model cannot be scored.
            JournalError: The line of the journal does not fit the problem.
        """
        record = self._journal.get(UNTOUCHED_KEY) if self._journal is not None else None
        n_examples = len(self._evaluator.facts.example_ids)
        if self._journal is not None and record is not None:
            evaluation = SearchLine.read(record, self._journal.path).evaluation
            if len(evaluation.scores) != n_examples:
                raise JournalError(
                    f"Expected scores of the {n_examples} examples under key {UNTOUCHED_KEY!r} in "
                    f"{self._journal.path}, but got {len(evaluation.scores)}. The journal was edited; restore it or "
                    "start a new run."
                )
            return evaluation.scores

        evaluation = self._evaluator.measure_untouched()
        if evaluation.status != "ok":
            raise EvaluationError(
                "Expected scores of the untouched model, over which a mixture measures gains, but it failed with: "
                f"{_reason(evaluation.error or '')}. Its traceback:\n{(evaluation.error or '').strip()}"
            )
        if self._journal is not None:
            points = [[0.0, 1.0], [float(max(1, self._search.space.n_layers - 1)), 1.0]]
            self._journal.append(UNTOUCHED_KEY, {"control_points": points, **evaluation.to_json()})
        return evaluation.scores

    def _ask(self) -> None:
        """Take all that the search asks for by now; what is known is answered at once."""
        # Which candidates are given at once may depend on what is finished; then each has passes of its own.
        size = self._evaluator.n_candidates if self._search.algorithm.in_flight is None else 1
        while self._search.can_ask():
            requests = self._search.ask(size)
            reference = self._search.reference()
            entries = [_Entry(request, self._search.generation) for request in requests]
            self._line.extend(entries)

            together = 1 if entries and entries[0].is_probe else size
            for start in range(0, len(entries), together):
                self._begin(entries[start : start + together], reference)
            self._tell()

    def _begin(self, entries: list[_Entry], reference: tuple[float, ...] | None) -> None:
        """Send a group to the evaluator unless the journal knows all of it.

        A group that is known in part is scored whole, so that its forward passes have the shape they always had.
        """
        first, self._n_asked = self._n_asked, self._n_asked + len(entries)
        known = [self._recorded(entry) for entry in entries]
        for entry, evaluation in zip(entries, known, strict=True):
            if evaluation is not None:
                self._take(entry, evaluation, fresh=False)

        if None in known:
            labels = [f"candidate {first + index}" for index in range(len(entries))]
            number = self._evaluator.submit([entry.request for entry in entries], reference, labels)
            self._groups[number] = entries

    def _collect(self) -> None:
        """Wait for a group and keep what is new of it."""
        number, evaluations = self._evaluator.wait()
        for entry, evaluation in zip(self._groups.pop(number), evaluations, strict=True):
            if entry.evaluation is None:
                self._take(entry, evaluation, fresh=True)

    def _take(self, entry: _Entry, evaluation: Evaluation, *, fresh: bool) -> None:
        """Take an evaluation, fresh or out of the journal; a failure is kept only once it is final."""
        entry.evaluation, entry.is_kept = evaluation, not fresh
        if evaluation.status == "ok":
            standing = evaluation.standing
            self._best = standing if self._best is None else max(standing, self._best)
        best = None if self._best is None else self._best[1]
        self._reporter.evaluated(entry.generation, evaluation, best, fresh=fresh)

        if not entry.has_failed:
            self._keep(entry, entry.request.key)

    def _tell(self) -> None:
        """Tell the search what is finished, in the order it asked; failures only once they are final."""
        while self._line and self._line[0].evaluation is not None:
            failed = list(itertools.takewhile(lambda entry: entry.has_failed, self._line))
            if failed and not self._are_final(failed):
                break

            observed = failed or [self._line[0]]
            kind = observed[0].is_probe
            if failed:
                self._failed[kind] += failed
            else:
                self._settle(kind)
                self._has_gradients |= kind

            for entry in observed:
                self._line.popleft()
                if entry.evaluation is not None:
                    self._search.tell([entry.evaluation])

        for record in self._search.logbook[self._n_logged :]:
            self._reporter.generation(record)
        self._n_logged = len(self._search.logbook)

    def _are_final(self, failed: Sequence[_Entry]) -> bool:
        """Return whether the failures at the head of the line are final.

        Raises:
            EvaluationError: There is one failure too many, or nothing has succeeded and nothing else is on its way.
        """
        is_idle = not self._groups and not self._search.can_ask()
        n_in_a_row = len(self._failed[failed[0].is_probe]) + len(failed)
        if n_in_a_row >= self._search.settings.max_failures or (is_idle and self._best is None):
            self._give_up(n_in_a_row, failed[-1])
        return is_idle or (len(failed) < len(self._line) and self._line[len(failed)].evaluation is not None)

    def _settle(self, kind: bool) -> None:
        """Keep the failures of a kind as the answers to their genomes."""
        for entry in self._failed[kind]:
            self._keep(entry, entry.request.key)
        self._failed[kind] = []

    def _end(self) -> None:
        """Keep the last failures.

        Raises:
            EvaluationError: Not one gradient of the search has succeeded, so that its result is that of another search.
        """
        if self._failed[True] and not self._has_gradients:
            self._give_up(len(self._failed[True]), self._failed[True][-1])
        for kind in (False, True):
            self._settle(kind)

    def _give_up(self, n_in_a_row: int, last: _Entry) -> NoReturn:
        """Keep the open failures under keys that answer nothing, and stop the run.

        Raises:
            EvaluationError: Always.
        """
        for entry in (*self._failed[False], *self._failed[True], *self._line):
            if entry.has_failed:
                number = 0 if self._journal is None else len(self._journal)
                self._keep(entry, f"failed {number}: {entry.request.key}")

        traceback = (last.evaluation.error if last.evaluation is not None else None) or ""
        where = (
            f"Its traceback:\n{traceback.strip()}"
            if self._journal is None
            else "Their tracebacks are in the journal; mend the cause and go on with --resume."
        )
        raise EvaluationError(
            f"Expected evaluations to succeed, but {n_in_a_row} in a row failed, the last with: "
            f"{_reason(traceback)}. {where}"
        )

    def _keep(self, entry: _Entry, key: str) -> None:
        """Write an evaluation to the journal, unless it is there."""
        if self._journal is not None and entry.evaluation is not None and not entry.is_kept:
            self._journal.append(key, {"control_points": entry.control_points, **entry.evaluation.to_json()})
        entry.is_kept = True

    def _recorded(self, entry: _Entry) -> Evaluation | None:
        """Return the evaluation of a request that is in the journal; ``None`` where there is none.

        Raises:
            JournalError: The journal has an evaluation that does not fit the request.
        """
        record = self._journal.get(entry.request.key) if self._journal is not None else None
        if self._journal is None or record is None:
            return None

        line = SearchLine.read(record, self._journal.path)
        evaluation = line.evaluation
        if [list(point) for point in line.control_points] != entry.control_points:
            raise JournalError(
                f"Expected control points {entry.control_points} under their key in {self._journal.path}, but got "
                f"{list(line.control_points)!r:.80}. The journal was edited; restore it or start a new run."
            )

        n_examples, n_layers = len(self._evaluator.facts.example_ids), self._search.space.n_layers
        if evaluation.status == "ok":
            fits = len(evaluation.scores) == n_examples
        else:
            fits = all(number < n_examples for number in evaluation.scored)
        if not fits:
            raise JournalError(
                f"Expected scores of the {n_examples} examples under key {record['key']!r:.80} in "
                f"{self._journal.path}, but got others. The journal was edited; restore it or start a new run."
            )

        wanted = n_layers if entry.is_probe and evaluation.status != "failed" else 0
        if len(evaluation.gradient) != wanted:
            raise JournalError(
                f"Expected a gradient of {wanted} numbers under key {record['key']!r:.80} in {self._journal.path}, but "
                f"got {len(evaluation.gradient)}. The journal was edited; restore it or start a new run."
            )
        return evaluation


def _reason(traceback: str) -> str:
    """Return the line of a traceback that names the exception; its text can have more lines."""
    *_, last = traceback.strip().split("Traceback (most recent call last):\n")
    named = [line for line in last.splitlines() if line and not line.startswith(" ")]
    return "".join(named[:1]).rstrip(".")
