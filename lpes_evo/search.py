"""The evolutionary search as ask and tell; it knows curves and fitness values, but no model."""

import random
from collections.abc import Callable, Sequence

import numpy as np
from deap import base, tools

from lpes_evo._randomness import check_seed, isolated_random
from lpes_evo.config import SearchSettings
from lpes_evo.errors import ConfigError, SearchOrderError
from lpes_evo.evaluation import Evaluation, checked_evaluation
from lpes_evo.operators import (
    BezierGenome,
    CurveSpace,
    init_constants,
    init_identity,
    init_quasi_random,
    init_random_walk,
)

_VARIATION_TRIES = 20
_IDLE_GENERATIONS = 3


class Search:
    """A search over curves on DEAP's operators, selections, hall of fame and logbook.

    The search is a deterministic function of ``(space, settings, seed)`` and of what it is told::

        while not search.stop():
            genomes = search.ask()
            search.tell([evaluate(genome) for genome in genomes])

    No curve is asked for twice: a genome that draws a known one takes its evaluation and is counted as cached. Failed
    evaluations are recorded and never become parents. The initial population holds the identity, constant curves
    over the whole range, the caller's own genomes, and low-discrepancy and random curves, so the best genome is
    never worse than the untouched model on the search data, where the space holds 1.0.

    Args:
        space: The curves.
        settings: Algorithm and budget; the defaults when ``None``.
        seed: Seed of every random draw.
        n_objectives: Number of fitness values of an evaluation.
        initial: Genomes to start from, feasible in ``space``.

    Attributes:
        space: The curves.
        settings: Algorithm and budget.
        generation: Number of the generation that is or was asked for; 0 is the initial population.
        population: The survivors, best first for one objective.
        hall_of_fame: The best genomes: one for a single objective, else the Pareto front.
        logbook: One DEAP record a generation: ``generation, evaluations, cached, failed, best, mean, spread``,
            where the fitness of several objectives is their mean.

    Raises:
        ConfigError: ``n_objectives`` does not fit the algorithm, or the seed is not an integer.
        CurveError: A genome of ``initial`` is not feasible.
    """

    def __init__(
        self,
        space: CurveSpace,
        settings: SearchSettings | None = None,
        *,
        seed: int = 0,
        n_objectives: int = 1,
        initial: Sequence[BezierGenome] = (),
    ) -> None:
        self.space = space
        self.settings = settings if settings is not None else SearchSettings()
        if n_objectives < 1 or (n_objectives > 1 and self.settings.algorithm == "ga"):
            raise ConfigError(
                f"Expected n_objectives = 1 for the algorithm {self.settings.algorithm!r}, but got {n_objectives}. "
                "Use 'nsga2' for several objectives."
            )
        self._seed = check_seed(seed)
        self._n_idle = 0
        self._initial = list(initial)
        for genome in self._initial:
            space.check(genome)
        self._toolbox = base.Toolbox()
        space.register(self._toolbox, weights=(1.0,) * n_objectives)
        self._weights = (1.0,) * n_objectives
        self._multi = n_objectives > 1
        self._evaluations: dict[bytes, Evaluation] = {}
        self._offspring: list[BezierGenome] = []
        self._constants: list[BezierGenome] = []
        self._asked: list[BezierGenome] | None = None
        self.generation = -1
        self.population: list[BezierGenome] = []
        self.hall_of_fame: tools.HallOfFame = tools.ParetoFront() if self._multi else tools.HallOfFame(1)
        self.logbook = tools.Logbook()
        self.logbook.header = ["generation", "evaluations", "cached", "failed", "best", "mean", "spread"]

    def ask(self) -> list[BezierGenome]:
        """Return the genomes to evaluate next; empty when the whole generation is already known.

        Returns:
            New genomes, none of which was asked for before.

        Raises:
            SearchOrderError: The last genomes were not told yet, or the search has stopped.
        """
        if self._asked is not None:
            raise SearchOrderError(
                "Expected tell() after ask(), but got ask() again. Tell the evaluations first."
            )
        reason = self.stop()
        if reason is not None:
            raise SearchOrderError(
                f"Expected a running search, but it has stopped: {reason}. Check stop() before ask()."
            )
        self.generation += 1
        with isolated_random(self._seed, "generation", self.generation):
            self._offspring = self._first_population() if self.generation == 0 else self._breed()
        new = self._distinct(self._offspring)
        self._asked = [
            genome for key, genome in zip(self._keys(new), new, strict=True) if key not in self._evaluations
        ]
        return [self._toolbox.clone(genome) for genome in self._asked]

    def tell(self, evaluations: Sequence[Evaluation]) -> None:
        """Take the evaluations of the genomes that `ask` returned, in the same order.

        A fitness value that is not a finite real number makes the evaluation a failed one.

        Args:
            evaluations: One evaluation for each genome.

        Raises:
            SearchOrderError: `ask` was not called before, or the number of evaluations or of values is wrong.
        """
        if self._asked is None:
            raise SearchOrderError("Expected ask() before tell(), but got tell(). Ask for genomes first.")
        if len(evaluations) != len(self._asked):
            raise SearchOrderError(
                f"Expected {len(self._asked)} evaluations, one for each genome asked for, but got {len(evaluations)}."
            )
        checked = [checked_evaluation(evaluation) for evaluation in evaluations]
        for evaluation in checked:
            if evaluation.status == "ok" and len(evaluation.values) != len(self._weights):
                raise SearchOrderError(
                    f"Expected {len(self._weights)} fitness values, one for each objective, "
                    f"but got {len(evaluation.values)}. Make a Search with n_objectives={len(evaluation.values)}."
                )
        n_new = len(self._asked)
        self._n_idle = 0 if n_new else self._n_idle + 1
        self._evaluations.update(zip(self._keys(self._asked), checked, strict=True))
        self._asked = None
        self._select()
        self._log(n_new, sum(evaluation.status == "failed" for evaluation in checked))

    def stop(self) -> str | None:
        """Return why the search has ended, or ``None`` while it goes on."""
        if self._asked is not None or self.generation < 0:
            return None
        if not self.population:
            return "every evaluation failed"
        if self.generation >= self.settings.generations:
            return f"all {self.settings.generations} generations are done"
        if len(self._evaluations) >= self.space.n_curves:
            return f"all {len(self._evaluations)} curves of the space are evaluated"
        if self._n_idle >= _IDLE_GENERATIONS:
            return f"no new curve was found for {_IDLE_GENERATIONS} generations"
        return None

    @property
    def best(self) -> BezierGenome:
        """The best genome; with several objectives, the one of the Pareto front with the largest mean.

        Raises:
            SearchOrderError: No evaluation has succeeded yet.
        """
        if not self.hall_of_fame:
            raise SearchOrderError(
                "Expected a finished evaluation, but there is none. Call ask() and tell() first."
            )
        best: BezierGenome = max(self.hall_of_fame, key=lambda genome: np.mean(genome.fitness.values))
        return best

    def evaluations(self) -> list[Evaluation]:
        """Return every evaluation that was told, in the order the genomes were asked for."""
        return list(self._evaluations.values())

    def best_constant(self) -> float | None:
        """Return the constant curve with the largest mean fitness on the search data.

        Returns:
            Its value; ``None`` when no constant curve was evaluated with success.
        """
        constants = [genome for genome in self._constants if genome.fitness.valid]
        if not constants:
            return None
        return float(max(constants, key=lambda genome: np.mean(genome.fitness.values))[0][1])

    def _first_population(self) -> list[BezierGenome]:
        """Return distinct genomes: identity, constants, the caller's own, then half quasi-random, half random."""
        space, size, weights = self.space, self.settings.population_size, self._weights
        identity = [init_identity(space, weights=weights)] if space.contains_identity else []
        constants = init_constants(space, self.settings.n_constants, weights=weights)
        given = [BezierGenome(genome, weights) for genome in self._initial]
        population = self._distinct([*identity, *constants, *given])
        n_quasi_random = max(0, size - len(population)) // 2
        quasi_random = init_quasi_random(space, n_quasi_random, seed=random.getrandbits(31), weights=weights)
        population = self._distinct([*population, *quasi_random])
        taken = set(self._keys(population))
        while len(population) < size:
            population.append(self._novel(lambda: init_random_walk(space, weights=weights), taken))
        return population

    def _breed(self) -> list[BezierGenome]:
        """Return the offspring of the present population."""
        taken = set(self._evaluations)
        return [self._novel(self._make_offspring, taken) for _ in range(self.settings.offspring_size)]

    def _make_offspring(self) -> BezierGenome:
        """Return one genome bred from parents, or drawn afresh by the random search."""
        if self.settings.algorithm == "random":
            return init_random_walk(self.space, weights=self._weights)
        child: BezierGenome = self._toolbox.clone(self._choose_parent())
        before = child.key
        if random.random() < self.settings.crossover_probability:
            child, _ = self._toolbox.mate(child, self._toolbox.clone(self._choose_parent()))
        if child.key == before or random.random() < self.settings.mutation_probability:
            (child,) = self._toolbox.mutate(child)
        del child.fitness.values
        return child

    def _choose_parent(self) -> BezierGenome:
        """Return the winner of a tournament; with several objectives, of a crowded tournament (Deb et al. 2002)."""
        if not self._multi:
            chosen: list[BezierGenome] = tools.selTournament(
                self.population, 1, self.settings.tournament_size
            )
            return chosen[0]
        rivals = random.sample(self.population, min(self.settings.tournament_size, len(self.population)))
        winner = rivals[0]
        for rival in rivals[1:]:
            crowded = not winner.fitness.dominates(rival.fitness)
            if rival.fitness.dominates(winner.fitness) or (
                crowded and rival.fitness.crowding_dist > winner.fitness.crowding_dist
            ):
                winner = rival
        return winner

    def _novel(self, make: Callable[[], BezierGenome], taken: set[bytes]) -> BezierGenome:
        """Return a genome whose curve is not taken, and take it; after some tries, whatever came last.

        A small grid can be used up, so the tries are bounded and a duplicate is a legal answer.
        """
        for _ in range(_VARIATION_TRIES):
            genome = make()
            (key,) = self._keys([genome])
            if key not in taken:
                taken.add(key)
                break
        return genome

    def _select(self) -> None:
        """Give the offspring their fitness and keep the best of parents and offspring."""
        for key, genome in zip(self._keys(self._offspring), self._offspring, strict=True):
            evaluation = self._evaluations[key]
            if evaluation.status == "ok":
                genome.fitness.values = evaluation.values
        successful = [genome for genome in self._offspring if genome.fitness.valid]
        candidates = self._distinct([*self.population, *successful])
        select = tools.selNSGA2 if self._multi else tools.selBest
        self.population = select(candidates, self.settings.population_size) if candidates else []
        if successful:
            self.hall_of_fame.update(successful)
            self._constants += [genome for genome in successful if len({y for _, y in genome}) == 1]

    def _log(self, n_new: int, n_failed: int) -> None:
        """Add this generation to the logbook."""
        fitness = [float(np.mean(genome.fitness.values)) for genome in self.population]
        self.logbook.record(
            generation=self.generation,
            evaluations=n_new,
            cached=len(self._offspring) - n_new,
            failed=n_failed,
            best=max(fitness, default=None),
            mean=float(np.mean(fitness)) if fitness else None,
            spread=float(np.std(fitness)) if fitness else None,
        )

    def _keys(self, genomes: Sequence[BezierGenome]) -> list[bytes]:
        """Return what genomes share when they give every layer the same value, to nine decimals.

        Several genomes can draw one curve: the constant curves with any x, for example.
        """
        return [row.tobytes() for row in self.space.decode(genomes).round(9)]

    def _distinct(self, genomes: Sequence[BezierGenome]) -> list[BezierGenome]:
        """Return the genomes without those that draw the curve of an earlier one."""
        unique: dict[bytes, BezierGenome] = {}
        for key, genome in zip(self._keys(genomes), genomes, strict=True):
            unique.setdefault(key, genome)
        return list(unique.values())
