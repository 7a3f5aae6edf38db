"""Genetic algorithms: with generations, with several objectives (NSGA-II), and steady-state."""

import copy
import random
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from deap import base, tools

from lpes_evo.config import SearchSettings
from lpes_evo.operators import BezierGenome, CurveSpace, init_random_walk, mut_gradient
from lpes_evo.search._curves import curve_keys, distinct
from lpes_evo.search._evaluation import Evaluation
from lpes_evo.search._gradients import Gradients
from lpes_evo.search._population import PopulationAlgorithm
from lpes_evo.search._progress import Progress
from lpes_evo.search._requests import Candidate, GradientProbe, Request
from lpes_evo.search._surrogate import Surrogate, TrainingSet


class GeneticAlgorithm(PopulationAlgorithm):
    """The (mu + lambda) genetic algorithm: offspring of tournament winners, by crossover and mutation.

    With ``settings.preselection``, several offspring are bred for each candidate, and a surrogate of the fitness
    chooses among them. With gradients, curves that were fitted to free scales on their way along gradients join the
    first population, and some mutations move a parent along its gradient.

    Args:
        space: The curves.
        settings: Sizes, probabilities and budget.
        **options: As for `Algorithm`.

    Raises:
        CurveError: A genome of ``initial`` is not feasible.
        ConfigError: The settings take gradients, which need positive curves over at least two layers.
    """

    def __init__(self, space: CurveSpace, settings: SearchSettings, **options: Any) -> None:
        super().__init__(space, settings, **options)
        self._toolbox = base.Toolbox()
        space.register(self._toolbox, weights=self.weights)

        # The surrogate tells curves apart by their logarithms, and has one objective.
        is_guided = settings.preselection > 1 and len(self.weights) == 1 and space.y_axis.low > 0
        self._training_set = TrainingSet(settings.aggregate) if is_guided else None
        self._gradients = Gradients(space, settings) if settings.takes_gradients else None

    def propose(self, progress: Progress) -> Iterable[Request]:
        """Yield the gradients that the next part or generation needs, or else that part or generation."""
        if self._gradients is not None and progress.n_candidates:
            probes = self._gradients.wanted(progress.generation, progress.population)
            if probes:
                yield from probes
                return
            if progress.n_candidates == len(self.starting_points):
                self._first = self._seeded(self._gradients.seeds)
        yield from super().propose(progress)

    def observe(self, request: Request, evaluation: Evaluation) -> None:
        """Learn from a gradient, or from the fitness of a curve."""
        if isinstance(request, GradientProbe):
            if self._gradients is not None:
                self._gradients.learn(request, evaluation)
        elif self._training_set is not None:
            (curve,) = curve_keys(self.space, [request.genome])
            self._training_set.add(curve, evaluation, request.reference, self.example_weights)

    def breed(self, progress: Progress) -> BezierGenome:
        """Return an offspring of the population whose curve is new: the most promising of several, or the first."""
        parents = progress.population
        surrogate = self._surrogate(progress)
        if surrogate is not None:
            bred = [self._vary(parents) for _ in range(self.settings.preselection)]
            curves = curve_keys(self.space, bred)
            new = [number for number, curve in enumerate(curves) if curve not in progress.known]
            if new:
                return bred[
                    new[surrogate.best_of(np.array([np.frombuffer(curves[number]) for number in new]))]
                ]
        return self._novel(lambda: self._vary(parents), progress.known)

    def choose_parent(self, parents: Sequence[BezierGenome]) -> BezierGenome:
        """Return the winner of a tournament."""
        (winner,) = tools.selTournament(parents, 1, self.settings.tournament_size)
        chosen: BezierGenome = winner
        return chosen

    def _seeded(self, seeds: Sequence[BezierGenome]) -> list[BezierGenome]:
        """Return the first population with seeds behind the starting points, in place of the last of the others."""
        n, size = len(self.starting_points), len(self._first)
        return distinct(self.space, [*self._first[:n], *seeds, *self._first[n:]])[:size]

    def _surrogate(self, progress: Progress) -> Surrogate | None:
        """Return a model of the fitness that expects what is on its way; ``None`` while nothing is known."""
        surrogate = self._training_set.surrogate() if self._training_set is not None else None
        if surrogate is None:
            return None
        return surrogate.expecting(np.array([np.frombuffer(curve) for curve in progress.pending]))

    def _vary(self, parents: Sequence[BezierGenome]) -> BezierGenome:
        """Return an offspring; a random genome where there are no parents."""
        if not parents:
            return init_random_walk(self.space, weights=self.weights)

        gradients = self._gradients.of_parents if self._gradients is not None else {}
        steep = [genome for genome in parents if genome.key in gradients] if gradients else []
        if steep and random.random() < self.settings.gradient_mutation:
            child = copy.deepcopy(self.choose_parent(steep))
            mut_gradient(child, space=self.space, gradient=gradients[child.key])
            return child

        child = copy.deepcopy(self.choose_parent(parents))
        before = child[:]
        if random.random() < self.settings.crossover_probability:
            child, _ = self._toolbox.mate(child, copy.deepcopy(self.choose_parent(parents)))
        if child == before or random.random() < self.settings.mutation_probability:
            (child,) = self._toolbox.mutate(child)
        return child


class Nsga2(GeneticAlgorithm):
    """NSGA-II (Deb et al., "A fast and elitist multiobjective genetic algorithm", IEEE TEVC 6(2), 2002).

    With several objectives, parents win crowded tournaments and the search selects the survivors by front and
    crowding; with one it is the genetic algorithm.
    """

    several_objectives = True

    def choose_parent(self, parents: Sequence[BezierGenome]) -> BezierGenome:
        """Return the winner of a crowded tournament."""
        if len(self.weights) == 1:
            return super().choose_parent(parents)

        rivals = random.sample(parents, min(self.settings.tournament_size, len(parents)))
        winner = rivals[0]
        for rival in rivals[1:]:
            crowded = not winner.fitness.dominates(rival.fitness)
            if rival.fitness.dominates(winner.fitness) or (
                crowded and rival.fitness.crowding_dist > winner.fitness.crowding_dist
            ):
                winner = rival
        return winner


class SteadyState(GeneticAlgorithm):
    """The (mu + 1) genetic algorithm: it learns from every evaluation instead of every generation.

    Candidate number i is bred from the results of the candidates 0 to i - ``settings.in_flight`` exactly.
    """

    # Which candidates are ready together depends on the workers, and the company in a pass shows in half precision.
    shares_passes = False

    @property
    def in_flight(self) -> int:
        """Number of candidates that may be without an evaluation at once."""
        return self.settings.in_flight

    def propose(self, progress: Progress) -> Iterable[Request]:
        """Yield the next genome of the first population, or one offspring."""
        number = progress.n_candidates
        genome = self._first[number] if number < len(self._first) else self.breed(progress)
        yield Candidate(genome, progress.reference)
