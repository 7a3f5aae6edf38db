"""Axis: one coordinate of the control points, an interval and the grid on it."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

# A continuous axis is a grid of 2^32 steps, far finer than the float32 angles of a model can resolve. So every operator
# is exact integer arithmetic, with and without a grid, and no rounding error can leave the space.
_CONTINUOUS_STEPS = 2**32
# Sums like 0.5 + 0.02 * 33 carry rounding errors; at 12 decimals equal grid values are equal floats.
_GRID_DECIMALS = 12


@dataclass(frozen=True)
class Axis:
    """A closed interval cut into equal steps; the grid values are counted by an index from 0 to ``n_steps``.

    Attributes:
        low: Smallest value, at index 0.
        high: Largest value, at index ``n_steps``.
        step: Distance of neighbouring values.
        n_steps: Number of steps; 0 for an interval that is one point.
        continuous: Whether values between the grid values are feasible, too.
    """

    low: float
    high: float
    step: float
    n_steps: int
    continuous: bool

    @classmethod
    def between(cls, low: float, high: float, step: float | None) -> "Axis":
        """Return the axis from ``low`` to ``high`` with the given step; ``None`` makes it continuous."""
        if step is not None:
            return cls(on_grid(low), on_grid(high), step, round((high - low) / step), continuous=False)
        n_steps = _CONTINUOUS_STEPS if high > low else 0
        return cls(low, high, (high - low) / n_steps if n_steps else 1.0, n_steps, continuous=True)

    @cached_property
    def _grid(self) -> tuple[float, ...]:
        """The values of an axis that is not continuous, ``(n_steps + 1,)``."""
        inner = [on_grid(self.low + index * self.step) for index in range(1, self.n_steps)]
        return (self.low, *inner, self.high) if self.n_steps else (self.low,)

    @cached_property
    def _index_of(self) -> dict[float, int]:
        """The index of each value of an axis that is not continuous."""
        return {value: index for index, value in enumerate(self._grid)}

    def values(self, indices: Iterable[int]) -> list[float]:
        """Return the values at some indices; the same index always gives the same float."""
        if not self.continuous:
            return [self._grid[index] for index in indices]
        low, high, step, last = self.low, self.high, self.step, self.n_steps
        return [low + index * step if index < last else high for index in indices]

    def indices(self, values: Iterable[float]) -> list[int]:
        """Return the indices of some values; on a continuous axis a value gets the index of the nearest grid value.

        Raises:
            KeyError: The axis is not continuous, and a value is not on the grid.
        """
        if not self.continuous:
            return [self._index_of[value] for value in values]
        return [self.steps_to(value) for value in values]

    def steps_to(self, value: float) -> int:
        """Return the number of steps from ``low`` to any finite value, rounded; negative below ``low``."""
        steps = (value - self.low) / self.step
        if math.isinf(steps):
            return round((Fraction(value) - Fraction(self.low)) / Fraction(self.step))
        return round(steps)

    def nearest(self, value: float) -> float:
        """Return the grid value nearest to a finite value."""
        return self.values([min(max(self.steps_to(value), 0), self.n_steps)])[0]

    def contains(self, value: float) -> bool:
        """Return whether a finite value lies in the interval and, unless continuous, on the grid."""
        return self.low <= value <= self.high if self.continuous else value in self._index_of

    def whole_steps(self, distance: float) -> int:
        """Return the number of steps of a distance, at most ``n_steps``; on a continuous axis it is rounded up."""
        steps = distance / self.step
        return min(math.ceil(steps) if self.continuous else round(steps), self.n_steps)


def on_grid(value: float) -> float:
    """Return the float that represents a grid value, however the value was computed."""
    # Adding zero turns -0.0 into 0.0, so that equal values also print the same.
    return round(value, _GRID_DECIMALS) + 0.0
