"""The way up along gradients of the fitness, in the space of a curve or of free scales."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lpes_evo.config import SearchSettings
from lpes_evo.operators import BezierGenome, CurveSpace

_DECAY = 0.9
_SQUARE_DECAY = 0.999
_LEAST = 1e-8
_SOFTNESS = 1e-3


class Ascent:
    """Climbs by Adam on the logarithm of y and on x as share of its axis.

    Adam is algorithm 1 of Kingma and Ba, "Adam: a method for stochastic optimization" (ICLR 2015), with the constants
    given there. After each step the points go to the nearest ones within bounds, order and amplitude; the grid is only
    met by what `arrival` returns.

    Args:
        space: The curves.
        settings: Length of a step, and penalty.
        start: Control points to start from, ``(n_points, 2)``.
    """

    def __init__(self, space: CurveSpace, settings: SearchSettings, start: Sequence[Sequence[float]]) -> None:
        self._space = space
        self._continuous = space.continuous()
        self._rate = settings.learning_rate
        self._penalty = settings.total_variation
        self._points = np.array(self._continuous.nearest(start))
        self._mean = np.zeros_like(self._points)
        self._square = np.zeros_like(self._points)
        self._n_steps = 0

    @property
    def scales(self) -> npt.NDArray[np.float64]:
        """The scales where it stands, ``(n_layers,)``."""
        scales: npt.NDArray[np.float64] = self._continuous.decode(self._points[None])[0]
        return scales

    def arrival(self) -> BezierGenome:
        """Return the feasible genome nearest to where it stands."""
        return self._space.nearest(self._points.tolist())

    def step(self, gradient: npt.ArrayLike) -> None:
        """Go one step.

        Args:
            gradient: Derivative of the fitness with respect to each scale, ``(n_layers,)``.
        """
        slope = np.asarray(gradient, dtype=np.float64) - self._penalty * variation_slope(self.scales)
        in_y, in_x = self._continuous.jacobian(self._points)
        length = max(1.0, self._continuous.x_axis.high)
        x, y = self._points.T
        slopes = np.column_stack([slope @ in_x * length, slope @ in_y * y])
        self._n_steps += 1
        self._mean += (1 - _DECAY) * (slopes - self._mean)
        self._square += (1 - _SQUARE_DECAY) * (slopes**2 - self._square)
        mean = self._mean / (1 - _DECAY**self._n_steps)
        square = self._square / (1 - _SQUARE_DECAY**self._n_steps)
        moves = self._rate * mean / (np.sqrt(square) + _LEAST)
        moved = np.column_stack([x + length * moves[:, 0], y * np.exp(moves[:, 1])])
        self._points = np.array(self._continuous.nearest(moved.tolist()))


def variation_slope(scales: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the derivative of the total variation of the logarithm of scales.

    The variation is the sum of ``sqrt(d**2 + 1e-6)`` over the differences d of neighbouring logarithms: the absolute
    difference, rounded off where it is below 0.001 so that it has a derivative.

    Args:
        scales: Position divisors, ``(n_layers,)``.

    Returns:
        The derivative with respect to each scale, ``(n_layers,)``.
    """
    steps = np.diff(np.log(scales))
    pull = steps / np.hypot(steps, _SOFTNESS)
    slope: npt.NDArray[np.float64] = -np.diff(pull, prepend=0.0, append=0.0) / scales
    return slope
