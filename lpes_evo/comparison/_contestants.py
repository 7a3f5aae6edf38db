"""Contestants: our searches, optimisers of other packages, and our default search on other curves."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from lpes_evo.comparison._optimiser_search import OptimiserSearch
from lpes_evo.comparison._optimisers import OPTIMISERS
from lpes_evo.config import SearchSettings
from lpes_evo.errors import ConfigError
from lpes_evo.operators import CurveKind, CurveSpace
from lpes_evo.search import Search

_AMPLITUDES = (0.05, 0.1, 0.25, 0.5, 1.0)


def _as_given(space: CurveSpace) -> CurveSpace:
    return space


@dataclass(frozen=True)
class Contestant:
    """A search that takes part in a comparison.

    Attributes:
        name: The name on the command line, in tables and in file names.
        label: The name in pictures.
        algorithm: A name of `lpes_evo.search.ALGORITHMS`, or of `OPTIMISERS`.
        space_of: Function that turns the curves of an arena into those that are searched.
        preselection: Its own value of `SearchSettings.preselection`; that of the comparison when ``None``.
    """

    name: str
    label: str
    algorithm: str = "ga"
    space_of: Callable[[CurveSpace], CurveSpace] = _as_given
    preselection: int | None = None

    def settings(self, settings: SearchSettings, n_evaluations: int) -> SearchSettings:
        """Return the settings with which a search of ours makes ``n_evaluations`` evaluations.

        Args:
            settings: Sizes and probabilities of the comparison.
            n_evaluations: Number of evaluations, rounded up to the end of a generation.

        Raises:
            ConfigError: There are fewer evaluations than a first population has.
        """
        if n_evaluations < settings.population_size:
            raise ConfigError(
                f"Expected n_evaluations of at least the population_size = {settings.population_size}, "
                f"but got {n_evaluations}. Ask for more evaluations."
            )

        generations = ceil((n_evaluations - settings.population_size) / settings.offspring_size)
        own: dict[str, Any] = {"generations": generations}
        if self.algorithm not in OPTIMISERS:
            own["algorithm"] = self.algorithm
        if self.preselection is not None:
            own["preselection"] = self.preselection
        return SearchSettings(**settings.model_dump() | own)

    def search(
        self,
        space: CurveSpace,
        settings: SearchSettings,
        n_evaluations: int,
        *,
        seed: int,
        groups: Sequence[str],
    ) -> Search:
        """Return a search for an arena.

        Args:
            space: The curves of the arena.
            settings: Sizes and probabilities; the contestant has its own algorithm and number of generations.
            n_evaluations: Number of evaluations that it may make, rounded up to the end of a generation or batch.
            seed: Seed of every draw.
            groups: Set of each example, ``(n_examples,)``; NSGA-II has an objective for each set.

        Raises:
            ConfigError: Too few evaluations, or a package is missing.
            CurveError: The space cannot be made from that of the arena.
        """
        searched, own = self.space_of(space), self.settings(settings, n_evaluations)
        if self.algorithm in OPTIMISERS:
            return OptimiserSearch(OPTIMISERS[self.algorithm], searched, n_evaluations, own, seed=seed)
        n_objectives = len(set(groups)) if own.objectives == "groups" else 1
        return Search(searched, own, seed=seed, n_objectives=n_objectives)


REFERENCE = "ga"
"""The contestant that all others are compared with: the default of ``lpes-evo search``."""

CONTESTANTS = {
    contestant.name: contestant
    for contestant in (
        Contestant("ga", "GA (default)"),
        Contestant("plain-ga", "GA without preselection", preselection=1),
        Contestant("steady-state", "steady-state GA", "steady-state"),
        Contestant("nsga2", "NSGA-II", "nsga2"),
        Contestant("random", "random search", "random"),
        Contestant("cma-es", "CMA-ES", "cma-es"),
        Contestant("cma-es-wide", "CMA-ES, wide first steps", "cma-es-wide"),
        Contestant("tpe", "TPE", "tpe"),
        Contestant("free-ga", "GA on free scales", space_of=CurveSpace.free),
    )
}
"""The contestants of ``lpes-evo compare`` by name."""


def ablations(space: CurveSpace) -> dict[str, Contestant]:
    """Return our default search on other curves than the default ones, by name.

    Args:
        space: The curves of the arena; each variant changes one property of this space.

    Returns:
        ``default`` first, then 2 to 8 control points of each kind of curve, amplitude bounds as shares of the range of
        scales, and x that are free or even. Kinds that draw the same curves are tried once: a cubic spline of up to 4
        points is the Bezier curve, as are linear pieces of 2. A variant that equals an earlier space is left out too.
    """
    variants: dict[str, CurveSpace] = {"default": space}
    for n_points in range(2, 9):
        for curve in _kinds(n_points):
            variants[f"{curve}-{n_points}"] = dataclasses.replace(space, n_points=n_points, curve=curve)
    for share in _AMPLITUDES:
        variants[f"amplitude-{share:g}"] = dataclasses.replace(space, max_delta=_amplitude(space, share))
    variants["x-free"] = dataclasses.replace(space, x_rule="free")
    variants["x-even"] = dataclasses.replace(space, x_rule="even")

    distinct: dict[CurveSpace, str] = {}
    for name, variant in variants.items():
        distinct.setdefault(variant, name)
    return {name: Contestant(name, name, space_of=_Fixed(variant)) for variant, name in distinct.items()}


@dataclass(frozen=True)
class _Fixed:
    """Function that returns one space, whatever the space of the arena."""

    space: CurveSpace

    def __call__(self, _space: CurveSpace) -> CurveSpace:
        return self.space


def _kinds(n_points: int) -> tuple[CurveKind, ...]:
    """Return the kinds of curves that differ for a number of points."""
    if n_points == 2:
        return ("bezier",)
    return ("bezier", "linear") if n_points <= 4 else ("bezier", "linear", "spline")


def _amplitude(space: CurveSpace, share: float) -> float:
    """Return a share of the range of scales, in whole steps of the grid and at least one."""
    if space.y_step is None:
        return share * (space.y_axis.high - space.y_axis.low)
    return max(1, round(share * space.y_axis.n_steps)) * space.y_step
