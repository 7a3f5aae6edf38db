"""Search: a search over curves as ask and tell, around one algorithm."""

import copy
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile

from deap import tools

from lpes_evo.config import SearchSettings
from lpes_evo.errors import SearchOrderError
from lpes_evo.operators import BezierGenome, CurveSpace, init_identity
from lpes_evo.search._algorithm import Algorithm
from lpes_evo.search._curves import curve_keys
from lpes_evo.search._evaluation import Evaluation, checked_evaluation
from lpes_evo.search._progress import Entry, Progress
from lpes_evo.search._randomness import check_seed, isolated_random
from lpes_evo.search._registry import blaming, make_algorithm, name_of
from lpes_evo.search._requests import GradientProbe, Request
from lpes_evo.search._survival import mean_fitness

_IDLE_GENERATIONS = 3


class Search:
    """A search over curves on DEAP's operators, selections, hall of fame and logbook.

    The search is a deterministic function of ``(space, settings, seed)`` and of the evaluations that it is told::

        while not search.stop():
            genomes = search.ask()
            search.tell([evaluate(genome) for genome in genomes])

    An algorithm chooses the genomes, see `lpes_evo.search.Algorithm`. The search keeps the books: known curves,
    evaluations, survivors and the logbook.

    Evaluations are told in the order in which their genomes were asked for, as many at a time as are known. The
    algorithms with generations ask for the next generation once all evaluations of the last one are told.
    ``steady-state`` has no generations. Its candidate number i is bred from the results of the candidates 0 to
    i - ``in_flight`` exactly, whatever else is known by then. So at most ``in_flight`` genomes are outstanding, and the
    search depends neither on the number of workers nor on the order in which they finish.

    No curve is asked for twice: a genome that draws a known curve is only counted, as cached. Failed and raced-out
    evaluations are recorded and never become parents. Where a search has guards, an evaluation with a violation loses
    to every one without, by the rule of Deb, see `lpes_evo.operators.CurveFitness`. The initial population holds the
    identity, constant curves over the whole range, the genomes of the caller, and low-discrepancy and random curves. So
    the best genome is never worse than the untouched model on the search data, where the space holds 1.0.

    Where the settings take gradients, the search asks for these too, as a `lpes_evo.search.GradientProbe`: before the
    generation that they help to make, and never together with genomes.

    Args:
        space: The curves.
        settings: Algorithm and budget; the defaults when ``None``.
        seed: Seed of every random draw.
        n_objectives: Number of fitness values of an evaluation.
        initial: Genomes to start from, feasible in ``space``.
        algorithm: The class of an algorithm of your own, or a function with the arguments of
            `lpes_evo.search.Algorithm` that makes one; that of ``settings.algorithm`` when ``None``.
        example_weights: Weight of the score of each example in the fitness, ``(n_examples,)``; ``None`` where they
            count alike.
        is_guarded: Whether evaluations can have a violation; the logbook then has the columns ``violating``, the
            evaluations of a generation that broke a guard, and ``violation``, that of the best survivor.

    Attributes:
        space: The curves.
        settings: Algorithm and budget.
        algorithm: What chooses the candidates.
        generation: Number of the generation that is or was asked for; 0 is the initial population. In steady-state,
            every ``offspring_size`` candidates count as one.

    Raises:
        ConfigError: ``n_objectives`` does not fit the algorithm, the seed is not an integer, the algorithm cannot be
            made, or the space has no gradients and the settings take some.
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
        algorithm: Callable[..., Algorithm] | None = None,
        example_weights: Sequence[float] | None = None,
        is_guarded: bool = False,
    ) -> None:
        self.space = space
        self.settings = settings if settings is not None else SearchSettings()
        self._seed = check_seed(seed)
        self._n_objectives = n_objectives

        self._name = self.settings.algorithm if algorithm is None else name_of(algorithm)
        with isolated_random(self._seed, "generation", 0):
            self.algorithm = make_algorithm(
                self._name,
                algorithm,
                space,
                self.settings,
                initial=initial,
                n_objectives=n_objectives,
                seed=self._seed,
            )
        self.algorithm.example_weights = None if example_weights is None else tuple(example_weights)
        self._is_steady = self.algorithm.in_flight is not None
        self._progress = Progress(
            space,
            self.settings,
            self.algorithm,
            n_objectives=n_objectives,
            counts_gradients=self.settings.takes_gradients or self.algorithm.takes_gradients,
            is_guarded=is_guarded,
        )

        # Whether the last call of the algorithm proposed anything.
        self._has_proposals = True
        self._reference: tuple[float, ...] | None = None
        self.generation = -1
        self._advance()

    def ask(self, n: int | None = None) -> list[BezierGenome | GradientProbe]:
        """Return genomes to evaluate next, none of which was asked for before.

        A generational search returns the whole generation: an empty list when all of it is already known. With
        ``settings.racing`` the initial population comes in two parts: first identity, constants and the caller's own
        genomes, then the rest, which is raced against them. A steady-state search returns what its window allows: an
        empty list when it is full. The genomes of one call share one `reference`, so call again while `can_ask`.

        Args:
            n: The most genomes that a steady-state search returns; generations are not divided.

        Returns:
            New genomes, or probes whose gradients are wanted, in the order in which evaluations are to be told.

        Raises:
            SearchOrderError: Evaluations of a generation were not told yet, or the search has stopped.
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
            n = None

            # A generation is left over in part where its candidates do not all belong together.
            if not self._progress.line:
                self.generation = self._progress.generation
                self._propose()
                self._advance()

        waiting = [entry for entry in self._progress.line if entry.is_new and not entry.is_asked]
        asked = list(takewhile(lambda entry: _belong_together(entry, waiting[0]), waiting))[:n]
        for entry in asked:
            entry.is_asked = True

        # The generation and the reference are those of the last genomes, also after an empty answer.
        if asked:
            self.generation = asked[-1].generation
            self._reference = asked[0].reference
        return [copy.deepcopy(entry.asked) for entry in asked]

    def can_ask(self) -> bool:
        """Return whether `ask` may be called; in steady-state, whether it would return a genome."""
        if self._is_steady:
            return any(entry.is_new and not entry.is_asked for entry in self._progress.line)
        return not self.outstanding and self.stop() is None

    @property
    def outstanding(self) -> int:
        """Number of genomes and probes that were asked for and whose evaluations were not told yet."""
        return len(self._outstanding())

    def _outstanding(self) -> list[Entry]:
        """Return what was asked for and is not told yet, oldest first."""
        return [
            entry
            for entry in self._progress.line
            if entry.is_asked and entry.curve not in self._progress.evaluations
        ]

    def reference(self) -> tuple[float, ...] | None:
        """Return the scores that the genomes of the last `ask` are raced against.

        They belong to the parent that ``settings.race_against`` names, by its standing, at the moment these genomes
        were made. The scores follow from the evaluations alone, so racing leaves the search deterministic.

        Returns:
            One score for each example in the problem's order, ``(n_examples,)``; ``None`` when nothing is raced: before
            anything is known, without ``settings.racing``, or where that parent breaks a guard.
        """
        return self._reference

    def tell(self, evaluations: Sequence[Evaluation]) -> None:
        """Take the evaluations of the oldest outstanding genomes, in the order in which they were asked for.

        A fitness value that is not a finite real number, or such a violation, makes the evaluation a failed one.

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
        outstanding = self._outstanding()
        for entry, evaluation in zip(outstanding, checked, strict=False):
            if evaluation.status != "failed" and entry.is_probe != (evaluation.status == "sampled"):
                raise SearchOrderError(
                    f"Expected an evaluation of status {'sampled' if entry.is_probe else 'ok or raced'} for "
                    f"{'a gradient' if entry.is_probe else 'a genome'}, but got {evaluation.status!r}. Tell "
                    "evaluations in the order in which their genomes were asked for."
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

        # Nothing is taken before all of it was found sound.
        for entry, evaluation in zip(outstanding, checked, strict=False):
            self._progress.evaluations[entry.curve] = evaluation
            self._advance()

    def _propose(self) -> None:
        """Take proposals of the algorithm into the line: all that it has, or one in steady-state."""
        progress = self._progress
        place = (
            ("candidate", progress.n_candidates) if self._is_steady else ("generation", progress.generation)
        )
        with isolated_random(self._seed, *place):
            for request in self._proposals():
                progress.enter(request)
                if self._is_steady or self._is_spent():
                    break
        self._has_proposals = bool(progress.line)

    def _proposals(self) -> Iterator[Request]:
        """Yield the proposals of the algorithm."""
        with blaming(self._name, "propose candidates"):
            yield from self.algorithm.propose(self._progress)

    def _advance(self) -> None:
        """Observe evaluations along the line as far as they are known; in steady-state, refill it after every one."""
        progress, in_flight = self._progress, self.algorithm.in_flight
        while True:
            # The parents of a generation are chosen when all of the last one is known.
            if in_flight is not None or not progress.line:
                progress.survivors.select()
            while in_flight is not None and len(progress.line) < in_flight and self._end() is None:
                n_before = len(progress.line)
                self._propose()
                if len(progress.line) == n_before:
                    break
            progress.close_generations(has_ended=self._end() is not None)

            entry = progress.next_evaluated()
            if entry is None:
                return
            place = ("observation", progress.n_observed)
            with isolated_random(self._seed, *place), blaming(self._name, "observe an evaluation"):
                self.algorithm.observe(entry.request, progress.evaluations[entry.curve])

    def stop(self) -> str | None:
        """Return why the search has ended, or ``None`` while it goes on."""
        return None if self._progress.line else self._end()

    def _is_spent(self) -> bool:
        """Return whether the budget of the settings is used up."""
        settings = self.settings
        budget = self.algorithm.n_first + settings.n_offspring * settings.generations
        return self._progress.n_candidates >= budget

    def _end(self) -> str | None:
        """Return why nothing further is proposed, or ``None``."""
        progress, settings = self._progress, self.settings

        n_observed = progress.n_candidates - len(progress.line)
        if n_observed >= max(1, self.algorithm.n_first) and not progress.population:
            return "every evaluation failed"
        if self._is_spent():
            return f"all {settings.generations} generations are done"
        if len(progress.known) >= self.space.n_curves:
            return f"all {len(progress.known)} curves of the space are evaluated"
        if progress.n_idle >= _IDLE_GENERATIONS * settings.n_offspring:
            return f"no new curve was found among {progress.n_idle} candidates"

        if not self._has_proposals:
            return f"the algorithm {self._name} has nothing more to propose"
        with blaming(self._name, "say whether it has finished"):
            return self.algorithm.finished()

    @property
    def logbook(self) -> tools.Logbook:
        """One DEAP record for each generation whose last evaluation was told.

        Its columns are ``generation, evaluations, cached, failed, raced, best, mean, spread``; the fitness of several
        objectives is their mean. With guards, ``best`` is the fitness of the best that keeps them, as long as one does,
        and there are the columns ``violating`` and ``violation``.
        """
        return self._progress.logbook

    @property
    def population(self) -> list[BezierGenome]:
        """The survivors, best first for one objective; those that break a guard come last."""
        return list(self._progress.population)

    @property
    def hall_of_fame(self) -> tools.HallOfFame:
        """The best genomes: one for a single objective, else the Pareto front."""
        return self._progress.survivors.hall_of_fame

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

    def evaluation_of(self, genome: BezierGenome) -> Evaluation:
        """Return the evaluation of a genome, or of an earlier one that draws the same curve.

        Args:
            genome: A genome that was told.

        Raises:
            SearchOrderError: Its evaluation was not told.
        """
        (curve,) = curve_keys(self.space, [genome])
        if curve not in self._progress.evaluations:
            raise SearchOrderError(
                f"Expected a genome that was evaluated, but got {genome.key}. Call tell() with its evaluation first."
            )
        return self._progress.evaluations[curve]

    def evaluations(self) -> list[Evaluation]:
        """Return every evaluation that was told, in the order the genomes were asked for."""
        return list(self._progress.evaluations.values())

    def untouched(self) -> tuple[float, ...] | None:
        """Return the fitness values of the untouched model; ``None`` where it was not evaluated with success."""
        if not self.space.contains_identity:
            return None
        (curve,) = curve_keys(self.space, [init_identity(self.space)])
        evaluation = self._progress.evaluations.get(curve)
        return evaluation.values or None if evaluation is not None else None

    def best_constant(self) -> float | None:
        """Return the constant curve with the largest mean fitness on the search data, of those that keep the guards.

        Returns:
            Its value; ``None`` when no constant curve was evaluated with success, and where ``gradient`` has tried
            none but the untouched model.
        """
        if not self.algorithm.tries_constants:
            return None
        constant = self._progress.survivors.best_constant()
        return None if constant is None else float(constant[0][1])


def _belong_together(entry: Entry, first: Entry) -> bool:
    """Return whether two requests may be asked for in one call."""
    return entry.is_probe == first.is_probe and entry.reference == first.reference
