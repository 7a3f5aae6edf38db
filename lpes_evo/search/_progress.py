"""Progress: the books of a search, which its algorithm reads."""

from collections import Counter, deque
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deap import tools

from lpes_evo.config import SearchSettings
from lpes_evo.errors import ConfigError
from lpes_evo.operators import BezierGenome, CurveSpace
from lpes_evo.search._curves import curve_keys
from lpes_evo.search._evaluation import Evaluation
from lpes_evo.search._requests import Candidate, GradientProbe, Request
from lpes_evo.search._survival import Survivors, ranked

if TYPE_CHECKING:
    from lpes_evo.search._algorithm import Algorithm


@dataclass
class Entry:
    """A request on its way through a search.

    Attributes:
        request: The request, as the algorithm made it.
        asked: What the caller of the search evaluates: the search's own copy of the genome, or the probe.
        curve: The key of the curve that is drawn; of a probe, the key of the probe.
        is_new: Whether the curve was unknown before, so that it is evaluated.
        generation: The generation it counts for.
        is_asked: Whether the caller has it.
    """

    request: Request
    asked: BezierGenome | GradientProbe
    curve: bytes
    is_new: bool
    generation: int
    is_asked: bool = False

    @property
    def is_probe(self) -> bool:
        """Whether a gradient is wanted."""
        return isinstance(self.asked, GradientProbe)

    @property
    def reference(self) -> tuple[float, ...] | None:
        """Scores it is raced against."""
        return self.request.reference if isinstance(self.request, Candidate) else None


class Progress:
    """Everything that a search knows; an algorithm reads it, and the search alone changes it.

    Requests stand in one line from their proposal until they and all before them are evaluated.

    Args:
        space: The curves.
        settings: Sizes and budget.
        algorithm: What chooses the candidates.
        n_objectives: Number of fitness values.
        counts_gradients: Whether the logbook has a column for gradients.
        is_guarded: Whether the logbook has columns for broken guards.

    Attributes:
        n_candidates: Number of candidates so far, those whose curve was known among them.
        n_observed: Number of requests that were observed.
        n_idle: Number of candidates since the last one that drew a new curve.
        evaluations: The evaluations so far by the key of their curve, see `curve_keys`, in the order of proposals.
        survivors: Population and hall of fame.
        logbook: One DEAP record for each complete generation.
    """

    def __init__(
        self,
        space: CurveSpace,
        settings: SearchSettings,
        algorithm: "Algorithm",
        *,
        n_objectives: int,
        counts_gradients: bool,
        is_guarded: bool,
    ) -> None:
        self._space = space
        self._settings = settings
        self._algorithm = algorithm
        self._weights = (1.0,) * n_objectives
        self._counts_gradients = counts_gradients
        self._is_guarded = is_guarded
        self._line: deque[Entry] = deque()
        self._known: set[bytes] = set()
        # What was observed of the generation that is open.
        self._row: Counter[str] = Counter()
        self._row_generation = 0
        self.n_candidates = 0
        self.n_observed = 0
        self.n_idle = 0
        self.evaluations: dict[bytes, Evaluation] = {}
        self.survivors = Survivors(settings.population_size, n_objectives)
        self.logbook = tools.Logbook()
        self.logbook.header = [
            "generation", "evaluations", "cached", "failed", "raced", "best", "mean", "spread",
        ]  # fmt: skip
        if counts_gradients:
            self.logbook.header.append("gradients")
        if is_guarded:
            self.logbook.header += ["violating", "violation"]

    @property
    def population(self) -> Sequence[BezierGenome]:
        """The survivors with their fitness, best first for one objective."""
        return self.survivors.population

    @property
    def known(self) -> Set[bytes]:
        """The key of every curve that was proposed so far, see `curve_keys`."""
        return self._known

    @property
    def pending(self) -> list[bytes]:
        """The keys of the curves that are not evaluated yet, oldest first."""
        return [entry.curve for entry in self._line if entry.is_new and not entry.is_probe]

    @property
    def generation(self) -> int:
        """Number of the generation that the next candidate counts for."""
        return max(0, 1 + (self.n_candidates - self._algorithm.n_first) // self._settings.n_offspring)

    @property
    def reference(self) -> tuple[float, ...] | None:
        """Scores of the parent that candidates are raced against now, ``(n_examples,)``; ``None`` without a race.

        Nothing is raced against a parent that breaks a guard: a candidate with a smaller fitness may still be better.
        """
        parents = self.survivors.members
        if not self._settings.racing or not parents:
            return None
        parent = self.evaluations[ranked(parents, self._settings.race_against)]
        return None if parent.violation else parent.scores or None

    # What follows is for the search.

    @property
    def line(self) -> Sequence[Entry]:
        """The requests that are not observed yet, oldest first."""
        return self._line

    def enter(self, request: Request) -> None:
        """Put a request at the end of the line.

        Raises:
            ConfigError: It is neither a candidate nor a gradient probe.
            CurveError: The genome of a candidate is not feasible.
        """
        if isinstance(request, GradientProbe):
            key = request.key.encode()
            is_new = key not in self.evaluations and all(entry.curve != key for entry in self._line)
            self._line.append(Entry(request, request, key, is_new, self.generation))
            # An algorithm that asks for the same gradient again and again is idle.
            self.n_idle += not is_new
            return
        if not isinstance(request, Candidate):
            raise ConfigError(
                f"Expected an algorithm to propose Candidate or GradientProbe objects, but got {request!r:.80}. "
                "Wrap each genome: Candidate(genome)."
            )

        genome = BezierGenome(request.genome, self._weights)
        self._space.check(genome)
        (curve,) = curve_keys(self._space, [genome])
        is_new = curve not in self._known
        self._line.append(Entry(request, genome, curve, is_new, self.generation))
        self._known.add(curve)
        self.n_candidates += 1
        self.n_idle = 0 if is_new else self.n_idle + 1

    def next_evaluated(self) -> Entry | None:
        """Take the head out of the line if its evaluation is known, and count it for its generation."""
        if not self._line or self._line[0].curve not in self.evaluations:
            return None
        entry = self._line.popleft()
        evaluation = self.evaluations[entry.curve]
        self.n_observed += 1

        self._row_generation = entry.generation
        self._row["all"] += 1
        if entry.is_new:
            self._row["evaluations"] += 1
            self._row[evaluation.status] += 1
            self._row["violating"] += evaluation.violation > 0
        if entry.is_probe:
            self._row["gradients"] += 1
        elif entry.is_new and evaluation.status == "ok" and isinstance(entry.asked, BezierGenome):
            entry.asked.fitness.values = evaluation.values
            entry.asked.fitness.violation = evaluation.violation
            self.survivors.add(entry.curve, entry.asked)
        return entry

    def close_generations(self, *, has_ended: bool) -> None:
        """Write the open generation to the logbook once none of its requests is to come.

        Args:
            has_ended: Whether nothing more will be proposed.
        """
        ahead = self._line[0].generation if self._line else self.generation
        is_complete = ahead > self._row_generation or (has_ended and not self._line)
        if not self._row or not is_complete:
            return

        row = self._row
        self.logbook.record(
            generation=self._row_generation,
            evaluations=row["evaluations"],
            cached=row["all"] - row["evaluations"],
            failed=row["failed"],
            raced=row["raced"],
            **self.survivors.statistics(),
            **({"gradients": row["gradients"]} if self._counts_gradients else {}),
            **self._guard_columns(),
        )
        self._row = Counter()

    def _guard_columns(self) -> dict[str, float | None]:
        """Return the evaluations of the open generation that broke a guard, and the violation of the best survivor."""
        if not self._is_guarded:
            return {}
        return {"violating": self._row["violating"], "violation": self.survivors.least_violation()}
