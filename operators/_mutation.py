"""Mutations: one curve moves in place to another feasible one."""

import math
import random
from collections.abc import Sequence

from lpes_evo.operators._checks import is_finite, is_sequence, shown
from lpes_evo.operators._constraints import CurveConstraints
from lpes_evo.operators._errors import CurveError
from lpes_evo.operators._genome import BezierGenome

Single = tuple[BezierGenome]


def mut_point(individual: BezierGenome, *, space: CurveConstraints, finest: float = 1 / 64) -> Single:
    """Move one control point inside the rectangle that its neighbours and the bounds leave it.

    The rectangle is never empty, because it holds the point itself. The point is uniform among those that can move, and
    its new place is uniform among all but the old one. The rectangle is cut to a reach around the old place. The reach,
    as a share of the axis, is drawn log-uniformly from ``finest`` to 1. So one operator makes coarse and fine moves, as
    in the breeder genetic algorithm (Muehlenbein and Schlierkamp-Voosen, Evolutionary Computation 1(1), 1993).

    Draws ``random.random`` once, ``random.randrange`` once for each point tried, in random order until
    one can move, and once for its place.

    Args:
        individual: The curve, changed in place; unchanged only if no point can move.
        space: The curve space.
        finest: Smallest reach as share of the axis, in (0, 1]; 1 always allows the whole rectangle.

    Returns:
        The individual.

    Raises:
        CurveError: The individual is not feasible, or ``finest`` is out of range.
    """
    xs, ys = space.indices(individual)
    share = draw_share(finest)
    untried = list(range(space.n_points))
    while untried:
        k = untried.pop(random.randrange(len(untried)))
        x_range, y_range = _rectangle(space, xs, ys, k, share)
        n_places = len(x_range) * len(y_range)
        if n_places > 1:
            old = (xs[k] - x_range.start) * len(y_range) + ys[k] - y_range.start
            x_place, y_place = divmod(_draw_other(0, n_places - 1, old), len(y_range))
            xs[k], ys[k] = x_range[x_place], y_range[y_place]
            individual[:] = space.points(xs, ys)
            break

    return (individual,)


def mut_shift(individual: BezierGenome, *, space: CurveConstraints, finest: float = 1 / 64) -> Single:
    """Shift the whole curve up or down.

    Differences stay, so only the bounds limit the shift. The reach is drawn as in `mut_point`.

    Draws ``random.random`` once and, if the curve can move, ``random.randrange`` once.

    Args:
        individual: The curve, changed in place; unchanged only if it touches both bounds.
        space: The curve space.
        finest: Smallest reach as share of the axis, in (0, 1].

    Returns:
        The individual.

    Raises:
        CurveError: The individual is not feasible, or ``finest`` is out of range.
    """
    xs, ys = space.indices(individual)
    reach = _reach(draw_share(finest), space.y_axis.n_steps)
    low, high = max(-min(ys), -reach), min(space.y_axis.n_steps - max(ys), reach)
    if low < high:
        shift = _draw_other(low, high, 0)
        individual[:] = space.points(xs, [y + shift for y in ys])
    return (individual,)


def mut_tilt(individual: BezierGenome, *, space: CurveConstraints, finest: float = 1 / 64) -> Single:
    """Tilt the curve about one of its control points.

    Point k rises by ``rise * (k - pivot) / arm``, where ``arm`` is the number of points from the pivot to the
    further end, so that this end moves by exactly ``rise`` steps. The feasible real rises form an interval
    around 0, because the feasible set is convex; a whole one is drawn from it. Rounding the moved points to
    the grid keeps them feasible, for the reason given in `cx_blend`. The reach is drawn as in `mut_point`.

    Draws ``random.random`` once, ``random.randrange`` once for each pivot tried, in random order until
    one allows a tilt, and once for the rise.

    Args:
        individual: The curve, changed in place; unchanged only if it cannot be tilted about any point.
        space: The curve space.
        finest: Smallest reach as share of the axis, in (0, 1].

    Returns:
        The individual.

    Raises:
        CurveError: The individual is not feasible, or ``finest`` is out of range.
    """
    xs, ys = space.indices(individual)
    reach = _reach(draw_share(finest), space.y_axis.n_steps)
    untried = list(range(space.n_points))
    while untried:
        pivot = untried.pop(random.randrange(len(untried)))
        low, high = _feasible_rises(space, ys, pivot, reach)
        if low < high:
            rise = _draw_other(low, high, 0)
            arm = max(pivot, space.n_points - 1 - pivot)
            # (2 a + arm) // (2 arm) is a / arm rounded half up, without floats.
            ys = [y + (2 * rise * (k - pivot) + arm) // (2 * arm) for k, y in enumerate(ys)]
            individual[:] = space.points(xs, ys)
            break

    return (individual,)


_OPERATORS = (mut_point, mut_shift, mut_tilt)


def mut_mix(
    individual: BezierGenome,
    *,
    space: CurveConstraints,
    rates: Sequence[float] = (0.6, 0.2, 0.2),
    finest: float = 1 / 64,
) -> Single:
    """Move a point, shift or tilt; if the mutation that was drawn cannot change the curve, the others are tried.

    With all rates positive the curve changes unless it is the only one of the space.

    Draws ``random.choices`` once, then as the mutations tried.

    Args:
        individual: The curve, changed in place.
        space: The curve space.
        rates: Relative frequency of point, shift and tilt; a mutation with rate 0 is never used.
        finest: Smallest reach as share of the axis, in (0, 1].

    Returns:
        The individual.

    Raises:
        CurveError: The individual is not feasible, ``finest`` is out of range, or ``rates`` are not three
            numbers >= 0 with a positive sum.
    """
    check_rates(rates)
    (drawn,) = random.choices(_OPERATORS, rates)
    others = [
        mutate for mutate, rate in zip(_OPERATORS, rates, strict=True) if rate > 0 and mutate is not drawn
    ]
    before = individual[:]
    for mutate in (drawn, *others):
        mutate(individual, space=space, finest=finest)
        if individual != before:
            break
    return (individual,)


def check_rates(rates: Sequence[float]) -> None:
    """Refuse rates that `mut_mix` cannot use.

    Raises:
        CurveError: They are not three finite numbers >= 0 with a positive sum.
    """
    usable = (
        is_sequence(rates)
        and len(rates) == len(_OPERATORS)
        and all(is_finite(rate) and rate >= 0 for rate in rates)
    )
    if not usable or not sum(rates):
        raise CurveError(
            "Expected rates of point, shift and tilt as three numbers >= 0, not all 0, "
            f"but got {shown(rates)}. Use for example (0.6, 0.2, 0.2)."
        )


def check_finest(finest: float) -> None:
    """Refuse a smallest reach that is not a share of the axis.

    Raises:
        CurveError: It is not in (0, 1].
    """
    if not is_finite(finest) or not 0 < finest <= 1:
        raise CurveError(
            f"Expected finest to be a share of the axis in (0, 1], but got {shown(finest)}. "
            "Use 1 for moves of any size."
        )


def _rectangle(
    space: CurveConstraints, xs: list[int], ys: list[int], k: int, share: float
) -> tuple[range, range]:
    """Return the feasible x and y of one point with the others fixed, within reach of its old place."""
    last = space.n_points - 1
    neighbours = ys[max(0, k - 1) : k] + ys[k + 1 : k + 2]
    reach = _reach(share, space.y_axis.n_steps)
    low = max(0, ys[k] - reach, max(neighbours) - space.max_rise)
    high = min(space.y_axis.n_steps, ys[k] + reach, min(neighbours) + space.max_rise)
    if k in (0, last) or space.x_rule == "even":
        return range(xs[k], xs[k] + 1), range(low, high + 1)

    reach = _reach(share, space.x_axis.n_steps)
    before, after = (0, space.x_axis.n_steps) if space.x_rule == "free" else (xs[k - 1], xs[k + 1])
    left, right = max(before, xs[k] - reach), min(after, xs[k] + reach)
    return range(left, right + 1), range(low, high + 1)


def _feasible_rises(space: CurveConstraints, ys: list[int], pivot: int, reach: int) -> tuple[int, int]:
    """Return the smallest and largest feasible whole rise of `mut_tilt` about a pivot, within reach."""
    last = space.n_points - 1
    arm = max(pivot, last - pivot)
    low, high = -reach, reach
    for k, y in enumerate(ys):
        # The moved point stays in the box: 0 <= y + rise * (k - pivot) / arm <= n_steps.
        distance = abs(k - pivot)
        if distance:
            down, up = y * arm // distance, (space.y_axis.n_steps - y) * arm // distance
            low, high = (max(low, -down), min(high, up)) if k > pivot else (max(low, -up), min(high, down))

        # Its difference to the next point, which changes by rise / arm, stays within the amplitude bound.
        if k < last:
            difference = ys[k + 1] - y
            low = max(low, -(space.max_rise + difference) * arm)
            high = min(high, (space.max_rise - difference) * arm)

    return low, high


def draw_share(finest: float) -> float:
    """Draw a share of the axis log-uniformly from ``finest`` to 1.

    Raises:
        CurveError: ``finest`` is out of range.
    """
    check_finest(finest)
    return math.pow(finest, random.random())


def _reach(share: float, n_steps: int) -> int:
    """Return a share of an axis in steps, at least one."""
    return max(1, int(share * n_steps))


def _draw_other(low: int, high: int, current: int) -> int:
    """Draw a whole number from ``low`` to ``high`` other than ``current``, which lies between them."""
    drawn = random.randrange(low, high)
    return drawn if drawn < current else drawn + 1
