"""The evolutionary search as ask and tell; it knows curves and fitness values, but no model."""

import copy
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from deap import tools

from lpes_evo.config import SearchSettings
from lpes_evo.errors import ConfigError, SearchOrderError
from lpes_evo.operators import BezierGenome, CurveSpace
from lpes_evo.search._breeding import Breeder
from lpes_evo.search._candidates import CandidateLine
from lpes_evo.search._evaluation import Evaluation, checked_evaluation
from lpes_evo.search._gradients import Gradients
from lpes_evo.search._probe import GradientProbe
from lpes_evo.search._randomness import check_seed
from lpes_evo.search._survival import mean_fitness


class Search:
    """A search over curves on DEAP's operators, selections, hall of fame and logbook.

    The search is a deterministic function of ``(space, settings, seed)`` and of what it is told::

        while not search.stop():
            genomes = search.ask()
            search.tell([evaluate(genome) for genome in genomes])

    Evaluations are told in the order in which their genomes were asked for, as many at a time as are known. The
    generational algorithms ask for the next generation when all of the last are told. ``steady-state`` has no
    generations: candidate number i is bred from the results of the candidates 0 to i - ``in_flight`` exactly, whatever
    else is known by then, so at most ``in_flight`` genomes are outstanding, and the search depends neither on the
    number of workers nor on the order in which they finish.

    No curve is asked for twice: a genome that draws a known one is counted as cached, and that is all. Failed and
    raced-out evaluations are recorded and never become parents. The initial population holds the identity, constant
    curves over the whole range, the caller's own genomes, and low-discrepancy and random curves, so the best genome is
    never worse than the untouched model on the search data, where the space holds 1.0.

    Where its settings take gradients, it asks for them too, see `lpes_evo.search.GradientProbe`: before the generation
    that they help to make, and never together with genomes. ``gradient`` starts at the first of the caller's own
    genomes or at the untouched model, and evaluates in full only where it arrives after every ``gradient_steps`` steps.

    Args:
        space: The curves.
        settings: Algorithm and budget; the defaults when ``None``.
        seed: Seed of every random draw.
        n_objectives: Number of fitness values of an evaluation.
        initial: Genomes to start from, feasible in ``space``.

    Attributes:
        space: The curves.
        settings: Algorithm and budget.
        generation: Number of the generation that is or was asked for; 0 is the initial population. In steady-state,
            every ``offspring_size`` candidates count as one.

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
        self._is_steady = self.settings.algorithm == "steady-state"
        is_single = self.settings.algorithm in ("ga", "steady-state", "gradient")
        if n_objectives < 1 or (n_objectives > 1 and is_single):
            raise ConfigError(
                f"Expected n_objectives = 1 for the algorithm {self.settings.algorithm!r}, but got {n_objectives}. "
                "Use 'nsga2' for several objectives."
            )
        self._n_objectives = n_objectives
        weights = (1.0,) * n_objectives
        of_parents: dict[str, npt.NDArray[np.float64]] = {}
        breeder = Breeder(space, self.settings, weights, initial, of_parents)
        gradients = None
        if self.settings.takes_gradients:
            if space.n_layers < 2:
                raise ConfigError(
                    "Expected a model of at least 2 layers to climb along gradients, but got 1."
                )
            if not breeder.has_positive_curves:
                raise ConfigError(
                    f"Expected a space of positive values to climb along gradients, but y_min is {space.y_axis.low:g}. "
                    "Raise y_min, or use an algorithm without gradients."
                )
            gradients = Gradients(space, self.settings, breeder.start, of_parents)
        self._candidates = CandidateLine(
            breeder, self.settings, n_objectives, space.n_curves, check_seed(seed), gradients
        )
        self._reference: tuple[float, ...] | None = None
        self.generation = -1

    def ask(self, n: int | None = None) -> list[BezierGenome]:
        """Return genomes to evaluate next, none of which was asked for before.

        A generational search returns the whole generation: an empty list when all of it is already known. With
        ``settings.racing`` the initial population comes in two parts: first identity, constants and the caller's own
        genomes, then the rest, which is raced against them. A steady-state search returns what its window allows: an
        empty list when it is full. The genomes of one call share one `reference`, so call again while `can_ask`.

        Args:
            n: The most genomes that a steady-state search returns; generations are not divided.

        Returns:
            New genomes, or gradients that are wanted, in the order in which they are to be told.

        Raises:
            SearchOrderError: Genomes of a generation were not told yet, or the search has stopped.
        """
        reason = self.stop()
        if reason is not None:
            raise SearchOrderError(
                f"Expected a running search, but it has stopped: {reason}. Check stop() before ask()."
            )
        if not self._is_steady:
            if self.outstanding:
                raise SearchOrderError(
                    f"Expected the evaluations of all genomes before the next ask(), but {self.outstanding} are "
                    "missing. Tell the evaluations first."
                )
            self.generation = self._candidates.open_generation()
            n = None
        asked = self._candidates.ask(n)
        if asked:
            self.generation = asked[-1].generation
            self._reference = asked[0].reference
        return [copy.deepcopy(candidate.genome) for candidate in asked]

    def can_ask(self) -> bool:
        """Return whether `ask` may be called; in steady-state, whether it would return a genome."""
        return self._candidates.can_ask()

    @property
    def outstanding(self) -> int:
        """Number of genomes that were asked for and not told yet."""
        return len(self._candidates.outstanding)

    def reference(self) -> tuple[float, ...] | None:
        """Return the scores that the genomes of the last `ask` are raced against.

        They belong to the parent that ``settings.race_against`` names, by mean fitness, at the moment these genomes
        were made. They depend on nothing but what was told, so racing leaves the search deterministic.

        Returns:
            One score for each example in the problem's order, ``(n_examples,)``; ``None`` when nothing is raced: before
            anything is known, or without ``settings.racing``.
        """
        return self._reference

    def tell(self, evaluations: Sequence[Evaluation]) -> None:
        """Take the evaluations of the oldest outstanding genomes, in the order in which they were asked for.

        A fitness value that is not a finite real number makes the evaluation a failed one.

        Args:
            evaluations: One evaluation for each genome, at most as many as are outstanding.

        Raises:
            SearchOrderError: There are more evaluations than outstanding genomes, one has a wrong number of values,
                or is no `Evaluation`, or there is no list of them; the search is as it was before.
        """
        if not isinstance(evaluations, Sequence):
            raise SearchOrderError(
                f"Expected a list of evaluations, one for each genome, but got {evaluations!r:.80}. Put them in a list."
            )
        if len(evaluations) > self.outstanding:
            raise SearchOrderError(
                f"Expected at most {self.outstanding} evaluations, one for each genome asked for and not told yet, "
                f"but got {len(evaluations)}. Ask for genomes first."
            )
        wrong = [evaluation for evaluation in evaluations if not isinstance(evaluation, Evaluation)]
        if wrong:
            raise SearchOrderError(
                f"Expected an Evaluation for each genome, but got {wrong[0]!r:.80}. Make them with "
                "Evaluation(values=(...,), scores=(), seconds=0.0), or let an Evaluator make them."
            )
        checked = [checked_evaluation(evaluation) for evaluation in evaluations]
        for candidate, evaluation in zip(self._candidates.outstanding, checked, strict=False):
            is_probe = isinstance(candidate.genome, GradientProbe)
            if evaluation.status != "failed" and is_probe != (evaluation.status == "sampled"):
                raise SearchOrderError(
                    f"Expected an evaluation of status {'sampled' if is_probe else 'ok or raced'} for "
                    f"{'a gradient' if is_probe else 'a genome'}, but got {evaluation.status!r}. Tell evaluations in "
                    "the order in which their genomes were asked for."
                )
            if evaluation.status == "sampled" and len(evaluation.gradient) != self.space.n_layers:
                raise SearchOrderError(
                    f"Expected a gradient of n_layers = {self.space.n_layers} numbers, but got "
                    f"{len(evaluation.gradient)}. Give one for each layer."
                )
            if evaluation.status == "ok" and len(evaluation.values) != self._n_objectives:
                raise SearchOrderError(
                    f"Expected {self._n_objectives} fitness values, one for each objective, "
                    f"but got {len(evaluation.values)}. Make a Search with n_objectives={len(evaluation.values)}."
                )
        for evaluation in checked:
            self._candidates.tell(evaluation)

    def stop(self) -> str | None:
        """Return why the search has ended, or ``None`` while it goes on."""
        return self._candidates.stop()

    @property
    def logbook(self) -> tools.Logbook:
        """One DEAP record for each generation whose last evaluation was told.

        Its columns are ``generation, evaluations, cached, failed, raced, best, mean, spread``; the fitness of several
        objectives is their mean.
        """
        return self._candidates.logbook

    @property
    def population(self) -> list[BezierGenome]:
        """The survivors, best first for one objective."""
        return self._candidates.survivors.population

    @property
    def hall_of_fame(self) -> tools.HallOfFame:
        """The best genomes: one for a single objective, else the Pareto front."""
        return self._candidates.survivors.hall_of_fame

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
        best: BezierGenome = max(self.hall_of_fame, key=mean_fitness)
        return best

    def evaluations(self) -> list[Evaluation]:
        """Return every evaluation that was told, in the order the genomes were asked for."""
        return list(self._candidates.evaluations.values())

    def best_constant(self) -> float | None:
        """Return the constant curve with the largest mean fitness on the search data.

        Returns:
            Its value; ``None`` when no constant curve was evaluated with success, and where ``gradient`` has tried
            none but the untouched model.
        """
        if self.settings.algorithm == "gradient":
            return None
        constant = self._candidates.survivors.best_constant()
        return None if constant is None else float(constant[0][1])
