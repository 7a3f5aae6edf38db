"""Crossovers: two parents exchange material in place and stay feasible."""

import random

from lpes_evo.operators._checks import is_finite, shown
from lpes_evo.operators._constraints import CurveConstraints
from lpes_evo.operators._errors import CurveError
from lpes_evo.operators._genome import BezierGenome

_WEIGHT_BITS = 20
_ONE = 1 << _WEIGHT_BITS

Pair = tuple[BezierGenome, BezierGenome]


def cx_blend(first: BezierGenome, second: BezierGenome, *, space: CurveConstraints) -> Pair:
    """Mix two curves by a convex combination with one weight per axis.

    This is the arithmetic crossover of Michalewicz (Genetic Algorithms + Data Structures = Evolution Programs, 1992).
    The feasible set is convex, and one weight for all points also keeps differences convex. Rounding to the grid is
    monotone and commutes with adding whole steps, so it preserves order, bounds and amplitude. The second child is the
    sum of the parents minus the first child.

    Draws ``random.getrandbits`` twice.

    Args:
        first: Parent, changed in place.
        second: Parent, changed in place.
        space: The curve space.

    Returns:
        Both individuals.

    Raises:
        CurveError: A parent is not feasible.
    """
    (first_xs, first_ys), (second_xs, second_ys) = space.indices(first), space.indices(second)
    first_xs, second_xs = _blend(first_xs, second_xs)
    first_ys, second_ys = _blend(first_ys, second_ys)
    first[:] = space.points(first_xs, first_ys)
    second[:] = space.points(second_xs, second_ys)
    return first, second


def cx_splice(first: BezierGenome, second: BezierGenome, *, space: CurveConstraints) -> Pair:
    """Exchange the tails of two curves behind a junction where both children are feasible.

    The junction is drawn from those that keep order and amplitude at the seam of both children. If there is none, the
    curves exchange all their y and keep their x. This is always feasible, because no constraint links x to y.

    Draws ``random.choice`` once.

    Args:
        first: Parent, changed in place.
        second: Parent, changed in place.
        space: The curve space.

    Returns:
        Both individuals.

    Raises:
        CurveError: A parent is not feasible.
    """
    (first_xs, first_ys), (second_xs, second_ys) = space.indices(first), space.indices(second)
    rise, is_free = space.max_rise, space.x_rule == "free"
    junctions = [
        k
        for k in range(1, space.n_points)
        if (is_free or (first_xs[k - 1] <= second_xs[k] and second_xs[k - 1] <= first_xs[k]))
        and abs(second_ys[k] - first_ys[k - 1]) <= rise
        and abs(first_ys[k] - second_ys[k - 1]) <= rise
    ]

    # Slices of a list are copies, so this exchange cannot overwrite itself.
    if junctions:
        k = random.choice(junctions)
        first_xs[k:], second_xs[k:] = second_xs[k:], first_xs[k:]
        first_ys[k:], second_ys[k:] = second_ys[k:], first_ys[k:]
    else:
        first_ys, second_ys = second_ys, first_ys

    first[:] = space.points(first_xs, first_ys)
    second[:] = space.points(second_xs, second_ys)
    return first, second


def cx_mix(first: BezierGenome, second: BezierGenome, *, space: CurveConstraints, blend: float = 0.5) -> Pair:
    """Blend or splice two curves.

    Draws ``random.random`` once, then as `cx_blend` or `cx_splice`.

    Args:
        first: Parent, changed in place.
        second: Parent, changed in place.
        space: The curve space.
        blend: Probability of the blend.

    Returns:
        Both individuals.

    Raises:
        CurveError: A parent is not feasible, or ``blend`` is not a probability.
    """
    check_blend(blend)
    cross = cx_blend if random.random() < blend else cx_splice
    return cross(first, second, space=space)


def check_blend(blend: float) -> None:
    """Refuse a value that is not a probability.

    Raises:
        CurveError: It is not a number from 0 to 1.
    """
    if not is_finite(blend) or not 0 <= blend <= 1:
        raise CurveError(
            f"Expected blend to be a probability from 0 to 1, but got {shown(blend)}. Use 0.5 for an even mix."
        )


def _blend(first: list[int], second: list[int]) -> tuple[list[int], list[int]]:
    """Return two complementary convex combinations in exact whole-number arithmetic."""
    weight = random.getrandbits(_WEIGHT_BITS)
    blended = [
        ((_ONE - weight) * a + weight * b + _ONE // 2) >> _WEIGHT_BITS
        for a, b in zip(first, second, strict=True)
    ]
    return blended, [a + b - c for a, b, c in zip(first, second, blended, strict=True)]
