"""UnitCube: genomes as vectors of the unit cube, on which optimisers of other packages work."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lpes_evo.operators import BezierGenome, CurveSpace

FloatArray = npt.NDArray[np.float64]


class UnitCube:
    """The map from vectors of the unit cube to the nearest feasible genomes, and back.

    A vector holds the y of all control points and then, where they may move, the x of the inner control points. Each
    coordinate is a share of its axis.

    Args:
        space: The curves.

    Attributes:
        n_dimensions: Length of a vector.
    """

    def __init__(self, space: CurveSpace) -> None:
        self._space = space
        self._n_inner = 0 if space.x_rule == "even" else space.n_points - 2
        self.n_dimensions = space.n_points + self._n_inner

    def genome(self, vector: Sequence[float] | FloatArray) -> BezierGenome:
        """Return the feasible genome nearest to a vector; where the x must be sorted, they are sorted first.

        Args:
            vector: Shares of the axes, ``(n_dimensions,)``.
        """
        space = self._space
        y_axis, x_last = space.y_axis, space.x_axis.high
        shares = [float(share) for share in vector]
        y = [y_axis.low + share * (y_axis.high - y_axis.low) for share in shares[: space.n_points]]

        inner = [share * x_last for share in shares[space.n_points :]]
        if not self._n_inner:
            inner = space.x_axis.values(space.even_xs())[1:-1]
        x = [0.0, *(sorted(inner) if space.x_rule == "sorted" else inner), x_last]
        return space.nearest(list(zip(x, y, strict=True)))

    def vector(self, genome: Sequence[tuple[float, float]]) -> FloatArray:
        """Return the vector of a genome; the share is 0.5 on an axis that is a single point.

        Args:
            genome: Control points, ``(n_points, 2)``.

        Returns:
            The vector, ``(n_dimensions,)``.
        """
        space = self._space
        y_axis, x_axis = space.y_axis, space.x_axis
        y = [_share(y, y_axis.low, y_axis.high) for _, y in genome]
        x = [_share(x, x_axis.low, x_axis.high) for x, _ in genome[1:-1]]
        return np.array([*y, *x[: self._n_inner]])


def _share(value: float, low: float, high: float) -> float:
    return (value - low) / (high - low) if high > low else 0.5
