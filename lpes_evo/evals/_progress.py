"""What an evaluation tells its user while it works: a live bar in a terminal, plain lines elsewhere."""

import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from lpes_evo.reporting import duration, say


class EvalReporter:
    """Says nothing; the base of the reporters, and the choice of callers who want silence."""

    def stage(self, text: str) -> None:
        """Take note that another part of the work begins, or of something a user must know."""

    def begin(self, n_expected: int) -> None:
        """Take note that ``n_expected`` answers are missing."""

    def answered(self, task: str, n_answers: int, n_failed: int) -> None:
        """Take note of finished answers and of examples without one."""

    def end(self) -> None:
        """Take note that the work has ended, also after an error."""


class PlainEvalReporter(EvalReporter):
    """Prints a line at each tenth of the answers.

    Args:
        console: Where to print.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._n_expected = self._n_done = self._n_failed = 0
        self._start = time.perf_counter()

    def stage(self, text: str) -> None:
        """Print the text."""
        say(text, self._console)

    def begin(self, n_expected: int) -> None:
        """Start the clock."""
        self._n_expected, self._n_done, self._n_failed = n_expected, 0, 0
        self._start = time.perf_counter()

    def answered(self, task: str, n_answers: int, n_failed: int) -> None:
        """Count the answers, and print a line where another tenth is done."""
        tenths = 10 * self._n_done // max(self._n_expected, 1)
        self._n_done += n_answers + n_failed
        self._n_failed += n_failed
        if 10 * self._n_done // max(self._n_expected, 1) > tenths:
            self.stage(f"{task}: {self._state()}")

    def _state(self) -> str:
        """Return how far the work is."""
        elapsed = max(time.perf_counter() - self._start, 1e-9)
        left = elapsed / max(self._n_done, 1) * max(self._n_expected - self._n_done, 0)
        failed = f", {self._n_failed} failed" if self._n_failed else ""
        return f"{self._n_done}/{self._n_expected} answers{failed}  {duration(left)} left"


class LiveEvalReporter(PlainEvalReporter):
    """Shows a progress bar below the lines of stages.

    Args:
        console: A terminal.
    """

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[state]}"),
            console=console,
        )

    def begin(self, n_expected: int) -> None:
        """Show the bar."""
        super().begin(n_expected)
        self._task = self._bar.add_task("evaluation", total=n_expected, state="")
        self._bar.start()

    def answered(self, task: str, n_answers: int, n_failed: int) -> None:
        """Move the bar."""
        self._n_done += n_answers + n_failed
        self._n_failed += n_failed
        self._bar.update(self._task, completed=self._n_done, description=task, state=self._state())

    def end(self) -> None:
        """Leave the bar as it stands."""
        self._bar.stop()


def make_eval_reporter(console: Console) -> EvalReporter:
    """Return the reporter that suits the console: live in a terminal, plain elsewhere."""
    return LiveEvalReporter(console) if console.is_terminal else PlainEvalReporter(console)
