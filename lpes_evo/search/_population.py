"""Algorithms with a first population and generations of equal size, and the random search as the simplest of them."""

import random
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from lpes_evo.config import SearchSettings
from lpes_evo.operators import BezierGenome, CurveSpace, init_quasi_random, init_random_walk
from lpes_evo.search._algorithm import Algorithm
from lpes_evo.search._curves import curve_keys, distinct
from lpes_evo.search._progress import Progress
from lpes_evo.search._requests import Candidate, Request

_VARIATION_TRIES = 20


class PopulationAlgorithm(Algorithm):
    """Proposes a first population, then generation after generation of genomes that `breed` makes.

    The first population holds the starting points, then half quasi-random and half random curves. It comes in two
    parts where all but the starting points are raced, or where something else must be learned from these first.

    Args:
        space: The curves.
        settings: Sizes, probabilities and budget.
        **options: As for `Algorithm`.

    Raises:
        CurveError: A genome of ``initial`` is not feasible.
    """

    def __init__(self, space: CurveSpace, settings: SearchSettings, **options: Any) -> None:
        super().__init__(space, settings, **options)
        self._first = self._first_population()

    @property
    def n_first(self) -> int:
        """Number of genomes of the first population."""
        return len(self._first)

    def propose(self, progress: Progress) -> Iterable[Request]:
        """Yield the first population, or its next part, or one generation."""
        reference = progress.reference
        if not progress.generation:
            for genome in self._next_part(progress.n_candidates):
                yield Candidate(genome, reference)
            return

        for _ in range(self.settings.offspring_size):
            yield Candidate(self.breed(progress), reference)

    @abstractmethod
    def breed(self, progress: Progress) -> BezierGenome:
        """Return one new genome."""

    def _next_part(self, n_known: int) -> Sequence[BezierGenome]:
        in_parts = self.settings.racing or self.settings.gradient_seeds
        if in_parts and not n_known:
            return self._first[: len(self.starting_points)]
        return self._first[n_known:]

    def _first_population(self) -> list[BezierGenome]:
        """Return the first population; its genomes are distinct curves where the space holds enough."""
        space, population = self.space, self.starting_points
        size = max(self.settings.population_size, len(population) + self.settings.gradient_seeds)
        n_quasi_random = (size - len(population)) // 2
        quasi_random = init_quasi_random(
            space, n_quasi_random, seed=random.getrandbits(31), weights=self.weights
        )
        population = distinct(space, [*population, *quasi_random])

        taken = set(curve_keys(space, population))
        while len(population) < size:
            genome = self._novel(lambda: init_random_walk(space, weights=self.weights), taken)
            population.append(genome)
            taken.update(curve_keys(space, [genome]))
        return population

    def _novel(self, make: Callable[[], BezierGenome], taken: Collection[bytes]) -> BezierGenome:
        """Return a genome whose curve is not taken; after some tries, whatever came last."""
        for _ in range(_VARIATION_TRIES):
            genome = make()
            if curve_keys(self.space, [genome])[0] not in taken:
                break
        return genome


class RandomSearch(PopulationAlgorithm):
    """Draws every genome at random and learns nothing: the baseline of all others."""

    several_objectives = True

    def breed(self, progress: Progress) -> BezierGenome:
        """Return a random walk whose curve is new."""
        return self._novel(lambda: init_random_walk(self.space, weights=self.weights), progress.known)
