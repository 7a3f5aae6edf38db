"""Traces: the evaluations of searches from their journals, with fitness against cost and diversity."""

import bisect
import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from lpes_evo.errors import ConfigError, JournalError
from lpes_evo.execution import JOURNAL_FORMAT, UNTOUCHED_KEY, SearchLine
from lpes_evo.operators import CurveSpace
from lpes_evo.search import GradientProbe
from lpes_evo.statistics import column_limits
from lpes_evo.storage import read_journal

FloatArray = npt.NDArray[np.float64]
Axis = Literal["evaluations", "tokens", "seconds"]
Kind = Literal["evaluation", "gradient", "repeated", "untouched"]
"""The kinds of lines of a journal.

``repeated`` is a failure that stopped a run, whose curve comes again. ``untouched`` is the measurement of the untouched
model, over which a mixture of tasks measures gains.
"""

_N_MARKS = 200
# No search costs more; below this bound, sums and the ticks of a picture are exact.
_MOST_COST = 1e15


@dataclass(frozen=True)
class Trace:
    """The evaluations of one search in the order in which they were finished.

    Attributes:
        name: A name, such as that of the file.
        fitness: Mean of the fitness values, ``(n,)``; NaN where an evaluation failed, was raced out or broke a guard.
        tokens: Tokens forwarded up to each evaluation, this one included, ``(n,)``.
        seconds: Time of the workers up to each evaluation, this one included, ``(n,)``.
        points: Control points of each evaluation, ``(n, n_points, 2)``.
    """

    name: str
    fitness: FloatArray
    tokens: FloatArray
    seconds: FloatArray
    points: FloatArray

    def __len__(self) -> int:
        """Return the number of evaluations."""
        return len(self.fitness)

    @property
    def best(self) -> FloatArray:
        """The best fitness so far, ``(n,)``; NaN before the first success."""
        best: FloatArray = np.fmax.accumulate(self.fitness)
        return best

    def first(self, n: int) -> "Trace":
        """Return the trace of the first ``n`` evaluations."""
        cut = {field.name: getattr(self, field.name)[:n] for field in dataclasses.fields(self)[1:]}
        return dataclasses.replace(self, **cut)

    def populations(self, size: int) -> Iterator[list[int]]:
        """Yield the numbers of the best evaluations so far after each evaluation, best first.

        These are the survivors of the algorithms ``ga`` and ``steady-state``. For other algorithms, they are what the
        same rule would keep.

        Args:
            size: The largest number of survivors.
        """
        kept: list[tuple[float, int]] = []
        for number, value in enumerate(self.fitness.tolist()):
            if np.isfinite(value):
                bisect.insort(kept, (-value, number))
                del kept[size:]
            yield [member for _, member in kept]

    def population_median(self, size: int) -> FloatArray:
        """Return the median fitness of the best ``size`` evaluations so far, ``(n,)``; NaN before the first success."""
        medians = [
            float(np.median(self.fitness[members])) if members else np.nan
            for members in self.populations(size)
        ]
        return np.array(medians)

    def diversity(self, space: CurveSpace, size: int) -> FloatArray:
        """Return the diversity of the curves of the best ``size`` evaluations so far, ``(n,)``.

        The distance of two curves is the root mean square over layers of the difference of the logarithms of their
        scales, and the diversity is the mean over pairs: 0.1 means that two curves typically differ by a tenth.

        Args:
            space: The space that decodes the control points.
            size: The largest number of survivors.

        Returns:
            The diversity after each evaluation; 0 while there are fewer than two.

        Raises:
            CurveError: The control points do not fit the space.
        """
        # The import is slow, and the rest of this module does not need it.
        from scipy.spatial.distance import pdist

        logs = np.log(space.decode(self.points))
        result = np.zeros(len(self))
        for number, members in enumerate(self.populations(size)):
            if len(members) > 1:
                result[number] = pdist(logs[members]).mean() / np.sqrt(space.n_layers)
        return result


def read_trace(path: Path, name: str | None = None) -> Trace:
    """Read the journal of a search, also while the search is running; the file is left as it is.

    Args:
        path: The ``journal.jsonl`` of a run, or a journal of a comparison.
        name: The name of the trace; that of the file when ``None``.

    Returns:
        The trace, without evaluations that a later start tried again. A gradient and the measurement of the untouched
        model are no evaluations, but their cost counts for the next evaluation.

    Raises:
        JournalError: The file cannot be read, is no journal of a search, or holds no evaluation.
    """
    fitness, tokens, seconds, points = [], [], [], []
    n_tokens, n_seconds = 0, 0.0
    for kind, line in read_steps(path):
        if kind == "repeated":
            continue

        n_tokens += line.tokens
        n_seconds += line.seconds
        if max(n_tokens, n_seconds) > _MOST_COST:
            raise JournalError(
                f"Expected tokens and seconds of at most {_MOST_COST:g} in all, but {path} goes beyond under key "
                f"{line.key!r:.60}. The journal was edited; restore it."
            )
        if kind != "evaluation":
            continue

        counts = line.status == "ok" and not line.violation
        fitness.append(float(np.mean(line.values)) if counts else np.nan)
        tokens.append(n_tokens)
        seconds.append(n_seconds)
        points.append(line.control_points)

    if not fitness or len({len(genome) for genome in points}) != 1:
        raise JournalError(
            f"Expected {path} to hold evaluations of curves with equally many control points, but it holds "
            f"{len(fitness)} evaluations. Choose the journal of a search that has begun."
        )
    return Trace(
        name or path.stem,
        np.array(fitness),
        tokens=np.array(tokens, dtype=np.float64),
        seconds=np.array(seconds),
        points=np.array(points),
    )


def read_steps(path: Path) -> Iterator[tuple[Kind, SearchLine]]:
    """Yield the lines of the journal of a search, each with its kind.

    Args:
        path: A journal.

    Raises:
        JournalError: The file cannot be read, or a line is not that of the journal of a search.
    """
    for record in read_journal(path, kind=JOURNAL_FORMAT).records.values():
        line = SearchLine.read(record, path)
        kind: Kind = "evaluation"
        if line.status == "failed" and line.key.startswith("failed "):
            kind = "repeated"
        elif line.key.startswith(GradientProbe.KEY_PREFIX):
            kind = "gradient"
        elif line.key == UNTOUCHED_KEY:
            kind = "untouched"
        yield kind, line


@dataclass(frozen=True)
class Band:
    """Values against a cost, with their interval over searches.

    Attributes:
        x: The cost, ``(n_marks,)``.
        mean: Mean over the searches, ``(n_marks,)``; NaN where one of them has no value yet.
        low: Lower limit of the 95 % percentile bootstrap interval over searches, pointwise, ``(n_marks,)``.
        high: Upper limit, ``(n_marks,)``.
        n: Number of searches.
    """

    x: FloatArray
    mean: FloatArray
    low: FloatArray
    high: FloatArray
    n: int


def band(traces: Sequence[Trace], values: Sequence[FloatArray], against: Axis = "evaluations") -> Band:
    """Return mean and interval of one series of several searches, at common values of a cost.

    Args:
        traces: The searches, for example one for each seed.
        values: One value after each evaluation of each search, such as `Trace.best`.
        against: ``evaluations``, ``tokens`` forwarded, or ``seconds`` of the workers.

    Returns:
        Mean and interval over the searches, up to the cost at which the first of them ends.

    Raises:
        ConfigError: There are no searches, or they forwarded no tokens, or ``against`` is unknown.
    """
    if not traces or against not in ("evaluations", "tokens", "seconds"):
        raise ConfigError(
            f"Expected at least one trace and a cost out of evaluations, tokens, seconds, but got {len(traces)} "
            f"traces and {against!r}."
        )

    costs = [_cost(trace, against) for trace in traces]
    end = min(float(cost[-1]) for cost in costs)
    if end <= 0:
        raise ConfigError(
            f"Expected evaluations that cost {against}, but these cost none. Draw them against evaluations."
        )

    # Each series is a step function of the cost, which is read off at common places.
    start = max(float(cost[0]) for cost in costs)
    x = np.arange(1.0, end + 1) if against == "evaluations" else np.linspace(min(start, end), end, _N_MARKS)
    rows = [
        series[np.searchsorted(cost, x, side="right") - 1] for series, cost in zip(values, costs, strict=True)
    ]
    table = np.array(rows)
    low, high = column_limits(table)
    return Band(x, table.mean(axis=0), low, high, len(traces))


def _cost(trace: Trace, against: Axis) -> FloatArray:
    """Return the cost after each evaluation of a search, ``(n,)``."""
    if against == "evaluations":
        return np.arange(1.0, len(trace) + 1)
    return trace.tokens if against == "tokens" else trace.seconds
