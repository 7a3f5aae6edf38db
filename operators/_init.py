"""Initialisers: feasible genomes to start from."""

import random
from collections.abc import Sequence

import numpy as np

from lpes_evo.operators._checks import whole
from lpes_evo.operators._constraints import CurveConstraints
from lpes_evo.operators._genome import BezierGenome


def init_random_walk(space: CurveConstraints, weights: Sequence[float] = (1.0,)) -> BezierGenome:
    """Draw a genome whose y is a walk with steps inside the amplitude bound.

    The first y is uniform over the whole interval. Each further y is uniform over the part of the interval within
    ``max_delta`` of the y before it. The inner x are uniform draws, arranged by ``x_rule``.

    Draws ``random.randint`` once per control point and once per inner control point.

    Args:
        space: The curve space.
        weights: Weights of the fitness, ``(n_objectives,)``.

    Returns:
        A feasible genome.

    Raises:
        CurveError: A weight is zero or not finite.
    """
    x_last, y_last, rise = space.x_axis.n_steps, space.y_axis.n_steps, space.max_rise
    ys = [random.randint(0, y_last)]
    while len(ys) < space.n_points:
        ys.append(random.randint(max(0, ys[-1] - rise), min(y_last, ys[-1] + rise)))
    inner = [random.randint(0, x_last) for _ in range(space.n_points - 2)]
    return BezierGenome(space.points(space.arrange(inner), ys), weights)


def init_quasi_random(
    space: CurveConstraints, n: int, seed: int, weights: Sequence[float] = (1.0,)
) -> list[BezierGenome]:
    """Spread genomes evenly by a scrambled Halton sequence.

    Each point of the sequence becomes a walk as in `init_random_walk`, with its coordinates in place of the random
    draws (Owen, A randomized Halton algorithm in R, 2017). Unlike a Sobol sequence, a Halton sequence needs no power of
    two as its length.

    Draws nothing from ``random``; the scrambling comes from ``seed``.

    Args:
        space: The curve space.
        n: Number of genomes.
        seed: Seed of the scrambling.
        weights: Weights of the fitness, ``(n_objectives,)``.

    Returns:
        ``n`` feasible genomes; on a small grid some may be equal.

    Raises:
        CurveError: ``n`` or ``seed`` is not a whole number >= 0, or a weight is zero or not finite.
    """
    n = whole("n", n, 0)
    seed = whole("seed", seed, 0)

    # The import of scipy.stats takes longer than everything else together, and nothing else here needs it.
    from scipy.stats import qmc

    n_points, x_last, y_last, rise = (
        space.n_points,
        space.x_axis.n_steps,
        space.y_axis.n_steps,
        space.max_rise,
    )
    sampler = qmc.Halton(d=2 * n_points - 2, scramble=True, seed=np.random.default_rng(seed))
    genomes = []

    for row in sampler.random(n).tolist():
        ys = [_pick(row[0], 0, y_last)]
        ys_shares, xs_shares = row[1:n_points], row[n_points:]
        for share in ys_shares:
            ys.append(_pick(share, max(0, ys[-1] - rise), min(y_last, ys[-1] + rise)))

        inner = [_pick(share, 0, x_last) for share in xs_shares]
        genomes.append(BezierGenome(space.points(space.arrange(inner), ys), weights))

    return genomes


def init_constant(space: CurveConstraints, y: float, weights: Sequence[float] = (1.0,)) -> BezierGenome:
    """Make the curve with the same value at every layer and equally spaced x.

    Draws nothing.

    Args:
        space: The curve space.
        y: The value.
        weights: Weights of the fitness, ``(n_objectives,)``.

    Returns:
        A feasible genome; all its decoded values are exactly ``y``.

    Raises:
        CurveError: The value is outside the bounds or off the grid, or a weight is zero or not finite.
    """
    genome = BezierGenome([(x, y) for x in space.x_axis.values(space.even_xs())], weights)
    space.check(genome)
    return genome


def init_constants(space: CurveConstraints, n: int, weights: Sequence[float] = (1.0,)) -> list[BezierGenome]:
    """Make constant curves spread evenly over the values, from the smallest to the largest.

    Draws nothing.

    Args:
        space: The curve space.
        n: Number of curves wanted.
        weights: Weights of the fitness, ``(n_objectives,)``.

    Returns:
        ``n`` different feasible genomes, or one for each value if the grid has fewer values. A single genome has the
        middle value.

    Raises:
        CurveError: ``n`` is not a whole number >= 0, or a weight is zero or not finite.
    """
    n = whole("n", n, 0)
    y_last = space.y_axis.n_steps
    n = min(n, y_last + 1)
    levels = [y_last // 2] if n == 1 else [(2 * i * y_last + n - 1) // (2 * (n - 1)) for i in range(n)]
    return [init_constant(space, y, weights) for y in space.y_axis.values(levels)]


def init_identity(space: CurveConstraints, weights: Sequence[float] = (1.0,)) -> BezierGenome:
    """Make the curve of all ones, which leaves a model untouched.

    Draws nothing.

    Args:
        space: The curve space.
        weights: Weights of the fitness, ``(n_objectives,)``.

    Returns:
        A feasible genome; all its decoded values are exactly 1.0.

    Raises:
        CurveError: 1.0 is outside the bounds or off the grid, or a weight is zero or not finite.
    """
    return init_constant(space, 1.0, weights)


def _pick(share: float, low: int, high: int) -> int:
    """Return the whole number at a share in [0, 1) of the way from ``low`` to ``high``, all equally wide."""
    return low + int(share * (high - low + 1))
