"""The nearest feasible grid points, found exactly by dynamic programming."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise


def nearest_indices(
    targets: Sequence[Fraction],
    start: Sequence[int],
    bounds: Sequence[tuple[int, int]],
    rise: tuple[int, int],
) -> list[int]:
    """Minimise the sum of squared distances to targets over whole numbers with bounded differences.

    The objective is L-natural convex (separable convex, bounds, bounds on differences), so the scaling algorithm is
    exact: a minimiser over multiples of 2s lies within ``n_points`` steps of size s of a minimiser over multiples of s
    (Murota, Discrete Convex Analysis, 2003, theorem 7.18). Each scale is solved by dynamic programming along the curve.
    The cost grows with the logarithm of the grid size, so the same code serves continuous axes.

    Args:
        targets: Exact target of each number, ``(n_points,)``.
        start: A feasible solution, ``(n_points,)``.
        bounds: Smallest and largest value of each number, ``(n_points, 2)``.
        rise: Smallest and largest difference ``value[k + 1] - value[k]``.

    Returns:
        The minimiser, ``(n_points,)``; among equally near ones the choice is always the same.
    """
    freely = [min(max(round(target), low), high) for target, (low, high) in zip(targets, bounds, strict=True)]
    if all(rise[0] <= after - before <= rise[1] for before, after in pairwise(freely)):
        return freely

    solution = list(start)
    span = max(high - low for low, high in bounds)
    scale = 1 << span.bit_length()
    reach = len(solution)

    while scale:
        candidates = [
            [
                value
                for value in range(x - reach * scale, x + reach * scale + 1, scale)
                if low <= value <= high
            ]
            for x, (low, high) in zip(solution, bounds, strict=True)
        ]
        solution = _best_path(targets, candidates, rise)
        scale //= 2

    return solution


def _best_path(
    targets: Sequence[Fraction], candidates: Sequence[Sequence[int]], rise: tuple[int, int]
) -> list[int]:
    """Return the candidates with the smallest sum of squared distances whose differences are allowed."""
    # For each candidate that can be reached: cost so far and the path there.
    paths = {value: ((value - targets[0]) ** 2, [value]) for value in candidates[0]}
    for target, values in zip(targets[1:], candidates[1:], strict=True):
        longer = {}
        for value in values:
            before = [paths[last] for last in paths if rise[0] <= value - last <= rise[1]]
            if before:
                cost, path = min(before)
                longer[value] = (cost + (value - target) ** 2, [*path, value])
        paths = longer
    return min(paths.values())[1]
