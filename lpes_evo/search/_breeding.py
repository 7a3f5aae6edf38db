"""How a search makes genomes: its first population, and offspring of the best it knows."""

import random
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
import numpy.typing as npt
from deap import base, tools

from lpes_evo.config import SearchSettings
from lpes_evo.operators import (
    BezierGenome,
    CurveSpace,
    init_constants,
    init_identity,
    init_quasi_random,
    init_random_walk,
    mut_gradient,
)
from lpes_evo.search._surrogate import Surrogate

_VARIATION_TRIES = 20


class Breeder:
    """Makes genomes by the operators of a space; every draw is from Python's global generator, as in DEAP.

    Args:
        space: The curves.
        settings: Algorithm, sizes and probabilities.
        weights: Weights of the fitness, ``(n_objectives,)``.
        initial: Genomes to start from.
        gradients: Gradients of evaluated genomes by their key, which may become more.

    Attributes:
        has_positive_curves: Whether no curve has a value of zero or less.

    Raises:
        CurveError: A genome of ``initial`` is not feasible in ``space``.
    """

    def __init__(
        self,
        space: CurveSpace,
        settings: SearchSettings,
        weights: tuple[float, ...],
        initial: Sequence[BezierGenome] = (),
        gradients: Mapping[str, npt.NDArray[np.float64]] | None = None,
    ) -> None:
        self._space = space
        self.has_positive_curves = space.y_axis.low > 0
        self._settings = settings
        self._weights = weights
        self._gradients = {} if gradients is None else gradients
        for genome in initial:
            space.check(genome)
        self._toolbox = base.Toolbox()
        space.register(self._toolbox, weights=weights)
        identity = [init_identity(space, weights=weights)] if space.contains_identity else []
        constants = init_constants(space, settings.n_constants, weights=weights)
        self._given = [BezierGenome(genome, weights) for genome in initial]
        if settings.algorithm == "gradient":
            constants = [self.start]
        self._starting_points = self._distinct([*identity, *constants, *self._given])

    @property
    def n_starting_points(self) -> int:
        """Genomes that the first population begins with: identity, constants and the caller's own."""
        return len(self._starting_points)

    @property
    def start(self) -> BezierGenome:
        """Where a single way begins: at the first of the caller's genomes, else at the untouched model."""
        if self._given:
            return self._given[0]
        return self._space.fit(np.ones(self._space.n_layers), self._weights)

    def first_population(self) -> list[BezierGenome]:
        """Return the starting points, then half quasi-random, half random curves; distinct where there are enough."""
        space, weights = self._space, self._weights
        population = [self.clone(genome) for genome in self._starting_points]
        if self._settings.algorithm == "gradient":
            return population
        size = max(self._settings.population_size, len(population) + self._settings.gradient_seeds)
        n_quasi_random = (size - len(population)) // 2
        quasi_random = init_quasi_random(space, n_quasi_random, seed=random.getrandbits(31), weights=weights)
        population = self._distinct([*population, *quasi_random])
        taken = set(self.curves(population))
        while len(population) < size:
            genome, curve = self._novel(lambda: init_random_walk(space, weights=weights), taken)
            population.append(genome)
            taken.add(curve)
        return population

    def seeded(self, population: Sequence[BezierGenome], seeds: Sequence[BezierGenome]) -> list[BezierGenome]:
        """Return a first population with seeds behind the starting points, in place of the last of the others."""
        n = self.n_starting_points
        return self._distinct([*population[:n], *map(self.clone, seeds), *population[n:]])[: len(population)]

    def offspring(
        self, parents: Sequence[BezierGenome], taken: Collection[bytes], guide: Surrogate | None = None
    ) -> tuple[BezierGenome, bytes]:
        """Return one new genome and its curve; drawn afresh by the random search, and where there are no parents.

        Args:
            parents: Evaluated genomes.
            taken: The curves that should not come again. A small grid can be used up, so one of them may.
            guide: Chooses the most promising of several that are bred; ``None`` to breed one.
        """
        if guide is not None:
            bred = [self._vary(parents) for _ in range(self._settings.preselection)]
            curves = self.curves(bred)
            new = [number for number, curve in enumerate(curves) if curve not in taken]
            if new:
                best = new[guide.best_of(np.array([np.frombuffer(curves[number]) for number in new]))]
                return bred[best], curves[best]
        return self._novel(lambda: self._vary(parents), taken)

    def clone(self, genome: BezierGenome) -> BezierGenome:
        """Return an independent copy."""
        copy: BezierGenome = self._toolbox.clone(genome)
        return copy

    def curves(self, genomes: Sequence[BezierGenome]) -> list[bytes]:
        """Return what genomes share when they give every layer the same value, to nine decimals.

        Several genomes can draw one curve: the constant curves with any x, for example.
        """
        return [row.tobytes() for row in self._space.decode(genomes).round(9)]

    def _vary(self, parents: Sequence[BezierGenome]) -> BezierGenome:
        if self._settings.algorithm == "random" or not parents:
            return init_random_walk(self._space, weights=self._weights)
        steep = [genome for genome in parents if genome.key in self._gradients] if self._gradients else []
        if steep and random.random() < self._settings.gradient_mutation:
            child = self.clone(self._choose_parent(steep))
            mut_gradient(child, space=self._space, gradient=self._gradients[child.key])
            del child.fitness.values
            return child
        child = self.clone(self._choose_parent(parents))
        before = child[:]
        if random.random() < self._settings.crossover_probability:
            child, _ = self._toolbox.mate(child, self.clone(self._choose_parent(parents)))
        if child == before or random.random() < self._settings.mutation_probability:
            (child,) = self._toolbox.mutate(child)
        del child.fitness.values
        return child

    def _choose_parent(self, parents: Sequence[BezierGenome]) -> BezierGenome:
        """Return the winner of a tournament; with several objectives, of a crowded tournament (Deb et al. 2002)."""
        if len(self._weights) == 1:
            chosen: list[BezierGenome] = tools.selTournament(parents, 1, self._settings.tournament_size)
            return chosen[0]
        rivals = random.sample(parents, min(self._settings.tournament_size, len(parents)))
        winner = rivals[0]
        for rival in rivals[1:]:
            crowded = not winner.fitness.dominates(rival.fitness)
            if rival.fitness.dominates(winner.fitness) or (
                crowded and rival.fitness.crowding_dist > winner.fitness.crowding_dist
            ):
                winner = rival
        return winner

    def _novel(
        self, make: Callable[[], BezierGenome], taken: Collection[bytes]
    ) -> tuple[BezierGenome, bytes]:
        """Return a genome whose curve is not taken, and the curve; after some tries, whatever came last."""
        for _ in range(_VARIATION_TRIES):
            genome = make()
            (curve,) = self.curves([genome])
            if curve not in taken:
                break
        return genome, curve

    def _distinct(self, genomes: Sequence[BezierGenome]) -> list[BezierGenome]:
        """Return the genomes without those that draw the curve of an earlier one."""
        unique: dict[bytes, BezierGenome] = {}
        for curve, genome in zip(self.curves(genomes), genomes, strict=True):
            unique.setdefault(curve, genome)
        return list(unique.values())
