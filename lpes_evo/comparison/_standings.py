"""Standings: the results of contestants after equal numbers of evaluations, compared seed by seed."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from lpes_evo.comparison._traces import Trace
from lpes_evo.errors import ConfigError
from lpes_evo.statistics import mean_interval, paired_difference

# A bootstrap interval over fewer seeds is too narrow. If all n seeds agree, the p-value of a sign test is 2**(1 - n),
# and that of 5 seeds is above 0.05.
_FEWEST_SEEDS = 6


@dataclass(frozen=True)
class Standing:
    """The result of a contestant over seeds, after a number of evaluations that is equal for all contestants.

    Attributes:
        name: The contestant.
        n: Number of seeds.
        mean: Mean over seeds of the best fitness.
        low: Lower limit of its 95 % bootstrap interval.
        high: Upper limit.
        difference: Mean over seeds of its best fitness minus that of the reference with the same seed.
        difference_low: Lower limit of the 95 % paired bootstrap interval.
        difference_high: Upper limit.
        n_ahead: Number of seeds with which it is better than the reference.
        n_behind: Number of seeds with which it is worse.
        n_reached: Number of seeds with which it reached the last fitness of the reference.
        median_cost: Median over seeds of the number of evaluations that it needed to reach that fitness; a seed that
            did not reach it counts with all its evaluations.
    """

    name: str
    n: int
    mean: float
    low: float
    high: float
    difference: float
    difference_low: float
    difference_high: float
    n_ahead: int
    n_behind: int
    n_reached: int
    median_cost: float

    @property
    def verdict(self) -> Literal["better", "worse", "level", "too few seeds"]:
        """The side of 0 on which the interval of the difference lies; fewer than 6 seeds have no verdict."""
        if self.n < _FEWEST_SEEDS:
            return "too few seeds"
        if self.difference_low > 0:
            return "better"
        return "worse" if self.difference_high < 0 else "level"

    def to_json(self) -> dict[str, Any]:
        """Return all values and the verdict."""
        return {**dataclasses.asdict(self), "verdict": self.verdict}


def standings(traces: Mapping[str, Sequence[Trace]], n_evaluations: int, reference: str) -> list[Standing]:
    """Compare searches after equally many evaluations.

    Args:
        traces: The searches of each contestant, one for each seed, in one order of seeds.
        n_evaluations: Number of evaluations that count; later ones are left out.
        reference: The contestant that all others are compared with.

    Returns:
        One standing for each contestant, the largest mean first.

    Raises:
        ConfigError: The reference is missing, the contestants do not have the same number of seeds or have fewer than
            two, or a search has no success within the evaluations.
    """
    counts = {len(searches) for searches in traces.values()}
    if reference not in traces or len(counts) != 1 or min(counts) < 2:
        raise ConfigError(
            f"Expected the reference {reference!r} among the contestants and at least two seeds for each, equally "
            f"many for all, but got { ({name: len(searches) for name, searches in traces.items()}) }."
        )

    best = {
        name: np.array([trace.first(n_evaluations).best[-1] for trace in searches])
        for name, searches in traces.items()
    }
    broken = [name for name, values in best.items() if not np.isfinite(values).all()]
    if broken:
        raise ConfigError(
            f"Expected a successful evaluation in every search, but {', '.join(broken)} has one without. "
            "Its journal says why."
        )

    found = []
    for name, values in best.items():
        reached = [
            np.flatnonzero(trace.first(n_evaluations).best >= goal)
            for trace, goal in zip(traces[name], best[reference], strict=True)
        ]

        costs = [int(numbers[0]) + 1 if len(numbers) else n_evaluations for numbers in reached]
        found.append(
            Standing(
                name,
                len(values),
                *mean_interval(values),
                *paired_difference(values, best[reference]),
                n_ahead=int((values > best[reference]).sum()),
                n_behind=int((values < best[reference]).sum()),
                n_reached=sum(len(numbers) > 0 for numbers in reached),
                median_cost=float(np.median(costs)),
            )
        )
    return sorted(found, key=lambda standing: -standing.mean)
