"""TerminalReporter: the progress of long work, as a live bar in a terminal and as plain lines elsewhere."""

import time
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from lpes_evo.errors import ConfigError
from lpes_evo.problems import AnswerScores
from lpes_evo.reporting._consoles import say
from lpes_evo.reporting._numbers import duration
from lpes_evo.reporting._reporter import Reporter, SeveralReporters
from lpes_evo.search import Evaluation
from lpes_evo.user_code import make_from_file


class TerminalReporter(Reporter):
    """Prints a line for each stage and measurement, and shows how far the work is.

    In a terminal, a bar below the lines shows the progress. Elsewhere there is a line for each generation of a search
    and for each tenth of the answers of an evaluation.

    Args:
        console: Where to print.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar: Progress | None = None
        self._count_from_zero(0)

    def stage(self, text: str) -> None:
        """Print the line."""
        say(text, self._console)

    def begin(self, n_expected: int) -> None:
        """Start the clock, and show the bar where there is a terminal."""
        self.end()
        self._count_from_zero(n_expected)

        if self._console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TextColumn("{task.fields[state]}", markup=False),
                console=self._console,
            )
            self._task = self._bar.add_task("", total=n_expected, state=f"0/{n_expected}")
            self._bar.start()

    def evaluated(self, generation: int, evaluation: Evaluation, best: float | None, *, fresh: bool) -> None:
        """Count the evaluation, and print a line where it failed or needed smaller batches."""
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

        state = f"{self._n_done}/{self._n_expected} evaluations  best {_fitness(best)}  {self._speed()}"
        self._move_bar(f"generation {generation}", state)

    def generation(self, record: dict[str, Any]) -> None:
        """Print the generation where no bar shows it."""
        if self._bar is None:
            self.stage(
                f"generation {record['generation']:3d}  best {_fitness(record['best'])}  "
                f"evaluations {record['evaluations']} (raced out {record['raced']}, cached {record['cached']}, "
                f"failed {record['failed']})  {self._speed()}"
            )

    def measured(self, name: str, scores: AnswerScores) -> None:
        """Print the accuracy, or the score of the task, and the log-probability."""
        what, values = ("accuracy", scores.correct) if scores.score is None else ("score", scores.score)
        self.stage(
            f"held-out {what} of {name}: {values.mean():.3f}, {scores.log_probability.mean():.3f} nats per token "
            f"(n = {len(values)})"
        )

    def answered(self, task: str, n_answers: int, n_failed: int) -> None:
        """Count the answers, and print a line where another tenth is done and no bar shows it."""
        tenths = 10 * self._n_done // max(self._n_expected, 1)
        self._n_done += n_answers + n_failed
        self._n_fresh = self._n_done
        self._n_failed += n_failed

        failed = f", {self._n_failed} failed" if self._n_failed else ""
        state = f"{self._n_done}/{self._n_expected} answers{failed}  {self._time_left()} left"
        self._move_bar(task, state)
        if self._bar is None and 10 * self._n_done // max(self._n_expected, 1) > tenths:
            self.stage(f"{task}: {state}")

    def end(self) -> None:
        """Leave the bar as it stands."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _count_from_zero(self, n_expected: int) -> None:
        """Start the clock, with a number of evaluations or answers to come."""
        self._n_expected = n_expected
        self._n_done = self._n_fresh = self._n_failed = 0
        self._start = time.perf_counter()

    def _move_bar(self, description: str, state: str) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=self._n_done, description=description, state=state)

    def _speed(self) -> str:
        """Return evaluations per minute and the time left; nothing before the first fresh evaluation."""
        if not self._n_fresh:
            return ""
        per_minute = 60 * self._n_fresh / self._elapsed()
        return f"{per_minute:.1f} evaluations/min  {self._time_left()} left"

    def _time_left(self) -> str:
        """Return the expected time for the rest, from what was not in the journal."""
        n_left = max(self._n_expected - self._n_done, 0)
        return duration(self._elapsed() / max(self._n_fresh, 1) * n_left)

    def _elapsed(self) -> float:
        return max(time.perf_counter() - self._start, 1e-9)


def make_reporter(console: Console, specs: Sequence[str] = ()) -> Reporter:
    """Return the reporter of a command, which also passes events on to reporters of the user.

    Args:
        console: Where our own reporter prints.
        specs: Reporters of the user as ``FILE.py:CLASS``.

    Returns:
        The reporter.

    Raises:
        ConfigError: A file is missing, has no such subclass of `Reporter`, or its code failed.
    """
    ours = TerminalReporter(console)
    own = {spec: make_from_file(spec, Reporter, ConfigError) for spec in specs}
    return SeveralReporters(ours, own) if own else ours


def _fitness(best: float | None) -> str:
    return "-" if best is None else f"{best:.4f}"
