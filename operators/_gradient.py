"""`mut_gradient`: a mutation in the direction in which the fitness grows."""

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lpes_evo.operators._fit import layer_values
from lpes_evo.operators._genome import BezierGenome
from lpes_evo.operators._mutation import Single, draw_share

if TYPE_CHECKING:
    from lpes_evo.operators._space import CurveSpace


def mut_gradient(
    individual: BezierGenome, *, space: "CurveSpace", gradient: npt.ArrayLike, finest: float = 1 / 64
) -> Single:
    """Move all control points in the direction in which the fitness grows fastest, by a feasible step.

    The Jacobian of the decoded curve turns the gradient with respect to the values of the layers into one with respect
    to the control points. Both axes are measured as shares of their length. The points move along the gradient until
    the point that moves most has moved by a share, which is drawn log-uniformly from ``finest`` to 1 as in `mut_point`.
    Then they are moved to the nearest feasible genome. This is a step of projected gradient ascent (Bertsekas,
    Nonlinear Programming, 3rd ed., section 3.3). If the grid or a bound cancels the step, it is doubled until the curve
    changes.

    Draws ``random.random`` once.

    Args:
        individual: The curve, changed in place; unchanged only if no step up to the length of an axis changes it, for
            example if the gradient is 0.
        space: The curve space.
        gradient: Derivative of the fitness in the value of each layer, ``(n_layers,)``.
        finest: Smallest step as share of the axis, in (0, 1].

    Returns:
        The individual.

    Raises:
        CurveError: The individual is not feasible, the gradient has the wrong shape or is not finite, or ``finest`` is
            out of range.
    """
    slopes = layer_values("derivatives", gradient, space.n_layers)
    space.check(individual)
    share = draw_share(finest)

    points = np.array(individual)
    lengths = np.array([space.x_axis.high, space.y_axis.high - space.y_axis.low])
    in_y, in_x = space.jacobian(points)

    # Slopes are taken relative to the largest, so that products cannot overflow.
    slopes = slopes / (np.abs(slopes).max() or 1.0)
    ascent = np.column_stack([slopes @ in_x, slopes @ in_y]) * lengths
    furthest = np.abs(ascent).max()
    if not furthest > 0:
        return (individual,)

    before = individual[:]
    while individual == before and share <= 1:
        moved = points + ascent / furthest * share * lengths
        individual[:] = space.nearest(moved.tolist())
        share *= 2

    return (individual,)
