"""Bezier curves as functions of the layer: Bernstein weights, de Casteljau's scheme, inversion of x(t)."""

from itertools import pairwise
from math import comb

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

_MAX_ITERATIONS = 100
_EPSILON = float(np.finfo(np.float64).eps)
# Rows are decoded in blocks of about this many values, so that the temporary arrays stay in the processor's
# cache.
_BLOCK_VALUES = 8192


def bernstein(t: npt.ArrayLike, n_points: int) -> FloatArray:
    """Return the Bernstein weights of the control points.

    ``bernstein(t, n_points) @ points`` are the points of the curve at ``t``. Weight k of degree n is
    ``comb(n, k) * t**k * (1 - t)**(n - k)`` (Farin, Curves and Surfaces for CAGD, 5th ed., chapter 5).

    Args:
        t: Curve parameters in [0, 1], ``(...)``.
        n_points: Number of control points, the degree plus one.

    Returns:
        The weights, ``(..., n_points)``; they are not negative and sum to 1.
    """
    t = np.asarray(t, dtype=np.float64)
    degree = n_points - 1
    weights = [comb(degree, k) * t**k * (1 - t) ** (degree - k) for k in range(n_points)]
    return np.stack(weights, axis=-1)


def de_casteljau(coefficients: npt.ArrayLike, t: npt.ArrayLike) -> FloatArray:
    """Evaluate one coordinate of a Bezier curve by repeated linear interpolation.

    This is the slow and stable reference for the faster evaluation inside `decode_points` (Farin, chapter 4).

    Args:
        coefficients: One coordinate of the control points, ``(n_points,)``.
        t: Curve parameters in [0, 1], ``(...)``.

    Returns:
        The coordinate at each parameter, ``(...)``.
    """
    t = np.asarray(t, dtype=np.float64)
    level = [np.full(t.shape, coefficient) for coefficient in np.asarray(coefficients, dtype=np.float64)]
    while len(level) > 1:
        level = [(1 - t) * left + t * right for left, right in pairwise(level)]
    return level[0]


def decode_points(points: FloatArray, n_layers: int) -> FloatArray:
    """Read the curve value of every layer.

    Args:
        points: Control points as (layer, value), ``(n, n_points, 2)``; the x of each curve are non-decreasing
            from 0 to ``n_layers - 1``.
        n_layers: Number of layers.

    Returns:
        B_y(t) where B_x(t) = layer, ``(n, n_layers)``; each row lies within the smallest and largest y of its
        curve.
    """
    values = np.empty((len(points), n_layers))
    block = max(1, _BLOCK_VALUES // n_layers)
    for start in range(0, len(points), block):
        x, y = np.moveaxis(points[start : start + block], -1, 0)
        t = invert(x, n_layers)

        # Relative to the first point, a constant curve gives its constant without a rounding error.
        rows = y[:, :1] + _evaluate(y - y[:, :1], t)

        # The convex hull property holds for exact numbers. Clipping removes rounding errors in the last digit.
        np.clip(rows, y.min(axis=1, keepdims=True), y.max(axis=1, keepdims=True), out=rows)
        if n_layers > 1:
            rows[:, -1] = y[:, -1]

        values[start : start + block] = rows

    return values


def invert(x: FloatArray, n_layers: int) -> FloatArray:
    """Solve B_x(t) = layer for every layer.

    For more than one layer the solution is unique: the derivative of B_x is a Bernstein polynomial with
    coefficients >= 0 of which at least one is positive, so B_x grows strictly inside (0, 1), even where
    control points repeat. Its derivative may vanish at the ends, where Newton's method fails. So each Newton
    step must stay inside a shrinking bracket and gain enough, and is replaced by bisection where it does not
    (rtsafe of Numerical Recipes, 3rd ed., section 9.4). Each value depends on its own curve only, never on
    the others of the batch.

    Args:
        x: Layer coordinates of the control points, ``(n, n_points)``, non-decreasing from 0 to
            ``n_layers - 1``.
        n_layers: Number of layers. A single layer is read at ``t = 0``, the first control point.

    Returns:
        The parameters t in [0, 1], ``(n, n_layers)``, non-decreasing.
    """
    t = np.zeros((len(x), n_layers))
    if n_layers > 1:
        t[:, -1] = 1.0
        t[:, 1:-1] = _solve(x, np.arange(1.0, n_layers - 1))
    return t


def _solve(x: FloatArray, layers: FloatArray) -> FloatArray:
    """Solve B_x(t) = layer for the inner layers by bracketed Newton steps."""
    slopes = (x.shape[1] - 1) * np.diff(x, axis=1)
    last = x[:, -1:]
    low = np.zeros((len(x), len(layers)))
    high = np.ones_like(low)

    # The straight line from the first to the last layer is right for equally spaced points.
    t = low + layers / last
    step_before = np.ones_like(low)
    done = np.zeros(low.shape, dtype=bool)

    # A residual of this size is rounding error of the evaluation itself, one unit for each term of the sum.
    noise = x.shape[1] * _EPSILON * last
    for _ in range(_MAX_ITERATIONS):
        residual = _evaluate(x, t) - layers
        slope = _evaluate(slopes, t)
        done |= np.abs(residual) <= noise
        if done.all():
            break

        below = residual < 0
        np.copyto(low, t, where=below)
        np.copyto(high, t, where=~below)

        with np.errstate(divide="ignore", invalid="ignore"):
            step = residual / slope

        # A step below the spacing of the floats around 1 cannot improve t, whatever the bracket says.
        done |= np.abs(step) <= _EPSILON
        newton = t - step

        # These comparisons are false for a step of NaN or infinity, which is useless.
        useful = (newton > low) & (newton < high) & (np.abs(step) <= 0.5 * step_before)
        proposal = np.where(useful, newton, 0.5 * (low + high))
        np.copyto(proposal, t, where=done)
        step_before = np.abs(proposal - t)
        t = proposal

    return t


def _evaluate(coefficients: FloatArray, t: FloatArray) -> FloatArray:
    """Evaluate one coordinate of many Bezier curves by a Horner scheme on the Bernstein weights.

    Args:
        coefficients: One coordinate of the control points, ``(n, n_points)``.
        t: Curve parameters, ``(n, n_values)``.

    Returns:
        The coordinate, ``(n, n_values)``.
    """
    degree = coefficients.shape[1] - 1
    rest = 1.0 - t
    power = t.copy()
    total = np.repeat(coefficients[:, :1], t.shape[1], axis=1)
    for k in range(1, degree + 1):
        total *= rest
        total += (comb(degree, k) * coefficients[:, k : k + 1]) * power
        if k < degree:
            power *= t
    return total
