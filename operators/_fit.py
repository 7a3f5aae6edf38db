"""`fit_curve`: the feasible curve nearest to given values, such as published scales or those found by gradients."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lpes_evo.operators._checks import shown
from lpes_evo.operators._errors import CurveError
from lpes_evo.operators._genome import BezierGenome

if TYPE_CHECKING:
    from lpes_evo.operators._space import CurveSpace

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

# Starts of the inner x: evenly spaced, crowded towards the first layers, and crowded towards the last.
_CROWDINGS = (1.0, 2.0, 0.5)
_MAX_ITERATIONS = 200
_EXACT = 1e-24


def fit_curve(values: npt.ArrayLike, space: "CurveSpace", weights: Sequence[float] = (1.0,)) -> BezierGenome:
    """Return the feasible genome whose curve is nearest to given values in the least-squares sense.

    The sum over layers of squared differences is minimised over x and y by sequential quadratic programming (Kraft,
    DFVLR-FB 88-28, 1988) under bounds, order and amplitude, from three arrangements of x. Each solution is moved to
    the grid, and then to better neighbours on the grid while there are any. The best of the three is returned. The
    problem is convex in y but not in x, so a curve with other x may be nearer still. With x that do not move, only the
    grid separates the result from the optimum.

    Draws nothing.

    Args:
        values: One finite value per layer, ``(n_layers,)``.
        space: The curve space.
        weights: Weights of the fitness, ``(n_objectives,)``.

    Returns:
        The fitted genome.

    Raises:
        CurveError: The values have the wrong shape or are not finite, or a weight is zero or not finite.
    """
    target = layer_values("values", values, space.n_layers)
    candidates = []
    for crowding in _CROWDINGS if space.x_rule != "even" and space.n_points > 2 else (1.0,):
        genome = space.nearest(_improved(space, _start(space, crowding, target), target))
        candidates.append(_polished(space, genome, target))
        if candidates[-1][0] <= _EXACT:
            break

    _, best = min(candidates, key=lambda candidate: candidate[0])
    return BezierGenome(best, weights)


def layer_values(name: str, values: npt.ArrayLike, n_layers: int) -> FloatArray:
    """Return one number for each layer as an array.

    Args:
        name: Name of the numbers in messages.
        values: The numbers, ``(n_layers,)``.
        n_layers: Number of layers.

    Raises:
        CurveError: The shape is wrong, or a number is not finite.
    """
    try:
        array = np.asarray(values, dtype=np.float64)
    except (OverflowError, TypeError, ValueError) as error:
        raise CurveError(
            f"Expected {n_layers} finite {name}, but got {shown(values)}. Give one number per layer."
        ) from error

    if array.shape != (n_layers,) or not np.isfinite(array).all():
        raise CurveError(
            f"Expected finite {name} of shape (n_layers,) = ({n_layers},), but got {array.shape} "
            f"with {np.isfinite(array).sum()} finite ones. Give one number per layer."
        )

    return array


def _start(space: "CurveSpace", crowding: float, target: FloatArray) -> FloatArray:
    """Return points with given x and the y of least squares, ``(n_points, 2)``, moved to feasible ones."""
    x = np.array(space.x_axis.values(space.even_xs()))
    if crowding != 1.0:
        x = x[-1] * np.linspace(0, 1, space.n_points) ** crowding
    in_y, _ = space.jacobian(np.column_stack([x, np.ones_like(x)]))

    # The system is solved relative to the mean, so that points without influence on any layer get the mean.
    centre = target.mean()
    y = centre + np.linalg.lstsq(in_y, target - centre, rcond=None)[0]
    return np.array(space.nearest(np.column_stack([x, y]).tolist()))


def _improved(space: "CurveSpace", start: FloatArray, target: FloatArray) -> list[list[float]]:
    """Return points near ``start`` whose curve is as near to the target as bounds, order and amplitude allow."""
    if _error(space, start[None], target)[0] <= _EXACT:
        return start.tolist()  # type: ignore[no-any-return]

    # The import is slow, and only fits need it.
    from scipy.optimize import LinearConstraint, minimize

    n_points, x_last = space.n_points, space.x_axis.high
    n_inner = 0 if space.x_rule == "even" else n_points - 2

    def points(vector: FloatArray) -> FloatArray:
        moved: FloatArray = start.copy()
        moved[:, 1] = np.clip(vector[:n_points], space.y_axis.low, space.y_axis.high)
        if n_inner:
            x = np.clip(vector[n_points:] * x_last, 0.0, x_last)
            moved[1:-1, 0] = np.maximum.accumulate(x) if space.x_rule == "sorted" else x
        return moved

    def error(vector: FloatArray) -> tuple[float, FloatArray]:
        moved = points(vector)
        residual = space.draw(moved[None])[0] - target
        in_y, in_x = space.jacobian(moved)
        slope = np.concatenate([residual @ in_y, x_last * (residual @ in_x)[1:-1] if n_inner else []])
        return float(residual @ residual), 2 * slope

    differences = np.diff(np.eye(n_points), axis=0)
    constraints = [
        LinearConstraint(
            np.pad(differences, ((0, 0), (0, n_inner))),
            -space.max_rise * space.y_axis.step,
            space.max_rise * space.y_axis.step,
        )
    ]

    if n_inner > 1 and space.x_rule == "sorted":
        order = np.pad(np.diff(np.eye(n_inner), axis=0), ((0, 0), (n_points, 0)))
        constraints.append(LinearConstraint(order, 0.0, np.inf))

    vector = np.concatenate([start[:, 1], start[1:-1, 0] / x_last if n_inner else []])
    found = minimize(
        error,
        vector,
        jac=True,
        method="SLSQP",
        bounds=[(space.y_axis.low, space.y_axis.high)] * n_points + [(0.0, 1.0)] * n_inner,
        constraints=constraints,
        options={"maxiter": _MAX_ITERATIONS, "ftol": 1e-15},
    )
    moved = points(found.x)
    is_nearer = _error(space, moved[None], target)[0] < _error(space, start[None], target)[0]

    return (moved if is_nearer else start).tolist()  # type: ignore[no-any-return]


def _polished(space: "CurveSpace", genome: BezierGenome, target: FloatArray) -> tuple[float, BezierGenome]:
    """Move to the best neighbour on the grid while it is nearer to the target, and return the squared error as well."""
    best = float(_error(space, np.array([genome]), target)[0])
    moves = _moves(space)
    for _ in range(_MAX_ITERATIONS if len(moves) else 0):
        xs, ys = space.indices(genome)
        neighbours = np.concatenate([xs, ys]) + moves
        neighbours = neighbours[_are_feasible(space, neighbours)]
        if not len(neighbours):
            break

        half = space.n_points
        curves = np.array([space.points(row[:half], row[half:]) for row in neighbours.tolist()])
        errors = _error(space, curves, target)
        nearest = int(np.argmin(errors))
        if errors[nearest] >= best:
            break

        best = float(errors[nearest])
        genome = BezierGenome(curves[nearest].tolist())

    return best, genome


def _moves(space: "CurveSpace") -> IntArray:
    """Return the steps to the neighbours of a genome, as x and y indices side by side, ``(n, 2 * n_points)``.

    One point moves by one or two steps, two neighbouring points move together or against each other, or all points rise
    or fall. On a continuous axis nothing moves, since there is no rounding to the grid to improve on.
    """
    n_points = space.n_points
    rows = []
    if not space.y_axis.continuous:
        one = np.eye(n_points, dtype=np.int64)
        pairs = [one[:-1] + one[1:], one[:-1] - one[1:]]
        up = np.concatenate([one, 2 * one, *pairs, np.ones((1, n_points), dtype=np.int64)])
        rows.append(np.pad(up, ((0, 0), (n_points, 0))))

    if not space.x_axis.continuous and space.x_rule != "even" and n_points > 2:
        rows.append(np.pad(np.eye(n_points, dtype=np.int64)[1:-1], ((0, 0), (0, n_points))))

    if not rows:
        return np.empty((0, 2 * n_points), dtype=np.int64)

    forth = np.concatenate(rows)
    return np.concatenate([forth, -forth])


def _are_feasible(space: "CurveSpace", indices: IntArray) -> npt.NDArray[np.bool_]:
    """Return which rows of x and y indices are feasible genomes."""
    xs, ys = np.split(indices, 2, axis=1)
    feasible = (ys >= 0) & (ys <= space.y_axis.n_steps) & (xs >= 0) & (xs <= space.x_axis.n_steps)
    smooth = (np.abs(np.diff(ys, axis=1)) <= space.max_rise).all(axis=1)
    ordered = (np.diff(xs, axis=1) >= 0).all(axis=1) | (space.x_rule != "sorted")
    return np.asarray(feasible.all(axis=1) & smooth & ordered)


def _error(space: "CurveSpace", curves: FloatArray, target: FloatArray) -> FloatArray:
    """Return the sum over layers of squared differences of each curve, ``(n,)``."""
    errors: FloatArray = ((space.draw(curves) - target) ** 2).sum(axis=1)
    return errors
