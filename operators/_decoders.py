"""Decoder: the value of every layer from control points, by Bezier curves, linear pieces or cubic splines.

All of them are B-splines on clamped, equally spaced knots (Farin, Curves and Surfaces for CAGD, 5th ed., chapter 10).
Of degree 1 they are the linear pieces between the points. Of degree 3 they are cubic splines. Of the largest degree,
without inner knots, they are Bezier curves. So each value is a weighted mean of the y with weights >= 0. It stays
within the smallest and the largest y, and with sorted x the curve never turns back. A cubic spline of up to 4 points is
the Bezier curve.
"""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from lpes_evo.operators._bezier import bernstein, decode_points, invert

FloatArray = npt.NDArray[np.float64]

_DEGREES = {"linear": 1, "spline": 3}
_N_SEARCHED = 256
_MAX_ITERATIONS = 100
_EPSILON = float(np.finfo(np.float64).eps)
_BESIDE = 1e-9


class Decoder(ABC):
    """The interface of all kinds of curves, which gives the value of every layer."""

    @abstractmethod
    def decode(self, points: FloatArray, n_layers: int) -> FloatArray:
        """Read the curve value of every layer.

        Args:
            points: Control points as (layer, value), ``(n, n_points, 2)``; the x of each curve run from 0 to
                ``n_layers - 1``.
            n_layers: Number of layers.

        Returns:
            B_y(t) where B_x(t) = layer, ``(n, n_layers)``; each row lies within the smallest and largest y of its
            curve.
        """

    @abstractmethod
    def parameters(self, x: FloatArray, n_layers: int) -> FloatArray:
        """Return the parameter at which each curve is read for each layer.

        Args:
            x: Layer coordinates of the control points, ``(n, n_points)``.
            n_layers: Number of layers.

        Returns:
            The parameters in [0, 1], ``(n, n_layers)``.
        """

    @abstractmethod
    def basis(self, t: FloatArray) -> FloatArray:
        """Return the weights of the control points at parameters ``(...)``, as ``(..., n_points)``.

        They are not negative and sum to 1.
        """

    @abstractmethod
    def slopes(self, t: FloatArray) -> FloatArray:
        """Return the derivatives of `basis` in the parameter, ``(..., n_points)``."""

    def jacobian(self, points: FloatArray, n_layers: int) -> tuple[FloatArray, FloatArray]:
        """Return the derivatives of the value of every layer with respect to the control points of one curve.

        The value is B_y(t) with B_x(t) = layer. So its derivative in y_k is the weight b_k(t). By the implicit function
        theorem, its derivative in x_k is ``-b_k(t) B_y'(t) / B_x'(t)``.

        Args:
            points: Control points, ``(n_points, 2)``.
            n_layers: Number of layers.

        Returns:
            The derivatives in y and in x, each ``(n_layers, n_points)``. Derivatives in the first and the last x, which
            are pinned, are 0, and so are those in x where the curve is vertical.
        """
        x, y = points.T
        t = self.parameters(x[None], n_layers)[0]
        weights, slopes = self.basis(t), self.slopes(t)
        run, rise = slopes @ x, slopes @ y

        is_upright = np.abs(run) <= _EPSILON * max(1.0, x[-1])
        steepness = np.where(is_upright, 0.0, rise / np.where(is_upright, 1.0, run))
        in_x = -steepness[:, None] * weights
        in_x[:, [0, -1]] = 0.0
        return weights, in_x


class BezierDecoder(Decoder):
    """The decoder of Bezier curves that never turn back, see `lpes_evo.operators._bezier`.

    Args:
        n_points: Number of control points.
    """

    def __init__(self, n_points: int) -> None:
        self._n_points = n_points

    def decode(self, points: FloatArray, n_layers: int) -> FloatArray:
        """Read the curve value of every layer."""
        return decode_points(points, n_layers)

    def parameters(self, x: FloatArray, n_layers: int) -> FloatArray:
        """Return the parameter of every layer."""
        return invert(x, n_layers)

    def basis(self, t: FloatArray) -> FloatArray:
        """Return the Bernstein weights."""
        return bernstein(t, self._n_points)

    def slopes(self, t: FloatArray) -> FloatArray:
        """Return the derivatives of the Bernstein weights, as differences of weights of one degree less.

        Source: Farin, chapter 5.
        """
        below = np.pad(bernstein(t, self._n_points - 1), [(0, 0)] * np.ndim(t) + [(1, 1)])
        slopes: FloatArray = (self._n_points - 1) * -np.diff(below, axis=-1)
        return slopes


class SplineDecoder(Decoder):
    """The decoder of B-splines of any degree; a curve that turns back is read where it first reaches a layer.

    The first place is searched on 256 equally spaced parameters and the knots, so a turn between two of them is missed.
    The first and the last layer get the end points.

    Args:
        n_points: Number of control points.
        degree: Degree of the pieces, at most ``n_points - 1``.
    """

    def __init__(self, n_points: int, degree: int) -> None:
        # The import is slow, and the default curve does not need it.
        from scipy.interpolate import BSpline

        breaks = np.linspace(0, 1, n_points - degree + 1)
        knots = np.concatenate([np.zeros(degree), breaks, np.ones(degree)])
        self._splines: Any = BSpline(knots, np.eye(n_points), degree)
        self._degree = degree
        self._n_points = n_points

        # Between its knots a curve of degree 1 is straight, and has no turn to search for.
        searched = breaks if degree == 1 else np.union1d(breaks, np.linspace(0, 1, _N_SEARCHED + 1))
        self._searched = searched
        self._basis_searched = self.basis(searched)

    def decode(self, points: FloatArray, n_layers: int) -> FloatArray:
        """Read the curve value of every layer."""
        x, y = np.moveaxis(points, -1, 0)
        basis = self.basis(self.parameters(x, n_layers))
        # Relative to the first point, a constant curve gives its constant without a rounding error.
        values: FloatArray = y[:, :1] + np.einsum("nlk,nk->nl", basis, y - y[:, :1])
        np.clip(values, y.min(axis=1, keepdims=True), y.max(axis=1, keepdims=True), out=values)
        if n_layers > 1:
            values[:, -1] = y[:, -1]
        return values

    def basis(self, t: FloatArray) -> FloatArray:
        """Return the B-splines."""
        values: FloatArray = self._splines(t)
        return values

    def slopes(self, t: FloatArray) -> FloatArray:
        """Return the derivatives of the B-splines; between two straight pieces the mean of both."""
        slopes: FloatArray
        if self._degree > 1:
            slopes = self._splines(t, 1)
            return slopes
        # A layer often stands on a point of the curve, where the pieces to its left and right differ.
        left, right = np.maximum(t - _BESIDE, 0.0), np.minimum(t + _BESIDE, 1.0)
        slopes = 0.5 * (self._splines(left, 1) + self._splines(right, 1))
        return slopes

    def parameters(self, x: FloatArray, n_layers: int) -> FloatArray:
        """Return the first parameter at which each curve reaches each layer, ``(n, n_layers)``."""
        t = np.zeros((len(x), n_layers))
        if n_layers > 1:
            t[:, -1] = 1.0
            t[:, 1:-1] = self._solve(x, np.arange(1.0, n_layers - 1))
        return t

    def _solve(self, x: FloatArray, layers: FloatArray) -> FloatArray:
        """Solve B_x(t) = layer for the inner layers by regula falsi in its Illinois form.

        This is the secant rule with a bracket, in which the value at an end that has stayed for two steps is halved
        (Dowell and Jarratt, A modified regula falsi method, BIT 11, 1971).
        """
        reached = x @ self._basis_searched.T
        furthest = np.maximum.accumulate(reached, axis=1)
        after = np.array([np.searchsorted(row, layers) for row in furthest], dtype=np.intp)
        after = np.clip(after.reshape(len(x), len(layers)), 1, len(self._searched) - 1)

        rows = np.arange(len(x))[:, None]
        low, high = self._searched[after - 1], self._searched[after]
        below, above = reached[rows, after - 1] - layers, reached[rows, after] - layers

        noise = self._n_points * _EPSILON * x[:, -1:]
        t = high
        side = np.zeros(t.shape, dtype=np.int8)
        done = above <= noise

        for _ in range(_MAX_ITERATIONS):
            if done.all():
                break

            with np.errstate(divide="ignore", invalid="ignore"):
                proposal = (low * above - high * below) / (above - below)

            inside = (proposal > low) & (proposal < high)
            proposal = np.where(inside, proposal, 0.5 * (low + high))
            t = np.where(done, t, proposal)

            value = np.einsum("nlk,nk->nl", self.basis(t), x) - layers
            done |= (np.abs(value) <= noise) | (high - low <= _EPSILON)

            is_below = value < 0
            above = np.where(is_below & (side == -1), 0.5 * above, above)
            below = np.where(~is_below & (side == 1), 0.5 * below, below)
            low, below = np.where(is_below, t, low), np.where(is_below, value, below)
            high, above = np.where(is_below, high, t), np.where(is_below, above, value)
            side = np.where(is_below, -1, 1).astype(np.int8)

        return t


def make_decoder(curve: str, n_points: int, *, turns_back: bool) -> Decoder:
    """Return the decoder of a kind of curve.

    Args:
        curve: ``bezier``, ``linear`` or ``spline``.
        n_points: Number of control points.
        turns_back: Whether x may decrease.

    Returns:
        The decoder.
    """
    if curve == "bezier" and not turns_back:
        return BezierDecoder(n_points)
    return SplineDecoder(n_points, min(_DEGREES.get(curve, n_points - 1), n_points - 1))
