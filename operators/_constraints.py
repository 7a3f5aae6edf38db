"""CurveConstraints: bounds, grid, order and amplitude of feasible curves, and the check of a genome against them."""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from itertools import pairwise
from operator import sub
from typing import Literal, get_args

import numpy as np

from lpes_evo.operators._axis import Axis, on_grid
from lpes_evo.operators._checks import finite, is_finite, is_sequence, shown, whole
from lpes_evo.operators._errors import CurveError

_WHOLE_TOLERANCE = 1e-6
# A grid is kept as a table.
_MAX_STEPS = 100_000
# Up to here decoding agrees with de Casteljau's scheme to 1e-14 and the exact nearest genome takes seconds;
# the Bernstein weights overflow from about 1,000 points.
_MAX_POINTS = 32
# The other curves are local in their points; their limit keeps the exact nearest genome within minutes.
_MAX_LOCAL_POINTS = 256

CurveKind = Literal["bezier", "linear", "spline"]
XRule = Literal["sorted", "free", "even"]


@dataclass(frozen=True)
class CurveConstraints:
    """The constraints on control points ``(x_k, y_k)`` of a feasible curve, and their form as whole grid steps.

    x runs over the layers from ``x_0 = 0`` to ``x_last = n_layers - 1`` by the rule ``x_rule``. y lies within its
    bounds and on its grid, and neighbouring y differ by at most ``max_delta``. The operators work on the indices of
    the grid values, where these rules are exact. `CurveSpace` is the class to use.

    Attributes:
        n_layers: Number of layers, at least 1.
        n_points: Number of control points, from 2 to 32 for a Bezier curve, of which 4 make a cubic, and to 256 for
            the others.
        y_min: Smallest value of a control point.
        y_max: Largest value of a control point.
        y_step: Grid step of the values, which are then kept to 12 decimals; ``None`` for continuous values,
            kept to a 2^32nd of the interval.
        max_delta: Largest difference of the values of neighbouring control points.
        x_step: Grid step of the layer coordinate; ``None`` for a continuous one.
        curve: Kind of the curve: a ``bezier`` curve, ``linear`` pieces from point to point, or a cubic ``spline``, see
            `lpes_evo.operators._decoders`.
        x_rule: ``sorted`` x do not decrease, so that the curve never turns back; ``free`` x may lie in any order, and
            a layer takes the first place where the curve reaches it; ``even`` x are equally spaced and do not move.
    """

    n_layers: int
    n_points: int = 4
    _: KW_ONLY
    y_min: float = 0.5
    y_max: float = 2.0
    y_step: float | None = 0.02
    max_delta: float = 0.5
    x_step: int | None = 1
    curve: CurveKind = "bezier"
    x_rule: XRule = "sorted"

    def __post_init__(self) -> None:
        """Check the values and turn NumPy numbers into Python's.

        Raises:
            CurveError: A number has the wrong type, is not finite, too small or too large, the bounds are in the wrong
                order, a length is not a whole number of grid steps, or a word is unknown.
        """
        for name, words in (("curve", get_args(CurveKind)), ("x_rule", get_args(XRule))):
            if getattr(self, name) not in words:
                raise CurveError(
                    f"Expected {name} to be one of {', '.join(words)}, but got {shown(getattr(self, name))}. "
                    f"Use {words[0]!r}."
                )

        most_points = _MAX_POINTS if self.curve == "bezier" else _MAX_LOCAL_POINTS
        for name, least, most in (("n_layers", 1, None), ("n_points", 2, most_points), ("x_step", 1, None)):
            if getattr(self, name) is not None or name != "x_step":
                object.__setattr__(self, name, whole(name, getattr(self, name), least, most))

        for name in ("y_min", "y_max", "y_step", "max_delta"):
            if getattr(self, name) is not None or name != "y_step":
                object.__setattr__(self, name, finite(name, getattr(self, name)))

        if self.y_min > self.y_max:
            raise CurveError(f"Expected y_min <= y_max, but got {self.y_min} and {self.y_max}. Swap them.")

        if self.max_delta < 0:
            raise CurveError(
                f"Expected max_delta >= 0, but got {self.max_delta}. Use 0 for constant curves only."
            )

        if self.y_step is not None:
            least_step = max((self.y_max - self.y_min) / _MAX_STEPS, 1e-9)
            if self.y_step < least_step:
                raise CurveError(
                    f"Expected y_step >= {least_step:g}, but got {self.y_step}. "
                    "Use None for continuous values."
                )

            _check_steps(f"y_max to be y_min = {self.y_min:g} plus", self.y_max, self.y_min, self.y_step)
            _check_steps("max_delta to be", self.max_delta, 0.0, self.y_step)
            object.__setattr__(self, "y_min", on_grid(self.y_min))
            object.__setattr__(self, "y_max", on_grid(self.y_max))

        if self.x_step is not None and (self.n_layers - 1) % self.x_step:
            last = self.n_layers - 1
            divisors = ", ".join(str(step) for step in range(1, last + 1) if last % step == 0)
            raise CurveError(
                f"Expected x_step to divide n_layers - 1 = {last}, but got {self.x_step}. Use one of {divisors}."
            )

    @cached_property
    def x_axis(self) -> Axis:
        """The layer coordinate, from 0 to ``n_layers - 1``."""
        return Axis.between(0.0, float(self.n_layers - 1), self.x_step)

    @cached_property
    def y_axis(self) -> Axis:
        """The value, from ``y_min`` to ``y_max``."""
        return Axis.between(self.y_min, self.y_max, self.y_step)

    @cached_property
    def max_rise(self) -> int:
        """``max_delta`` in steps of the y axis."""
        return self.y_axis.whole_steps(self.max_delta)

    def violations(self, genome: Sequence[Sequence[float]]) -> list[str]:
        """Return every fault that keeps a genome out of the space.

        Args:
            genome: Control points, ``(n_points, 2)``.

        Returns:
            One phrase per violation, with the gene (the number of the control point) and the bound; empty for
            a feasible genome.
        """
        if not is_sequence(genome):
            return [f"it is {shown(genome)}, not a sequence of control points"]
        if len(genome) != self.n_points:
            return [f"it has {len(genome)} control points instead of n_points = {self.n_points}"]

        broken = [
            f"gene {gene} is {shown(point)}, not a pair of finite numbers"
            for gene, point in enumerate(genome)
            if not _is_finite_pair(point)
        ]
        if broken:
            return broken

        for gene, (x, y) in enumerate(genome):
            broken += _off_axis(self.x_axis, gene, "x", x, "0", "n_layers - 1")
            broken += _off_axis(self.y_axis, gene, "y", y, "y_min", "y_max")

        for gene, end in ((0, self.x_axis.low), (self.n_points - 1, self.x_axis.high)):
            if genome[gene][0] != end:
                broken.append(f"gene {gene} has x = {genome[gene][0]}, but it is pinned to {end}")

        for gene, ((x, y), (x_next, y_next)) in enumerate(pairwise(genome)):
            if x_next < x and self.x_rule == "sorted":
                broken.append(f"gene {gene + 1} has x = {x_next}, below x = {x} of gene {gene}")
            if abs(self.y_axis.steps_to(y_next) - self.y_axis.steps_to(y)) > self.max_rise:
                broken.append(
                    f"gene {gene + 1} has y = {y_next}, further than max_delta = {self.max_delta} "
                    f"from y = {y} of gene {gene}"
                )

        if self.x_rule == "even":
            for gene, ((x, _), place) in enumerate(
                zip(genome, self.x_axis.values(self.even_xs()), strict=True)
            ):
                if x != place and gene not in (0, self.n_points - 1):
                    broken.append(f"gene {gene} has x = {x}, but x_rule 'even' pins it to {place}")

        return broken

    def contains(self, genome: Sequence[Sequence[float]]) -> bool:
        """Return whether a genome is feasible; `check` and `violations` name the faults."""
        return not self.violations(genome)

    def check(self, genome: Sequence[Sequence[float]]) -> None:
        """Refuse a genome that is not feasible.

        Args:
            genome: Control points, ``(n_points, 2)``.

        Raises:
            CurveError: The genome is not feasible; the message names every gene and bound concerned.
        """
        broken = self.violations(genome)
        if broken:
            raise CurveError(
                f"Expected a genome of the curve space, but {'; '.join(broken)}. "
                "space.nearest(points) gives the closest feasible genome."
            )

    def indices(self, genome: Sequence[Sequence[float]]) -> tuple[list[int], list[int]]:
        """Return the grid indices of a genome's x and y.

        Args:
            genome: Feasible control points, ``(n_points, 2)``.

        Returns:
            The x and the y indices, ``(n_points,)`` each.

        Raises:
            CurveError: The genome is not feasible. So an operator stops at once instead of spreading a bad
                gene.
        """
        try:
            x_values, y_values = zip(*genome, strict=True)
            xs, ys = self.x_axis.indices(x_values), self.y_axis.indices(y_values)
        except (KeyError, OverflowError, TypeError, ValueError):
            self.check(genome)
            raise

        pinned = len(xs) == self.n_points and xs[0] == 0 and xs[-1] == self.x_axis.n_steps
        inside = min(ys) >= 0 and max(ys) <= self.y_axis.n_steps
        smooth = max(map(abs, map(sub, ys[1:], ys))) <= self.max_rise
        if not (pinned and inside and smooth and xs == self.arrange(xs[1:-1])):
            self.check(genome)

        return xs, ys

    def points(self, xs: Sequence[int], ys: Sequence[int]) -> list[tuple[float, float]]:
        """Return the control points at the given grid indices.

        Args:
            xs: Indices on the x axis, ``(n_points,)``.
            ys: Indices on the y axis, ``(n_points,)``.

        Returns:
            The control points, ``(n_points, 2)``.
        """
        return list(zip(self.x_axis.values(xs), self.y_axis.values(ys), strict=True))

    def arrange(self, inner: Sequence[int]) -> list[int]:
        """Return the indices of all x for those of the inner points, arranged by ``x_rule``.

        Args:
            inner: Indices on the x axis, ``(n_points - 2,)``.

        Returns:
            The indices, ``(n_points,)``: sorted, unchanged, or equally spaced whatever the arguments are.
        """
        if self.x_rule == "even":
            return self.even_xs()
        return [0, *(sorted(inner) if self.x_rule == "sorted" else inner), self.x_axis.n_steps]

    def even_xs(self) -> list[int]:
        """Return the indices of equally spaced x, rounded to the grid, ``(n_points,)``."""
        last = self.n_points - 1
        return [(2 * k * self.x_axis.n_steps + last) // (2 * last) for k in range(self.n_points)]


def _is_finite_pair(point: object) -> bool:
    """Return whether a gene is a sequence of two finite real numbers."""
    if not isinstance(point, (Sequence, np.ndarray)) or len(point) != 2:
        return False
    return all(map(is_finite, point))


def _off_axis(axis: Axis, gene: int, name: str, value: float, low_name: str, high_name: str) -> list[str]:
    """Return a phrase on how a coordinate leaves its axis; empty if it does not."""
    where = f"gene {gene} has {name} = {value}"
    if value < axis.low:
        return [f"{where}, below {low_name}{'' if low_name == '0' else f' = {axis.low}'}"]
    if value > axis.high:
        return [f"{where}, above {high_name} = {axis.high}"]
    if not axis.contains(value):
        return [
            f"{where}, not on the grid of {name}_step = {axis.step:g}; {axis.nearest(value)!r} is nearest"
        ]
    return []


def _check_steps(what: str, value: float, origin: float, step: float) -> None:
    """Refuse a value that is not a whole number of ``y_step`` away from the origin.

    Raises:
        CurveError: It is not; the message names the neighbouring values that are.
    """
    steps = (value - origin) / step
    if abs(steps - round(steps)) > _WHOLE_TOLERANCE:
        below, above = origin + math.floor(steps) * step, origin + math.ceil(steps) * step
        raise CurveError(
            f"Expected {what} a whole number of y_step = {step:g}, but got {value:g}. "
            f"Use {below:g} or {above:g}."
        )
