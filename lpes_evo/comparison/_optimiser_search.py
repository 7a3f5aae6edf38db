"""An optimiser of another package behind the ask and tell of our search."""

from collections.abc import Collection, Mapping, Sequence
from math import ceil

import numpy as np

from lpes_evo.comparison._cube import Cube
from lpes_evo.comparison._optimisers import Optimiser, Proposal
from lpes_evo.config import SearchSettings
from lpes_evo.operators import BezierGenome, CurveSpace
from lpes_evo.search import Breeder, CandidateLine, Evaluation, Search, Surrogate, check_seed

# As often our own breeding tries for a curve that is new.
_MOST_PROPOSALS = 20


class OptimiserSearch(Search):
    """A search whose genomes are proposed by an optimiser that knows nothing of curves.

    It begins with the starting points of every search (identity, constants and the caller's own genomes) and then asks
    for what the optimiser proposes, moved to the nearest feasible genome. All promises of `Search` hold: it is a
    function of its seed and of what it is told, asks for no curve twice, and leaves the caller's random generators
    alone. So `lpes_evo.drive`, the journal, resume and `lpes_evo.Evaluator` take it as they are. It has one objective,
    and nothing is raced.

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
        cube = Cube(space)
        batch = optimiser.batch_size(cube.n_dimensions)
        plain = {"algorithm": "ga", "preselection": 1, "racing": False, "offspring_size": batch}
        unlimited = SearchSettings(**given.model_dump() | plain)
        breeder = _Proposals(optimiser(cube.n_dimensions, check_seed(seed)), cube, space, unlimited, initial)
        n_batches = ceil(max(0, n_evaluations - breeder.n_starting_points) / batch)
        limited = SearchSettings(**unlimited.model_dump() | {"generations": n_batches})
        super().__init__(space, limited, seed=seed, initial=initial)
        self._candidates = CandidateLine(breeder, limited, 1, space.n_curves, check_seed(seed))
        breeder.results = self._candidates.evaluations


class _Proposals(Breeder):
    """Makes genomes of the proposals of an optimiser.

    Attributes:
        results: What is told, by curve.
    """

    def __init__(
        self,
        optimiser: Optimiser,
        cube: Cube,
        space: CurveSpace,
        settings: SearchSettings,
        initial: Sequence[BezierGenome],
    ) -> None:
        super().__init__(space, settings, (1.0,), initial)
        self._optimiser = optimiser
        self._cube = cube
        self._batch_size = optimiser.batch_size(cube.n_dimensions)
        self._has_started = False
        self._open: list[tuple[Proposal, bytes]] = []
        self.results: Mapping[bytes, Evaluation] = {}

    def first_population(self) -> list[BezierGenome]:
        """Return the starting points alone."""
        return [self.clone(genome) for genome in self._starting_points]

    def offspring(
        self,
        parents: Sequence[BezierGenome],  # noqa: ARG002
        taken: Collection[bytes],
        guide: Surrogate | None = None,  # noqa: ARG002
    ) -> tuple[BezierGenome, bytes]:
        """Return the genome of a proposal and its curve; after some that are known, whatever comes last."""
        self._learn()
        for _ in range(_MOST_PROPOSALS - 1):
            proposal, genome, curve = self._propose()
            if curve not in taken:
                break
            self._optimiser.dismiss(proposal, self._fitness(curve))
        else:
            proposal, genome, curve = self._propose()
        self._open.append((proposal, curve))
        return genome, curve

    def _propose(self) -> tuple[Proposal, BezierGenome, bytes]:
        proposal = self._optimiser.propose()
        genome = self._cube.genome(proposal.vector)
        return proposal, genome, self.curves([genome])[0]

    def _learn(self) -> None:
        """Hand what is told to the optimiser: the starting points first, then batch by batch."""
        if not self._has_started:
            points = self._starting_points
            fitness = [self._fitness(curve) for curve in self.curves(points)]
            self._optimiser.start([self._cube.vector(point) for point in points], fitness)
            self._has_started = True
        if len(self._open) >= self._batch_size:
            proposals, curves = zip(*self._open, strict=True)
            self._optimiser.learn(proposals, [self._fitness(curve) for curve in curves])
            self._open = []

    def _fitness(self, curve: bytes) -> float | None:
        """Return the fitness of a curve; ``None`` where it failed or is not told yet."""
        evaluation = self.results.get(curve)
        if evaluation is None or evaluation.status != "ok":
            return None
        return float(np.mean(evaluation.values))
