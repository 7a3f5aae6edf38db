"""The evolutionary search as ask and tell; it knows curves and fitness values, but no model."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from deap import tools

from lpes_evo._breeding import Breeder
from lpes_evo._randomness import check_seed, isolated_random
from lpes_evo._survival import Survivors, mean_fitness, ranked
from lpes_evo.config import SearchSettings
from lpes_evo.errors import ConfigError, SearchOrderError
from lpes_evo.evaluation import Evaluation, checked_evaluation
from lpes_evo.operators import BezierGenome, CurveSpace

_IDLE_GENERATIONS = 3


@dataclass(frozen=True)
class _Candidate:
    """A genome on its way through the search, the generation it counts for, and the scores it has to beat."""

    genome: BezierGenome
    curve: bytes
    is_new: bool
    generation: int
    reference: tuple[float, ...] | None


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
        logbook: One DEAP record for each generation whose last evaluation was told:
            ``generation, evaluations, cached, failed, raced, best, mean, spread``, where the fitness of several
            objectives is their mean.

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
        if n_objectives < 1 or (n_objectives > 1 and self.settings.algorithm in ("ga", "steady-state")):
            raise ConfigError(
                f"Expected n_objectives = 1 for the algorithm {self.settings.algorithm!r}, but got {n_objectives}. "
                "Use 'nsga2' for several objectives."
            )
        self._seed = check_seed(seed)
        self._n_objectives = n_objectives
        self._breeder = Breeder(space, self.settings, (1.0,) * n_objectives, initial)
        self._n_starting_points = len(self._breeder.starting_points())
        with isolated_random(self._seed, "generation", 0):
            self._first_population = self._breeder.first_population()
        self._first_curves = self._breeder.curves(self._first_population)
        self._evaluations: dict[bytes, Evaluation] = {}
        self._known: set[bytes] = set()
        # A candidate stands in the line until it and all before it are told, and meanwhile in one of these: held back
        # for a reference, in the queue to be asked for, outstanding. Then it joins the row of its generation.
        self._line: deque[_Candidate] = deque()
        self._held: list[_Candidate] = []
        self._queue: deque[_Candidate] = deque()
        self._outstanding: deque[_Candidate] = deque()
        self._row: list[_Candidate] = []
        self._n_bred = 0
        self._n_idle = 0
        self._survivors = Survivors(self.settings.population_size, n_objectives)
        self._asked_reference: tuple[float, ...] | None = None
        self.generation = -1
        self.logbook = tools.Logbook()
        self.logbook.header = [
            "generation", "evaluations", "cached", "failed", "raced", "best", "mean", "spread",
        ]  # fmt: skip
        self._advance()

    def ask(self, n: int | None = None) -> list[BezierGenome]:
        """Return genomes to evaluate next, none of which was asked for before.

        A generational search returns the whole generation: an empty list when all of it is already known. With
        ``settings.racing`` the initial population comes in two parts: first identity, constants and the caller's own
        genomes, then the rest, which can be raced against them. A steady-state search returns what its window
        allows: an empty list when it is full. The genomes of one call share one `reference`, so call again while
        `can_ask`.

        Args:
            n: The most genomes that a steady-state search returns; generations are not divided.

        Returns:
            New genomes, in the order in which they are to be told.

        Raises:
            SearchOrderError: Genomes of a generation were not told yet, or the search has stopped.
        """
        reason = self.stop()
        if reason is not None:
            raise SearchOrderError(
                f"Expected a running search, but it has stopped: {reason}. Check stop() before ask()."
            )
        if not self._is_steady:
            if self._outstanding:
                raise SearchOrderError(
                    f"Expected the evaluations of all genomes before the next ask(), but {len(self._outstanding)} "
                    "are missing. Tell the evaluations first."
                )
            self._open_generation()
            n = None
        asked: list[_Candidate] = []
        while (
            self._queue
            and (n is None or len(asked) < n)
            and (not asked or self._queue[0].reference == asked[0].reference)
        ):
            asked.append(self._queue.popleft())
        if asked:
            self._outstanding.extend(asked)
            self.generation = asked[-1].generation
            self._asked_reference = asked[0].reference
        return [self._breeder.clone(candidate.genome) for candidate in asked]

    def can_ask(self, n: int | None = None) -> bool:
        """Return whether `ask` would give genomes.

        Args:
            n: In steady-state, how many are wanted at once; fewer count only when waiting would bring no more.

        Returns:
            The answer; for a generational search, whether `ask` may be called, though all of the generation may turn
            out to be known.
        """
        if not self._is_steady:
            return not self._outstanding and self.stop() is None
        n_ready = sum(candidate.reference == self._queue[0].reference for candidate in self._queue)
        can_grow = n_ready == len(self._queue) and bool(self._outstanding) and self._end() is None
        return n_ready > 0 and (n_ready >= (n or 1) or not can_grow)

    @property
    def outstanding(self) -> int:
        """Number of genomes that were asked for and not told yet."""
        return len(self._outstanding)

    def reference(self) -> tuple[float, ...] | None:
        """Return the scores that the genomes of the last `ask` are raced against.

        They belong to the parent that ``settings.race_against`` names, by mean fitness, at the moment these genomes
        were made; during the initial population, to one of the starting points. They depend on nothing but what was
        told, so racing leaves the search deterministic.

        Returns:
            One score for each example in the problem's order, ``(n_examples,)``; ``None`` when nothing is raced: before
            anything is known, or without ``settings.racing``.
        """
        return self._asked_reference

    def tell(self, evaluations: Sequence[Evaluation]) -> None:
        """Take the evaluations of the oldest outstanding genomes, in the order in which they were asked for.

        A fitness value that is not a finite real number makes the evaluation a failed one.

        Args:
            evaluations: One evaluation for each genome, at most as many as are outstanding.

        Raises:
            SearchOrderError: There are more evaluations than outstanding genomes, or one has a wrong number of
                values; the search is as it was before.
        """
        if len(evaluations) > len(self._outstanding):
            raise SearchOrderError(
                f"Expected at most {len(self._outstanding)} evaluations, one for each genome asked for and not told "
                f"yet, but got {len(evaluations)}. Ask for genomes first."
            )
        checked = [checked_evaluation(evaluation) for evaluation in evaluations]
        for evaluation in checked:
            if evaluation.status == "ok" and len(evaluation.values) != self._n_objectives:
                raise SearchOrderError(
                    f"Expected {self._n_objectives} fitness values, one for each objective, "
                    f"but got {len(evaluation.values)}. Make a Search with n_objectives={len(evaluation.values)}."
                )
        for evaluation in checked:
            self._evaluations[self._outstanding.popleft().curve] = evaluation
            self._advance()

    def stop(self) -> str | None:
        """Return why the search has ended, or ``None`` while it goes on."""
        return None if self._line else self._end()

    @property
    def population(self) -> list[BezierGenome]:
        """The survivors, best first for one objective."""
        return self._survivors.population

    @property
    def hall_of_fame(self) -> tools.HallOfFame:
        """The best genomes: one for a single objective, else the Pareto front."""
        return self._survivors.hall_of_fame

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
        return list(self._evaluations.values())

    def best_constant(self) -> float | None:
        """Return the constant curve with the largest mean fitness on the search data.

        Returns:
            Its value; ``None`` when no constant curve was evaluated with success.
        """
        constant = self._survivors.best_constant()
        return None if constant is None else float(constant[0][1])

    def _open_generation(self) -> None:
        """Queue what is held back of the first generation, or make the next generation."""
        if self._held:
            reference = self._reference()
            self._queue.extend(replace(candidate, reference=reference) for candidate in self._held)
            self._held = []
            return
        self.generation += 1
        size = self.settings.offspring_size if self.generation else len(self._first_population)
        with isolated_random(self._seed, "generation", self.generation):
            made = [self._make() for _ in range(size)]
        n_now = size
        self._queue.extend(candidate for candidate in made[:n_now] if candidate.is_new)
        self._held = [candidate for candidate in made[n_now:] if candidate.is_new]
        self._advance()

    def _fill_window(self) -> None:
        """Make the candidates whose results may be unknown beside those of the oldest unknown one."""
        while len(self._line) < self.settings.in_flight and self._end() is None:
            with isolated_random(self._seed, "candidate", self._n_bred):
                candidate = self._make()
            if candidate.is_new:
                self._queue.append(candidate)

    def _make(self) -> _Candidate:
        """Put the next candidate in the line."""
        number, n_first = self._n_bred, len(self._first_population)
        if number < n_first:
            genome, curve = self._first_population[number], self._first_curves[number]
            generation = 0
        else:
            genome, curve = self._breeder.offspring(self.population, self._known)
            generation = 1 + (number - n_first) // self.settings.offspring_size
        is_new = curve not in self._known
        self._known.add(curve)
        self._n_idle = 0 if is_new else self._n_idle + 1
        self._n_bred += 1
        candidate = _Candidate(genome, curve, is_new, generation, self._reference())
        self._line.append(candidate)
        return candidate

    def _advance(self) -> None:
        """Go along the line as far as evaluations are known; in steady-state, refill it after every one."""
        while True:
            if self._is_steady:
                self._fill_window()
            if self._row and not (self._line and self._line[0].generation == self._row[0].generation):
                self._close_row()
            if not self._line or self._line[0].curve not in self._evaluations:
                return
            candidate = self._line.popleft()
            evaluation = self._evaluations[candidate.curve]
            if evaluation.status == "ok":
                candidate.genome.fitness.values = evaluation.values
            self._row.append(candidate)
            if self._is_steady:
                self._survivors.select(_successful([candidate]))

    def _end(self) -> str | None:
        """Return why no further candidate is made, or ``None``."""
        n_first = len(self._first_population)
        if self._n_bred - len(self._line) >= n_first and not self.population:
            return "every evaluation failed"
        if self._n_bred >= n_first + self.settings.offspring_size * self.settings.generations:
            return f"all {self.settings.generations} generations are done"
        if len(self._known) >= self.space.n_curves:
            return f"all {len(self._known)} curves of the space are evaluated"
        if self._n_idle >= _IDLE_GENERATIONS * self.settings.offspring_size:
            return f"no new curve was found among {self._n_idle} candidates"
        return None

    def _reference(self) -> tuple[float, ...] | None:
        """Return the scores that a candidate made now has to beat."""
        if not self.settings.racing or self._n_bred - len(self._line) < self._n_starting_points:
            return None
        rivals = self._survivors.members or _successful(self._row)
        if not rivals:
            return None
        return self._evaluations[ranked(rivals, self.settings.race_against)].scores or None

    def _close_row(self) -> None:
        """End a generation: select, where that is not done one by one, and add it to the logbook."""
        if not self._is_steady:
            self._survivors.select(_successful(self._row))
        new = [self._evaluations[candidate.curve] for candidate in self._row if candidate.is_new]
        self.logbook.record(
            generation=self._row[0].generation,
            evaluations=len(new),
            cached=len(self._row) - len(new),
            failed=sum(evaluation.status == "failed" for evaluation in new),
            raced=sum(evaluation.status == "raced" for evaluation in new),
            **self._survivors.statistics(),
        )
        self._row = []


def _successful(candidates: Sequence[_Candidate]) -> dict[bytes, BezierGenome]:
    """Return the genomes that were evaluated with success, by curve; each curve counts once in a search."""
    return {
        candidate.curve: candidate.genome
        for candidate in candidates
        if candidate.is_new and candidate.genome.fitness.valid
    }
