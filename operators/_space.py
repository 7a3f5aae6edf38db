"""CurveSpace: the space of curves that a search runs over."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from lpes_evo.operators._checks import shown
from lpes_evo.operators._constraints import CurveConstraints
from lpes_evo.operators._decoders import Decoder, make_decoder
from lpes_evo.operators._errors import CurveError
from lpes_evo.operators._nearest import nearest_indices

# Curves are read without DEAP, so that the use of a result needs no search library. Only genomes need DEAP.
if TYPE_CHECKING:
    from deap import base

    from lpes_evo.operators._genome import BezierGenome

_ROUNDING = 1e-9
"""Share of the larger bound by which rounding may carry a y out of the bounds."""


@dataclass(frozen=True)
class CurveSpace(CurveConstraints):
    """All curves over the layers whose control points keep bounds, grid, order and amplitude; Bezier by default.

    Example::

        space = CurveSpace(n_layers=32)
        toolbox = base.Toolbox()
        space.register(toolbox)
        scales = space.decode(toolbox.population(n=50))  # (50, 32)

    The arguments and attributes are those of `CurveConstraints`.
    """

    @cached_property
    def n_curves(self) -> int | float:
        """Upper bound on the number of different curves; ``math.inf`` if an axis that matters is continuous.

        The bound is exact if every curve is constant (``max_delta`` is 0 or there is one value), whatever the x. With
        ``y_min == y_max`` it is 1. Otherwise the bound counts genomes. Two genomes can give the same values at the
        layers, so a search that counts different values may never reach the bound.
        """
        if self.max_rise == 0 and (not self.y_axis.continuous or self.y_axis.n_steps == 0):
            return self.y_axis.n_steps + 1

        moving = (self.y_axis,) if self.x_rule == "even" else (self.x_axis, self.y_axis)
        if any(axis.continuous and axis.n_steps for axis in moving):
            return math.inf

        # Walks of bounded rise through the values, point by point, summed over windows by cumulative counts.
        last, rise = self.y_axis.n_steps, self.max_rise
        counts = [1] * (last + 1)
        for _ in range(self.n_points - 1):
            below = [0, *accumulate(counts)]
            counts = [below[min(last, y + rise) + 1] - below[max(0, y - rise)] for y in range(last + 1)]

        # Non-decreasing sequences of the inner points are multisets of layers.
        n_inner, n_places = self.n_points - 2, self.x_axis.n_steps + 1
        n_orders: dict[str, int] = {
            "sorted": math.comb(n_places - 1 + n_inner, n_inner),
            "free": n_places**n_inner,
            "even": 1,
        }

        return sum(counts) * n_orders[self.x_rule]

    @property
    def contains_identity(self) -> bool:
        """Whether 1.0 is a feasible value, so that the curve of all ones is in the space."""
        return self.y_axis.contains(1.0)

    def free(self) -> "CurveSpace":
        """Return the space with a separate value for every layer, within the same bounds and on the same grid."""
        return dataclasses.replace(
            self,
            n_points=max(2, self.n_layers),
            curve="linear",
            x_rule="even",
            x_step=None if self.x_step is None else 1,
            max_delta=self.y_axis.high - self.y_axis.low,
        )

    def continuous(self) -> "CurveSpace":
        """Return the space of the same curves without a grid; x that do not move stay where they are."""
        x_step = self.x_step if self.x_rule == "even" else None
        return dataclasses.replace(self, x_step=x_step, y_step=None)

    def genome(self, points: Sequence[Sequence[float]], weights: Sequence[float] = (1.0,)) -> "BezierGenome":
        """Return a genome with given control points, such as a start of the search.

        Args:
            points: Control points, ``(n_points, 2)``.
            weights: Weights of the fitness, ``(n_objectives,)``.

        Returns:
            The genome.

        Raises:
            CurveError: The points are not feasible (the message names gene and bound), or a weight is zero or
                not finite.
        """
        from lpes_evo.operators._genome import BezierGenome

        genome = BezierGenome(points, weights)
        self.check(genome)
        return genome

    def nearest(self, points: Sequence[Sequence[float]], weights: Sequence[float] = (1.0,)) -> "BezierGenome":
        """Return the feasible genome nearest to given control points.

        The nearest genome has the smallest sum of squared differences of the coordinates among all genomes of the
        space. x and y are independent of each other. On a continuous axis the result is exact to one 2^32nd of the
        interval.

        Args:
            points: Any finite control points, ``(n_points, 2)``.
            weights: Weights of the fitness, ``(n_objectives,)``.

        Returns:
            The nearest genome.

        Raises:
            CurveError: The number of points is wrong, a point is not a pair of finite numbers, or a weight is
                zero or not finite.
        """
        from lpes_evo.operators._genome import BezierGenome

        given = BezierGenome(points, weights)
        if len(given) != self.n_points:
            raise CurveError(
                f"Expected n_points = {self.n_points} control points, but got {len(given)}. "
                "Use space.fit(values) for a curve of another degree."
            )

        x_last, y_last = self.x_axis.n_steps, self.y_axis.n_steps
        targets = [
            [(Fraction(point[i]) - Fraction(axis.low)) / Fraction(axis.step) for point in given]
            for i, axis in enumerate((self.x_axis, self.y_axis))
        ]
        inner = self.n_points - 2
        x_bounds = [(0, 0), *[(0, x_last)] * inner, (x_last, x_last)]
        least_rise = -x_last if self.x_rule == "free" else 0
        xs = self.even_xs()

        if self.x_rule != "even":
            xs = nearest_indices(targets[0], xs, x_bounds, (least_rise, x_last))

        ys = nearest_indices(
            targets[1], [0] * self.n_points, [(0, y_last)] * self.n_points, (-self.max_rise, self.max_rise)
        )
        given[:] = self.points(xs, ys)
        return given

    def fit(self, values: npt.ArrayLike, weights: Sequence[float] = (1.0,)) -> "BezierGenome":
        """Return the feasible genome whose curve is nearest to given values, see `fit_curve`.

        Args:
            values: One finite value per layer, ``(n_layers,)``.
            weights: Weights of the fitness, ``(n_objectives,)``.

        Raises:
            CurveError: The values have the wrong shape or are not finite, or a weight is zero or not finite.
        """
        from lpes_evo.operators._fit import fit_curve

        return fit_curve(values, self, weights)

    def decode(self, genomes: Sequence[Sequence[Sequence[float]]] | npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return the value of every layer for many curves at once.

        Each layer h gets B_y(t) with B_x(t) = h, where B is the curve of the points. The values of a curve do not
        depend on the others in the call, and lie within its smallest and largest y.

        Args:
            genomes: Genomes or an array of control points, ``(n, n_points, 2)``.

        Returns:
            The values, ``(n, n_layers)``, within ``y_min`` and ``y_max``.

        Raises:
            CurveError: The shape is wrong; the x of a curve do not run from 0 to ``n_layers - 1``, or decrease although
                ``x_rule`` is not ``free``; a number is not finite; or a y lies outside of ``y_min`` and ``y_max``. Grid
                and amplitude are checked by `check` alone.
        """
        points = self._decodable(genomes)
        self._refuse_out_of_bounds(points)

        return self._values(points)

    def draw(self, curves: Sequence[Sequence[Sequence[float]]] | npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return the value of every layer for curves that need not lie within the bounds of this space.

        This is `decode` for points that do not come from a search in this space, such as those of a file.

        Args:
            curves: Control points, ``(n, n_points, 2)``.

        Returns:
            The values, ``(n, n_layers)``.

        Raises:
            CurveError: As for `decode`, apart from the bounds.
        """
        return self._values(self._decodable(curves))

    def _values(self, points: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the values of decodable curves, ``(n, n_layers)``."""
        return self._decoder.decode(points, self.n_layers) if points.size else np.empty((0, self.n_layers))

    def _refuse_out_of_bounds(self, points: npt.NDArray[np.float64]) -> None:
        """Refuse points, ``(n, n_points, 2)``, whose y leave the bounds by more than rounding."""
        y = points[..., 1]
        slack = _ROUNDING * max(abs(self.y_min), abs(self.y_max))
        if not y.size or (y.min() >= self.y_min - slack and y.max() <= self.y_max + slack):
            return

        wrong = (y < self.y_min - slack) | (y > self.y_max + slack)
        row, gene = (int(index) for index in np.argwhere(wrong)[0])
        bound = f"below y_min = {self.y_min}" if y[row, gene] < self.y_min else f"above y_max = {self.y_max}"
        raise CurveError(
            f"Expected genomes within the bounds of the space, but gene {gene} of genome {row} has y = "
            f"{y[row, gene]:g}, {bound}. space.nearest(points) gives the closest feasible genome, and "
            "space.draw(points) reads curves off that need no bounds."
        )

    def _decodable(self, genomes: Any) -> npt.NDArray[np.float64]:
        """Return the points of curves that can be decoded, ``(n, n_points, 2)``."""
        try:
            points = np.asarray(genomes, dtype=np.float64)
        except (OverflowError, TypeError, ValueError) as error:
            raise CurveError(
                f"Expected genomes of n_points = {self.n_points} pairs each, but got {shown(genomes)}: {error}. "
                "space.genome(points) makes a sound one."
            ) from error

        if points.size == 0 and points.ndim == 1:
            return np.empty((0, self.n_points, 2))

        if points.ndim != 3 or points.shape[1:] != (self.n_points, 2):
            raise CurveError(
                f"Expected genomes of shape (n, n_points, 2) = (n, {self.n_points}, 2), but got "
                f"{points.shape}. Wrap a single genome in a list."
            )

        x = points[..., 0]
        sound = (
            np.isfinite(points).all(axis=(1, 2))
            & (x[:, 0] == 0)
            & (x[:, -1] == self.n_layers - 1)
            & ((np.diff(x, axis=1) >= 0).all(axis=1) | (self.x_rule == "free"))
        )

        if not sound.all():
            row = int(np.argmin(sound))
            raise CurveError(
                f"Expected finite points with x going from 0 to n_layers - 1 = {self.n_layers - 1} without "
                f"decreasing, but genome {row} is {points[row].tolist()}. space.nearest(points) mends it."
            )

        return points

    def jacobian(
        self, genome: Sequence[Sequence[float]] | npt.NDArray[np.float64]
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return the derivatives of the value of every layer with respect to the control points.

        Args:
            genome: Control points of one curve, ``(n_points, 2)``; bounds, grid and amplitude are not checked.

        Returns:
            The derivatives in the y and in the x of the points, each ``(n_layers, n_points)``. Derivatives in x that
            do not move are 0. Where straight pieces meet at a layer, derivatives in x are the mean of both sides.

        Raises:
            CurveError: As for `decode`.
        """
        points = self._decodable([genome])[0]
        in_y, in_x = self._decoder.jacobian(points, self.n_layers)
        return in_y, np.zeros_like(in_x) if self.x_rule == "even" else in_x

    @cached_property
    def _decoder(self) -> Decoder:
        return make_decoder(self.curve, self.n_points, turns_back=self.x_rule == "free")

    def register(
        self,
        toolbox: "base.Toolbox",
        weights: Sequence[float] = (1.0,),
        *,
        blend: float = 0.5,
        rates: tuple[float, float, float] = (0.6, 0.2, 0.2),
        finest: float = 1 / 64,
    ) -> None:
        """Register ``individual``, ``population``, ``mate`` and ``mutate`` on a DEAP toolbox.

        ``individual()`` is a random walk, ``population(n=...)`` is a list of random walks, ``mate`` is `cx_mix`, and
        ``mutate`` is `mut_mix`. DEAP's own algorithms can use all of them unchanged.

        Args:
            toolbox: The DEAP toolbox.
            weights: Weights of the fitness, ``(n_objectives,)``.
            blend: Probability that ``mate`` blends; otherwise it splices.
            rates: Relative frequency of point, shift and tilt in ``mutate``.
            finest: Smallest bound on the size of a mutation, as share of the axis, in (0, 1].

        Raises:
            CurveError: ``blend`` or ``finest`` is out of range, ``rates`` are not three numbers >= 0 with a
                positive sum, or a weight is zero or not finite.
        """
        from deap import tools

        from lpes_evo.operators._crossover import check_blend, cx_mix
        from lpes_evo.operators._fitness import CurveFitness
        from lpes_evo.operators._init import init_random_walk
        from lpes_evo.operators._mutation import check_finest, check_rates, mut_mix

        check_blend(blend)
        check_rates(rates)
        check_finest(finest)
        toolbox.register("individual", init_random_walk, self, weights=CurveFitness(weights).weights)
        toolbox.register("population", tools.initRepeat, list, toolbox.individual)
        toolbox.register("mate", cx_mix, space=self, blend=blend)
        toolbox.register("mutate", mut_mix, space=self, rates=tuple(rates), finest=finest)
