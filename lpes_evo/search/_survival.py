"""Survivors: the population of a search, its hall of fame, and the constant curves that were tried.

Everything is ranked by the rule of Deb, see `lpes_evo.operators.CurveFitness`: a genome that breaks a guard comes
behind every one that breaks none.
"""

from collections.abc import Mapping
from typing import Literal

import numpy as np
from deap import tools

from lpes_evo.operators import BezierGenome


class Survivors:
    """The best evaluated genomes, as distinct curves.

    Args:
        size: Genomes that survive.
        n_objectives: Number of fitness values; several are selected by NSGA-II (Deb et al. 2002).

    Attributes:
        population: The survivors, best first for one objective.
        members: The survivors by curve.
        hall_of_fame: The best genomes of all: one for a single objective, else the Pareto front.
    """

    def __init__(self, size: int, n_objectives: int) -> None:
        self._size = size
        self._is_multi = n_objectives > 1
        self._constants: list[BezierGenome] = []
        self._fresh: dict[bytes, BezierGenome] = {}
        self.population: list[BezierGenome] = []
        self.members: dict[bytes, BezierGenome] = {}
        self.hall_of_fame: tools.HallOfFame = tools.ParetoFront() if self._is_multi else tools.HallOfFame(1)

    def add(self, curve: bytes, genome: BezierGenome) -> None:
        """Take a genome that was evaluated with success into the next selection, given by the key of its curve."""
        self._fresh[curve] = genome

    def select(self) -> None:
        """Keep the best of the population and of what was added since the last selection."""
        if not self._fresh:
            return
        pool = {**self.members, **self._fresh}
        curve_of = {id(genome): curve for curve, genome in pool.items()}
        select = tools.selNSGA2 if self._is_multi else tools.selBest
        self.population = select(list(pool.values()), self._size)
        self.members = {curve_of[id(genome)]: genome for genome in self.population}

        fresh = list(self._fresh.values())
        self.hall_of_fame.update(fresh)
        self._constants += [genome for genome in fresh if len({y for _, y in genome}) == 1]
        self._fresh = {}

    def best_constant(self) -> BezierGenome | None:
        """Return the constant curve of the best standing; ``None`` when none was evaluated with success."""
        return max(self._constants, key=standing, default=None)

    def statistics(self) -> dict[str, float | None]:
        """Return the mean fitness of the best of the population, and its mean and spread over the population."""
        fitness = [mean_fitness(genome) for genome in self.population]
        if not fitness:
            return {"best": None, "mean": None, "spread": None}
        _, best = max(map(standing, self.population))
        return {"best": best, "mean": float(np.mean(fitness)), "spread": float(np.std(fitness))}

    def least_violation(self) -> float | None:
        """Return the violation of the best of the population; ``None`` where there is none."""
        return min((genome.fitness.violation for genome in self.population), default=None)


def ranked(genomes: Mapping[bytes, BezierGenome], rank: Literal["best", "median", "worst"]) -> bytes:
    """Return the curve of the genome at a rank by `standing`; there must be one."""
    order = sorted(genomes, key=lambda curve: standing(genomes[curve]), reverse=True)
    return order[{"best": 0, "median": len(order) // 2, "worst": -1}[rank]]


def standing(genome: BezierGenome) -> tuple[float, float]:
    """Return what evaluated genomes are ranked by, larger is better: minus the violation, then the mean fitness."""
    return 0.0 - genome.fitness.violation, mean_fitness(genome)


def mean_fitness(genome: BezierGenome) -> float:
    """Return the mean of the fitness values of an evaluated genome."""
    values = genome.fitness.values
    return float(sum(values) / len(values))
