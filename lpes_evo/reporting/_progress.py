"""What a run tells its user while it works: a live bar in a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from lpes_evo.problems import AnswerScores
from lpes_evo.reporting._consoles import say
from lpes_evo.reporting._numbers import duration
from lpes_evo.search import Evaluation
from lpes_evo.user_code import error_text


class Reporter:
    """Says nothing; the base of the reporters, and the choice of callers who want silence.

    Subclass it and override what you want to hear of, for example to log a line per generation elsewhere.
    """

    def stage(self, text: str) -> None:
        """Take note that another part of the work begins."""

    def begin(self, n_expected: int) -> None:
        """Take note that a search of at most ``n_expected`` evaluations begins."""

    def evaluated(self, generation: int, evaluation: Evaluation, best: float | None, *, fresh: bool) -> None:
        """Take note of a finished evaluation; ``fresh`` is false when it came from the journal."""

    def generation(self, record: dict[str, Any]) -> None:
        """Take note of a finished generation, a record of the search's logbook."""

    def measured(self, name: str, scores: AnswerScores) -> None:
        """Take note of a measurement on held-out examples."""

    def end(self) -> None:
        """Take note that the work has ended, also after an error."""


class PlainReporter(Reporter):
    """Prints a line for each stage, generation and measurement.

    Args:
        console: Where to print.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._n_expected = 0
        self._n_done = 0
        self._n_fresh = 0
        self._best: float | None = None
        self._start = time.perf_counter()

    def stage(self, text: str) -> None:
        """Print the text."""
        say(text, self._console)

    def begin(self, n_expected: int) -> None:
        """Start the clock."""
        self._n_expected = n_expected
        self._n_done = self._n_fresh = 0
        self._start = time.perf_counter()

    def evaluated(self, generation: int, evaluation: Evaluation, best: float | None, *, fresh: bool) -> None:
        """Count the evaluation, and print it where it failed or needed smaller batches."""
        self._best = best
        self._n_done += 1
        self._n_fresh += fresh
        if evaluation.error is not None:
            reason = evaluation.error.strip().splitlines()[-1]
            self.stage(f"generation {generation}: an evaluation failed: {reason}")
        if fresh and evaluation.halvings:
            self.stage(
                f"generation {generation}: the device ran out of memory, and an evaluation took "
                f"1/{2**evaluation.halvings} of the batch; in half precision it is not exactly comparable"
            )

    def generation(self, record: dict[str, Any]) -> None:
        """Print the generation."""
        best = "-" if record["best"] is None else f"{record['best']:.4f}"
        self.stage(
            f"generation {record['generation']:3d}  best {best}  evaluations {record['evaluations']} "
            f"(raced out {record['raced']}, cached {record['cached']}, failed {record['failed']})  {self._speed()}"
        )

    def measured(self, name: str, scores: AnswerScores) -> None:
        """Print the accuracy."""
        self.stage(f"held-out accuracy of {name}: {scores.correct.mean():.3f} (n = {len(scores.correct)})")

    def _speed(self) -> str:
        """Return evaluations per minute and time left, from fresh evaluations alone."""
        if not self._n_fresh:
            return ""
        per_second = self._n_fresh / max(time.perf_counter() - self._start, 1e-9)
        left = max(self._n_expected - self._n_done, 0) / per_second
        return f"{60 * per_second:.1f} evaluations/min  {duration(left)} left"


class LiveReporter(PlainReporter):
    """Shows a progress bar below the plain lines of stages.

    Args:
        console: A terminal.
    """

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._progress = Progress(
            TextColumn("generation {task.fields[generation]}"),
            BarColumn(),
            TextColumn(
                "{task.completed}/{task.total} evaluations  best {task.fields[best]}  {task.fields[speed]}"
            ),
            console=console,
        )

    def begin(self, n_expected: int) -> None:
        """Show the bar."""
        super().begin(n_expected)
        self._task = self._progress.add_task("search", total=n_expected, generation=0, best="-", speed="")
        self._progress.start()

    def evaluated(self, generation: int, evaluation: Evaluation, best: float | None, *, fresh: bool) -> None:
        """Move the bar."""
        super().evaluated(generation, evaluation, best, fresh=fresh)
        shown = "-" if self._best is None else f"{self._best:.4f}"
        self._progress.update(
            self._task, completed=self._n_done, generation=generation, best=shown, speed=self._speed()
        )

    def generation(self, record: dict[str, Any]) -> None:
        """Print nothing: the bar says it all."""

    def end(self) -> None:
        """Leave the bar as it stands."""
        self._progress.stop()


class SeveralReporters(Reporter):
    """Tells several reporters; those of a user that fail are named once and told no more.

    A search of hours must not end because the server of a dashboard does not answer.

    Args:
        first: Our own reporter, which hears of the failures of the others.
        others: Reporters of a user, by what messages call them.
    """

    def __init__(self, first: Reporter, others: Mapping[str, Reporter]) -> None:
        self._first = first
        self._others = dict(others)

    def stage(self, text: str) -> None:
        """Tell all."""
        self._first.stage(text)
        self._tell(lambda reporter: reporter.stage(text))

    def begin(self, n_expected: int) -> None:
        """Tell all."""
        self._first.begin(n_expected)
        self._tell(lambda reporter: reporter.begin(n_expected))

    def evaluated(self, generation: int, evaluation: Evaluation, best: float | None, *, fresh: bool) -> None:
        """Tell all."""
        self._first.evaluated(generation, evaluation, best, fresh=fresh)
        self._tell(lambda reporter: reporter.evaluated(generation, evaluation, best, fresh=fresh))

    def generation(self, record: dict[str, Any]) -> None:
        """Tell all; each gets a record of its own."""
        self._first.generation(record)
        self._tell(lambda reporter: reporter.generation(dict(record)))

    def measured(self, name: str, scores: AnswerScores) -> None:
        """Tell all."""
        self._first.measured(name, scores)
        self._tell(lambda reporter: reporter.measured(name, scores))

    def end(self) -> None:
        """Tell all."""
        self._first.end()
        self._tell(lambda reporter: reporter.end())

    def _tell(self, call: Callable[[Reporter], None]) -> None:
        for name, reporter in list(self._others.items()):
            try:
                call(reporter)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # the code of a user can raise anything
                del self._others[name]
                self._first.stage(f"The reporter {name} is switched off, since it raised {error_text(error)}")


def make_reporter(console: Console) -> Reporter:
    """Return the reporter that suits the console: live in a terminal, plain elsewhere."""
    return LiveReporter(console) if console.is_terminal else PlainReporter(console)
