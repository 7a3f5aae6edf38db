"""The candidates of a search in the order in which they are made, asked for and told."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, takewhile

import numpy as np
from deap import tools

from lpes_evo.config import SearchSettings
from lpes_evo.operators import BezierGenome
from lpes_evo.search._breeding import Breeder
from lpes_evo.search._evaluation import Evaluation
from lpes_evo.search._gradients import Gradients
from lpes_evo.search._probe import GradientProbe
from lpes_evo.search._randomness import isolated_random
from lpes_evo.search._surrogate import Evidence, Surrogate
from lpes_evo.search._survival import Survivors, ranked

_IDLE_GENERATIONS = 3


@dataclass(frozen=True)
class Candidate:
    """A genome on its way through a search.

    Attributes:
        genome: The genome, which is given its fitness here; or scales at which the gradient is wanted.
        curve: What it shares with every genome that draws the same curve; of a gradient, its key.
        is_new: Whether it is the first to draw it, so that it is evaluated.
        generation: The generation it counts for.
        reference: The scores it is raced against.
    """

    genome: BezierGenome
    curve: bytes
    is_new: bool
    generation: int
    reference: tuple[float, ...] | None


class CandidateLine:
    """Makes candidates one after another and takes their evaluations in the same order.

    A candidate stands in the line until it and all before it are told; meanwhile a new one is in the queue to be asked
    for, then outstanding. Then it joins the row of its generation.

    Args:
        breeder: Makes the genomes.
        settings: Algorithm and budget.
        n_objectives: Number of fitness values.
        n_curves: Number of curves in the space.
        seed: Seed of every draw.
        gradients: Which gradients are wanted; ``None`` for a search without.

    Attributes:
        evaluations: What was told, by curve, in the order of asking.
        survivors: Population and hall of fame.
        logbook: One record for each complete generation.
        outstanding: Candidates that were asked for and not told, oldest first.
    """

    def __init__(
        self,
        breeder: Breeder,
        settings: SearchSettings,
        n_objectives: int,
        n_curves: float,
        seed: int,
        gradients: Gradients | None = None,
    ) -> None:
        self._breeder = breeder
        self._settings = settings
        self._is_steady = settings.algorithm == "steady-state"
        self._gradients = gradients
        self._n_curves = n_curves
        self._seed = seed
        is_guided = settings.preselection > 1 and n_objectives == 1 and settings.algorithm != "random"
        # The model of the fitness tells curves apart by their logarithms.
        is_guided &= breeder.has_positive_curves
        self._evidence = Evidence(settings.aggregate) if is_guided else None
        with isolated_random(seed, "generation", 0):
            self._first = breeder.first_population()
        self._first_curves = breeder.curves(self._first)
        self._known: set[bytes] = set()
        self._line: deque[Candidate] = deque()
        self._queue: deque[Candidate] = deque()
        self._row: list[Candidate] = []
        self._unselected: list[Candidate] = []
        self._n_made = 0
        self._n_idle = 0
        self.evaluations: dict[bytes, Evaluation] = {}
        self.survivors = Survivors(settings.population_size, n_objectives)
        self.logbook = tools.Logbook()
        self.logbook.header = [
            "generation", "evaluations", "cached", "failed", "raced", "best", "mean", "spread",
        ]  # fmt: skip
        if gradients is not None:
            self.logbook.header.append("gradients")
        self.outstanding: deque[Candidate] = deque()
        self._advance()

    def open_generation(self) -> int:
        """Make and queue the next generation; return its number.

        With racing, the first one comes in two parts, so that all but the starting points can be raced. Gradients that
        it takes to make a part or a generation come before it.
        """
        number = self._generation_of(self._n_made)
        if self._n_made and self._ask_for_gradients(number):
            return number
        if self._gradients is not None and self._n_made == self._breeder.n_starting_points:
            self._first = self._breeder.seeded(self._first, self._gradients.seeds)
            self._first_curves = self._breeder.curves(self._first)
        size = self._settings.n_offspring if number else len(self._first) - self._n_made
        if (self._settings.racing or self._settings.gradient_seeds) and not self._n_made:
            size = self._breeder.n_starting_points
        with isolated_random(self._seed, "generation", number):
            made = [self._make() for _ in range(size)]
        self._queue.extend(candidate for candidate in made if candidate.is_new)
        self._advance()
        return number

    def _ask_for_gradients(self, generation: int) -> bool:
        """Queue the gradients that must be known before a generation is made, and return whether there are any."""
        if self._gradients is None:
            return False
        probes = self._gradients.wanted(generation, self.survivors.population)
        for probe in probes:
            candidate = Candidate(probe, probe.key.encode(), True, generation, None)
            self._line.append(candidate)
            self._queue.append(candidate)
        return bool(probes)

    def can_ask(self) -> bool:
        """Return whether there is a candidate to ask for, or a generation to open."""
        return bool(self._queue) if self._is_steady else not self.outstanding and self.stop() is None

    def ask(self, n: int | None) -> list[Candidate]:
        """Take at most ``n`` candidates with one reference from the queue; all of them when ``None``."""
        alike = takewhile(lambda candidate: candidate.reference == self._queue[0].reference, self._queue)
        asked = list(islice(alike, n))
        for _ in asked:
            self.outstanding.append(self._queue.popleft())
        return asked

    def tell(self, evaluation: Evaluation) -> None:
        """Take the evaluation of the oldest outstanding candidate."""
        self.evaluations[self.outstanding.popleft().curve] = evaluation
        self._advance()

    def stop(self) -> str | None:
        """Return why the search has ended, or ``None``."""
        return None if self._line else self._end()

    def _generation_of(self, number: int) -> int:
        return max(0, 1 + (number - len(self._first)) // self._settings.n_offspring)

    def _make(self) -> Candidate:
        """Put the next candidate in the line."""
        number = self._n_made
        if number < len(self._first):
            genome, curve = self._first[number], self._first_curves[number]
        elif self._gradients is not None and (arrival := self._gradients.arrival()) is not None:
            genome, curve = arrival, self._breeder.curves([arrival])[0]
        else:
            genome, curve = self._breeder.offspring(self.survivors.population, self._known, self._guide())
        generation = self._generation_of(number)
        candidate = Candidate(genome, curve, curve not in self._known, generation, self._scores_to_beat())
        self._n_idle = 0 if candidate.is_new else self._n_idle + 1
        self._known.add(curve)
        self._n_made += 1
        self._line.append(candidate)
        return candidate

    def _guide(self) -> Surrogate | None:
        """Return what tells offspring apart: a model of what is told that expects what is on its way."""
        surrogate = self._evidence.surrogate() if self._evidence is not None else None
        if surrogate is None:
            return None
        pending = [np.frombuffer(candidate.curve) for candidate in self._line if candidate.is_new]
        return surrogate.expecting(np.array(pending))

    def _advance(self) -> None:
        """Go along the line as far as evaluations are known; in steady-state, refill it after every one."""
        while True:
            if self._is_steady:
                self._fill_window()
            if not self._line and not self._is_steady:
                self._select()
            if self._row and self._generation_ahead() > self._row[0].generation:
                self._close_row()
            if not self._line or self._line[0].curve not in self.evaluations:
                return
            candidate = self._line.popleft()
            evaluation = self.evaluations[candidate.curve]
            if isinstance(candidate.genome, GradientProbe):
                if self._gradients is not None:
                    self._gradients.learn(candidate.genome, evaluation)
                self._row.append(candidate)
                continue
            if evaluation.status == "ok":
                candidate.genome.fitness.values = evaluation.values
            if candidate.is_new and self._evidence is not None:
                self._evidence.add(candidate.curve, evaluation, candidate.reference)
            self._row.append(candidate)
            self._unselected.append(candidate)
            if self._is_steady:
                self._select()

    def _generation_ahead(self) -> float:
        """Return the generation of the first candidate that is not told yet, made or not; infinite at the end."""
        if self._line:
            return self._line[0].generation
        return self._generation_of(self._n_made) if self._end() is None else float("inf")

    def _select(self) -> None:
        """Let the best of what was told since the last selection survive."""
        self.survivors.select(_successful(self._unselected))
        self._unselected = []

    def _fill_window(self) -> None:
        """Make the candidates that may be in flight together with the oldest one in the line."""
        while len(self._line) < self._settings.in_flight and self._end() is None:
            with isolated_random(self._seed, "candidate", self._n_made):
                candidate = self._make()
            if candidate.is_new:
                self._queue.append(candidate)

    def _end(self) -> str | None:
        """Return why no further candidate is made, or ``None``."""
        n_first = len(self._first)
        if self._n_made - len(self._line) >= n_first and not self.survivors.population:
            return "every evaluation failed"
        if self._n_made >= n_first + self._settings.n_offspring * self._settings.generations:
            return f"all {self._settings.generations} generations are done"
        if len(self._known) >= self._n_curves:
            return f"all {len(self._known)} curves of the space are evaluated"
        if self._n_idle >= _IDLE_GENERATIONS * self._settings.n_offspring:
            return f"no new curve was found among {self._n_idle} candidates"
        return None

    def _scores_to_beat(self) -> tuple[float, ...] | None:
        """Return the scores of the parent that candidates are raced against now."""
        parents = self.survivors.members
        if not self._settings.racing or not parents:
            return None
        return self.evaluations[ranked(parents, self._settings.race_against)].scores or None

    def _close_row(self) -> None:
        """End a generation and add it to the logbook."""
        new = [self.evaluations[candidate.curve] for candidate in self._row if candidate.is_new]
        n_gradients = sum(isinstance(candidate.genome, GradientProbe) for candidate in self._row)
        self.logbook.record(
            generation=self._row[0].generation,
            evaluations=len(new),
            cached=len(self._row) - len(new),
            failed=sum(evaluation.status == "failed" for evaluation in new),
            raced=sum(evaluation.status == "raced" for evaluation in new),
            **self.survivors.statistics(),
            **({} if self._gradients is None else {"gradients": n_gradients}),
        )
        self._row = []


def _successful(candidates: Sequence[Candidate]) -> dict[bytes, BezierGenome]:
    """Return the genomes that were evaluated with success, by curve; each curve counts once in a search."""
    return {
        candidate.curve: candidate.genome
        for candidate in candidates
        if candidate.is_new and candidate.genome.fitness.valid
    }
