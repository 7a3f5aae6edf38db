"""Reporter: the events of searches and evaluations, for whoever wants to hear of them."""

from collections.abc import Callable, Mapping
from typing import Any

from lpes_evo.problems import AnswerScores
from lpes_evo.search import Evaluation
from lpes_evo.user_code import error_text


class Reporter:
    """The base of all reporters, and the choice of callers who want silence: every method does nothing.

    A subclass overrides the methods of the events that it wants to hear of, for example to log a line for each
    generation elsewhere.
    """

    def stage(self, text: str) -> None:
        """Hear that another part of the work begins, or something that a user must know.

        Args:
            text: A line for people.
        """

    def begin(self, n_expected: int) -> None:
        """Hear that a search or an evaluation of models begins.

        Args:
            n_expected: The most evaluations of the search, or the number of answers that are missing.
        """

    def evaluated(self, generation: int, evaluation: Evaluation, best: float | None, *, fresh: bool) -> None:
        """Hear of a finished evaluation of a search.

        Args:
            generation: Number of the generation.
            evaluation: The evaluation.
            best: The best fitness so far; ``None`` before the first success.
            fresh: Whether the evaluation was made now; ``False`` where it came from the journal.
        """

    def generation(self, record: dict[str, Any]) -> None:
        """Hear of a finished generation of a search.

        Args:
            record: The record of the search's logbook.
        """

    def measured(self, name: str, scores: AnswerScores) -> None:
        """Hear of a measurement on held-out examples.

        Args:
            name: Name of the scales that were measured.
            scores: The scores.
        """

    def answered(self, task: str, n_answers: int, n_failed: int) -> None:
        """Hear of finished answers of an evaluation of models.

        Args:
            task: Name of the task.
            n_answers: Number of new answers.
            n_failed: Number of examples that gave no answer.
        """

    def end(self) -> None:
        """Hear that the work has ended, also after an error."""


class SeveralReporters(Reporter):
    """Passes every event on to several reporters.

    A reporter of a user that raises is named once and told no more, since a search of hours must not end because the
    server of a dashboard does not answer.

    Args:
        first: The reporter that hears of the failures of the others; its own errors are raised.
        others: Reporters of a user, by what messages call them.
    """

    def __init__(self, first: Reporter, others: Mapping[str, Reporter]) -> None:
        self._first = first
        self._others = dict(others)

    def stage(self, text: str) -> None:
        """Pass the line on."""
        self._tell(lambda reporter: reporter.stage(text))

    def begin(self, n_expected: int) -> None:
        """Pass the number on."""
        self._tell(lambda reporter: reporter.begin(n_expected))

    def evaluated(self, generation: int, evaluation: Evaluation, best: float | None, *, fresh: bool) -> None:
        """Pass the evaluation on."""
        self._tell(lambda reporter: reporter.evaluated(generation, evaluation, best, fresh=fresh))

    def generation(self, record: dict[str, Any]) -> None:
        """Pass the record on; each reporter gets a copy of its own."""
        self._tell(lambda reporter: reporter.generation(dict(record)))

    def measured(self, name: str, scores: AnswerScores) -> None:
        """Pass the measurement on."""
        self._tell(lambda reporter: reporter.measured(name, scores))

    def answered(self, task: str, n_answers: int, n_failed: int) -> None:
        """Pass the numbers on."""
        self._tell(lambda reporter: reporter.answered(task, n_answers, n_failed))

    def end(self) -> None:
        """Pass the end on."""
        self._tell(lambda reporter: reporter.end())

    def _tell(self, event: Callable[[Reporter], None]) -> None:
        """Tell the first reporter, then all others that have not failed yet."""
        event(self._first)

        for name, reporter in list(self._others.items()):
            try:
                event(reporter)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # the code of a user can raise anything
                del self._others[name]
                self._first.stage(f"The reporter {name} is switched off, since it raised {error_text(error)}")
