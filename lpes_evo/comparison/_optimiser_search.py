"""Optimisers of other packages as an algorithm of a search."""

from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from math import ceil
from typing import Any

from lpes_evo.comparison._optimisers import Optimiser, Proposal
from lpes_evo.comparison._unit_cube import UnitCube
from lpes_evo.config import SearchSettings
from lpes_evo.operators import BezierGenome, CurveSpace
from lpes_evo.search import (
    Algorithm,
    Candidate,
    Evaluation,
    GradientProbe,
    Progress,
    Request,
    Search,
    curve_keys,
    starting_points,
)

# As many tries for a new curve as the genetic algorithm has.
_MOST_PROPOSALS = 20


class OptimiserAlgorithm(Algorithm):
    """Proposes the starting points of every search, then what an optimiser of the unit cube proposes.

    Each point of the cube becomes the feasible genome nearest to it. The optimiser learns the fitness batch by batch,
    the starting points first. It has one objective. Of a curve that breaks a guard it learns the least fitness of those
    that keep all, minus the violation (Deb, "An efficient constraint handling method for genetic algorithms", Computer
    Methods in Applied Mechanics and Engineering 186, 2000, eq. 4), so that such a curve is worse than all of them.

    Args:
        space: The curves.
        settings: Number of constant curves, and budget.
        optimiser: The class of the optimiser, see `lpes_evo.comparison.OPTIMISERS`.
        seed: Seed of the search.
        **options: As for `lpes_evo.search.Algorithm`.

    Raises:
        ConfigError: The package of the optimiser is not installed.
        CurveError: A genome of ``initial`` is not feasible.
    """

    def __init__(
        self,
        space: CurveSpace,
        settings: SearchSettings,
        *,
        optimiser: type[Optimiser],
        seed: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(space, settings, seed=seed, **options)
        self._cube = UnitCube(space)
        self._optimiser = optimiser(self._cube.n_dimensions, seed)
        self._batch_size = optimiser.batch_size(self._cube.n_dimensions)
        self._standings: dict[bytes, tuple[float, float] | None] = {}
        # Proposals whose fitness the optimiser waits for, oldest first, with the keys of their curves.
        self._open: deque[tuple[Proposal, bytes]] = deque()

    def propose(self, progress: Progress) -> Iterable[Request]:
        """Yield the starting points, or a batch of what the optimiser proposes."""
        if not progress.n_candidates:
            for genome in self.starting_points:
                yield Candidate(genome)
            return

        self._learn(progress)
        for _ in range(self._batch_size):
            proposal, genome, curve = self._new_proposal(progress)
            self._open.append((proposal, curve))
            yield Candidate(genome)

    def observe(self, request: Request, evaluation: Evaluation) -> None:
        """Keep violation and fitness of a curve; ``None`` where it failed."""
        if isinstance(request, GradientProbe):
            return
        (curve,) = curve_keys(self.space, [request.genome])
        self._standings[curve] = evaluation.standing if evaluation.status == "ok" else None

    def _fitness(self, curve: bytes) -> float | None:
        """Return what the optimiser is told of a curve by now; ``None`` where it failed or is not known."""
        standing = self._standings.get(curve)
        if standing is None:
            return None
        loss, fitness = standing
        if not loss:
            return fitness

        known = [pair for pair in self._standings.values() if pair is not None]
        keeping = [value for loss_of, value in known if not loss_of]
        return min(keeping or [value for _, value in known]) + loss

    def _new_proposal(self, progress: Progress) -> tuple[Proposal, BezierGenome, bytes]:
        """Return a proposal with its genome and curve; after some whose curve is known, whatever comes last."""
        for _ in range(_MOST_PROPOSALS - 1):
            proposal, genome, curve = self._next_proposal()
            if curve not in progress.known:
                return proposal, genome, curve
            self._optimiser.dismiss(proposal, self._fitness(curve))
        return self._next_proposal()

    def _next_proposal(self) -> tuple[Proposal, BezierGenome, bytes]:
        proposal = self._optimiser.propose()
        genome = self._cube.genome(proposal.vector)
        return proposal, genome, curve_keys(self.space, [genome])[0]

    def _learn(self, progress: Progress) -> None:
        """Hand what was observed to the optimiser: the starting points first, then whole batches."""
        if progress.n_candidates == self.n_first:
            points = self.starting_points
            fitness = [self._fitness(curve) for curve in curve_keys(self.space, points)]
            self._optimiser.start([self._cube.vector(point) for point in points], fitness)
        if self._open:
            proposals, curves = zip(*self._open, strict=True)
            self._optimiser.learn(proposals, [self._fitness(curve) for curve in curves])
            self._open.clear()


class OptimiserSearch(Search):
    """A search whose genomes are proposed by an optimiser that knows nothing of curves.

    All promises of `lpes_evo.search.Search` hold: it is a function of its seed and of what it is told, asks for no
    curve twice, and leaves the caller's random generators alone. So `lpes_evo.drive`, the journal, resume and
    `lpes_evo.Evaluator` take it as they are. It has one objective, and nothing is raced.

    Args:
        optimiser: The class of the optimiser, see `lpes_evo.comparison.OPTIMISERS`.
        space: The curves.
        n_evaluations: Evaluations after which it stops, to the end of a batch.
        settings: Aggregate, constants, population and failures; of the rest nothing is used. The defaults when
            ``None``.
        seed: Seed of every random draw.
        initial: Genomes to start from, feasible in ``space``.

    Raises:
        ConfigError: The package of the optimiser is not installed, or the seed is not an integer.
        CurveError: A genome of ``initial`` is not feasible.
    """

    def __init__(
        self,
        optimiser: type[Optimiser],
        space: CurveSpace,
        n_evaluations: int,
        settings: SearchSettings | None = None,
        *,
        seed: int = 0,
        initial: Sequence[BezierGenome] = (),
    ) -> None:
        given = settings if settings is not None else SearchSettings()
        batch = optimiser.batch_size(UnitCube(space).n_dimensions)
        n_first = len(starting_points(space, given, initial))

        # A generation of the budget is a batch of the optimiser.
        own = {
            "algorithm": "ga",
            "preselection": 1,
            "racing": False,
            "gradient_seeds": 0,
            "gradient_mutation": 0.0,
            "offspring_size": batch,
            "generations": ceil(max(0, n_evaluations - n_first) / batch),
        }
        limited = SearchSettings(**given.model_dump() | own)
        super().__init__(
            space,
            limited,
            seed=seed,
            initial=initial,
            algorithm=partial(OptimiserAlgorithm, optimiser=optimiser),
        )
