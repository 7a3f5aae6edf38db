"""Optimisers of the unit cube from other packages: CMA-ES of `cma`, tree-structured Parzen estimator of `optuna`."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from math import log
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from lpes_evo.errors import ConfigError, install_command

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Proposal:
    """A point whose fitness an optimiser asks for.

    Attributes:
        vector: The point in the unit cube, ``(n_dimensions,)``.
        handle: The object that stands for the point in the package of the optimiser.
    """

    vector: FloatArray
    handle: Any = None


class Optimiser(ABC):
    """An optimiser that proposes points of the unit cube one by one and learns their fitness batch by batch.

    A larger fitness is better. `lpes_evo.comparison.OptimiserAlgorithm` makes it an algorithm of a search.

    Args:
        n_dimensions: Dimensions of the cube.
        seed: Seed of the draws that do not come from NumPy's global generator.

    Attributes:
        package: Name of the package, on whose version a result depends; ``None`` for an optimiser without a package.
    """

    package: ClassVar[str | None] = None

    @abstractmethod
    def __init__(self, n_dimensions: int, seed: int) -> None: ...

    @staticmethod
    @abstractmethod
    def batch_size(n_dimensions: int) -> int:
        """Return the number of proposals of a batch."""

    @abstractmethod
    def start(self, vectors: Sequence[FloatArray], fitness: Sequence[float | None]) -> None:
        """Take the points that are known at the beginning.

        Args:
            vectors: The points, each ``(n_dimensions,)``.
            fitness: Fitness of each point; ``None`` where the evaluation failed.
        """

    @abstractmethod
    def propose(self) -> Proposal:
        """Return a point."""

    @abstractmethod
    def learn(self, proposals: Sequence[Proposal], fitness: Sequence[float | None]) -> None:
        """Take the fitness of a batch.

        Args:
            proposals: The proposals of the batch.
            fitness: Fitness of each proposal; ``None`` where the evaluation failed.
        """

    @abstractmethod
    def dismiss(self, proposal: Proposal, fitness: float | None) -> None:
        """Take note that a proposal is not evaluated, because its curve was proposed before.

        Args:
            proposal: The proposal.
            fitness: Fitness of the curve; ``None`` where it failed or is not known yet.
        """


class CmaEs(Optimiser):
    """The covariance matrix adaptation evolution strategy (Hansen, "The CMA Evolution Strategy: A Tutorial", 2016).

    The settings are those of `cma`. The start is the best known point, with first steps of a tenth of the cube, which
    is about the distance between the constant curves. After convergence, CMA-ES starts again from a random point.

    Attributes:
        first_step: Standard deviation of the first draws, as share of the cube.
    """

    package = "cma"
    first_step = 0.1

    def __init__(self, n_dimensions: int, seed: int) -> None:  # noqa: ARG002
        self._cma = _package("cma")
        self._n_dimensions = n_dimensions
        self._strategy: Any = None

    @staticmethod
    def batch_size(n_dimensions: int) -> int:
        """Return the default population of `cma`."""
        return 4 + int(3 * log(n_dimensions))

    def start(self, vectors: Sequence[FloatArray], fitness: Sequence[float | None]) -> None:
        """Begin at the best of the points."""
        known = [(value, number) for number, value in enumerate(fitness) if value is not None]
        self._begin(vectors[max(known)[1]] if known else np.full(self._n_dimensions, 0.5))

    def propose(self) -> Proposal:
        """Draw a point from the distribution as it is."""
        return Proposal(np.array(self._strategy.ask(1)[0]))

    def learn(self, proposals: Sequence[Proposal], fitness: Sequence[float | None]) -> None:
        """Adapt the distribution; a failed point counts as the worst of its batch."""
        known = [value for value in fitness if value is not None]
        if not known:
            return
        losses = [-(min(known) if value is None else value) for value in fitness]
        self._strategy.tell([proposal.vector for proposal in proposals], losses)
        if self._strategy.stop():
            self._begin(np.random.random(self._n_dimensions))

    def dismiss(self, proposal: Proposal, fitness: float | None) -> None:
        """Do nothing: the next draw from the same distribution takes the place of the proposal."""

    def _begin(self, centre: FloatArray) -> None:
        """Start a strategy around a point, ``(n_dimensions,)``."""
        options = {
            "bounds": [0, 1],
            "popsize": self.batch_size(self._n_dimensions),
            "verbose": -9,
            # The search seeds NumPy's global generator before every batch, so the package must not.
            "seed": np.nan,
        }
        self._strategy = self._cma.CMAEvolutionStrategy(np.clip(centre, 0.0, 1.0), self.first_step, options)


class WideCmaEs(CmaEs):
    """CMA-ES with first steps of a quarter of the cube, for optima that may be far from every constant curve."""

    first_step = 0.25


class Tpe(Optimiser):
    """The tree-structured Parzen estimator (Bergstra et al., "Algorithms for hyper-parameter optimization", 2011).

    The sampler is that of `optuna` with its default settings; it learns after every evaluation.
    """

    package = "optuna"

    def __init__(self, n_dimensions: int, seed: int) -> None:
        self._optuna = _package("optuna")
        with self._quiet():
            sampler = self._optuna.samplers.TPESampler(seed=seed % 2**32)
            self._study = self._optuna.create_study(direction="maximize", sampler=sampler)
        self._distributions = {
            f"u{number}": self._optuna.distributions.FloatDistribution(0.0, 1.0)
            for number in range(n_dimensions)
        }

    @staticmethod
    def batch_size(n_dimensions: int) -> int:  # noqa: ARG004
        """Return 1: every evaluation is learned at once."""
        return 1

    def start(self, vectors: Sequence[FloatArray], fitness: Sequence[float | None]) -> None:
        """Add the points as trials."""
        with self._quiet():
            for vector, value in zip(vectors, fitness, strict=True):
                if value is not None:
                    parameters = dict(zip(self._distributions, vector.tolist(), strict=True))
                    trial = self._optuna.trial.create_trial(
                        params=parameters, distributions=self._distributions, value=value
                    )
                    self._study.add_trial(trial)

    def propose(self) -> Proposal:
        """Begin a trial."""
        with self._quiet():
            trial = self._study.ask(self._distributions)
        return Proposal(np.array([trial.params[name] for name in self._distributions]), trial)

    def learn(self, proposals: Sequence[Proposal], fitness: Sequence[float | None]) -> None:
        """End the trials."""
        for proposal, value in zip(proposals, fitness, strict=True):
            self.dismiss(proposal, value)

    def dismiss(self, proposal: Proposal, fitness: float | None) -> None:
        """End the trial, with the fitness that is known for the same curve."""
        with self._quiet():
            if fitness is None:
                self._study.tell(proposal.handle, state=self._optuna.trial.TrialState.FAIL)
            else:
                self._study.tell(proposal.handle, fitness)

    @contextmanager
    def _quiet(self) -> Iterator[None]:
        """Silence the messages of the package in a block, and restore the verbosity of the caller."""
        before = self._optuna.logging.get_verbosity()
        self._optuna.logging.set_verbosity(self._optuna.logging.ERROR)
        try:
            yield
        finally:
            self._optuna.logging.set_verbosity(before)


OPTIMISERS: dict[str, type[Optimiser]] = {"cma-es": CmaEs, "cma-es-wide": WideCmaEs, "tpe": Tpe}
"""The optimisers by name."""


def _package(name: str) -> Any:
    """Import a package of the extra.

    Raises:
        ConfigError: It is not installed.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise ConfigError(
            f"Expected the package {name!r} of the extra [compare], but it cannot be imported: {error}. "
            f"Run in the clone: {install_command('compare')}, or leave its optimiser out."
        ) from error
