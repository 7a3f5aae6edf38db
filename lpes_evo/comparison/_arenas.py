"""Arenas: the problems on which searches are compared, analytic ones with a new draw for every seed, and a model."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from lpes_evo.config import SearchSettings, settings_hash
from lpes_evo.execution import Evaluator
from lpes_evo.operators import CurveSpace
from lpes_evo.problems import BrachistochroneProblem, Problem, TargetCurveProblem
from lpes_evo.runs import UNITS, JobFacts, describe, search_problem
from lpes_evo.workers import Pool

_N_LAYERS = 32
# The smallest scale of the default space; every target lies inside that space.
_SMALLEST_SCALE = 0.5


class Arena(ABC):
    """A problem that every contestant searches with the same seeds.

    Attributes:
        name: The name on the command line and in file names.
        unit: Unit of the fitness.
        space: The curves that are searched by default.
    """

    name: str
    unit: str
    space: CurveSpace

    @abstractmethod
    def evaluator(self, space: CurveSpace, settings: SearchSettings, seed: int) -> Evaluator:
        """Return the evaluator of genomes of a space on the problem of a seed."""

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Return what must agree for a journal to be resumed in this arena, as `json` can write it."""


@dataclass(frozen=True)
class AnalyticArena(Arena):
    """A problem without a model, a different one for each seed.

    Attributes:
        name: ``target``, ``rough`` or ``brachistochrone``.
        unit: Unit of the fitness.
        space: The curves that are searched by default.
    """

    name: str
    unit: str
    space: CurveSpace = field(default_factory=lambda: CurveSpace(_N_LAYERS))

    def problem(self, seed: int) -> Problem:
        """Return the problem of a seed."""
        if self.name == "brachistochrone":
            drop = 0.3 + 0.7 * float(np.random.default_rng(seed).random())
            return BrachistochroneProblem(self.space.n_layers, drop=drop)
        return TargetCurveProblem(_target(seed, self.space.n_layers, is_rough=self.name == "rough"))

    def evaluator(self, space: CurveSpace, settings: SearchSettings, seed: int) -> Evaluator:
        """Return an evaluator in this process."""
        return Evaluator(self.problem(seed), space, settings)

    def identity(self) -> dict[str, Any]:
        """Return the name; the problem follows from name and seed."""
        return {"arena": self.name}


def _target(seed: int, n_layers: int, *, is_rough: bool) -> npt.NDArray[np.float64]:
    """Return scales as searches find them: a smooth bend, or a bend from which three layers stand out.

    On SmolLM2-135M, gradients on free scales single out a few layers (0.66, 0.78, 0.85 among values near 1).
    """
    rng = np.random.default_rng(seed)
    depth = np.linspace(0, 1, n_layers)
    bend, centre, width = rng.uniform(-0.3, 0.3), rng.uniform(0.2, 0.8), rng.uniform(0.15, 0.4)
    target = rng.uniform(0.9, 1.2) + bend * np.exp(-(((depth - centre) / width) ** 2))

    if is_rough:
        outliers = rng.choice(n_layers, 3, replace=False)
        target[outliers] = np.maximum(target[outliers] - rng.uniform(0.15, 0.35, 3), _SMALLEST_SCALE)
    return np.asarray(target, dtype=np.float64)


ANALYTIC = {
    arena.name: arena
    for arena in (
        AnalyticArena("target", "mean squared error, negative"),
        AnalyticArena("rough", "mean squared error, negative"),
        AnalyticArena(
            "brachistochrone",
            "seconds, negative",
            CurveSpace(_N_LAYERS, y_min=0.02, y_max=1.32, y_step=0.01, max_delta=0.5),
        ),
    )
}
"""The analytic arenas by name."""

MODEL = "model"
"""The name of the arena that is a model."""


class ModelArena(Arena):
    """A model under a task, with the same examples for every seed.

    Args:
        pool: A pool whose workers hold the job of a run.

    Attributes:
        job: The facts of the job.
        pool: The pool.
    """

    name = MODEL

    def __init__(self, pool: Pool) -> None:
        self.job: JobFacts = pool.call(describe)
        self.pool = pool
        self.space = self.job.space
        self.unit = UNITS[self.job.config.task.metric]

    def evaluator(self, space: CurveSpace, settings: SearchSettings, seed: int) -> Evaluator:  # noqa: ARG002
        """Return the evaluator of a run."""
        # A steady-state search proposes one candidate at a time, so that none shares a pass.
        n_candidates = (
            None if settings.algorithm == "steady-state" else self.job.config.task.candidates_per_pass
        )
        return Evaluator(self.pool, space, settings, n_candidates=n_candidates, problem_of=search_problem)

    def identity(self) -> dict[str, Any]:
        """Return the identity of a run."""
        return {"arena": self.name, **self.job.identity, "config": settings_hash(self.job.config)}


def arena_names() -> Sequence[str]:
    """Return the names of all arenas."""
    return [*ANALYTIC, MODEL]
