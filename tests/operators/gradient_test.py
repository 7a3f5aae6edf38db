"""Gradients on curves: the Jacobian, the mutation along it, and the fit of a curve to free values."""

import itertools
import random

import numpy as np
import pytest

from lpes_evo.operators import (
    BezierGenome,
    CurveError,
    CurveSpace,
    fit_curve,
    init_constant,
    init_random_walk,
    mut_gradient,
)

N_LAYERS = 12
KINDS = ("bezier", "linear", "spline")


def walks(space, n, seed=5):
    random.seed(seed)
    return [init_random_walk(space) for _ in range(n)]


def differences(space, genome, axis, points, step=1e-6):
    """Central differences of the decoded curve in one coordinate of some points, ``(n_layers, n)``."""
    columns = []
    for k in points:
        forth, back = np.array(genome), np.array(genome)
        forth[k, axis] += step
        back[k, axis] -= step
        low, high = space.decode(np.array([back, forth]))
        columns.append((high - low) / (2 * step))
    return np.array(columns).T


@pytest.mark.parametrize("rule", ["sorted", "free"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_points", [3, 6])
def test_the_jacobian_is_that_of_differences(kind, rule, n_points):
    space = CurveSpace(N_LAYERS, n_points, curve=kind, x_rule=rule, x_step=None, y_step=None)
    for genome in walks(space, 6):
        in_y, in_x = space.jacobian(genome)
        np.testing.assert_allclose(in_y, differences(space, genome, 1, range(n_points)), atol=1e-6)
        # Where a curve turns back just below a layer, the place it is read at jumps.
        if rule == "sorted":
            in_steps = differences(space, genome, 0, points=range(1, n_points - 1))
            np.testing.assert_allclose(in_x[:, 1:-1], in_steps, rtol=1e-4, atol=1e-5)
        assert not in_x[:, [0, -1]].any()


def test_the_jacobian_of_straight_pieces_that_meet_at_a_layer_is_the_mean_of_both_sides():
    space = CurveSpace(5, 3, curve="linear", y_step=None, x_step=None)
    in_y, in_x = space.jacobian([(0, 1.0), (2, 1.2), (4, 0.8)])
    np.testing.assert_allclose(in_y[2], [0, 1, 0], atol=1e-8)
    # Moved to the right, the layer is on the piece that rises by 0.1; to the left, on the one that falls by 0.2.
    assert in_x[2, 1] == pytest.approx((-0.1 + 0.2) / 2, abs=1e-8)


def test_x_that_do_not_move_have_no_derivative():
    space = CurveSpace(N_LAYERS, 5, x_rule="even")
    in_y, in_x = space.jacobian(walks(space, 1)[0])
    assert not in_x.any()
    np.testing.assert_allclose(in_y.sum(axis=1), 1.0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("continuous", [True, False])
def test_a_small_step_along_the_gradient_raises_a_smooth_fitness(kind, continuous):
    grid = {"x_step": None, "y_step": None} if continuous else {"y_step": 0.001}
    space = CurveSpace(N_LAYERS, 5, curve=kind, **grid)
    target = 1.2 + 0.2 * np.sin(np.arange(N_LAYERS) / 2)

    def fitness(genome):
        return -((space.decode([genome])[0] - target) ** 2).sum()

    n_better = 0
    genomes = walks(space, 20)
    for genome in genomes:
        slope = -2 * (space.decode([genome])[0] - target)
        before = fitness(genome)
        random.seed(SHORT)
        (moved,) = mut_gradient(genome, space=space, gradient=slope, finest=1e-3)
        space.check(moved)
        n_better += fitness(moved) > before
    assert n_better >= (19 if continuous else 15)


# The share that is drawn is finest**random(), so a seed whose first draw is close to 1 makes a short step.
SHORT = next(seed for seed in range(10_000) if random.Random(seed).random() > 0.995)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rule", ["sorted", "free", "even"])
def test_any_gradient_keeps_a_genome_feasible_and_a_nonzero_one_nearly_always_moves_it(kind, rule):
    space = CurveSpace(N_LAYERS, 5, curve=kind, x_rule=rule, max_delta=0.1)
    rng, n_moved = np.random.default_rng(0), 0
    genomes = walks(space, 60)
    for genome in genomes:
        before = list(genome)
        mut_gradient(genome, space=space, gradient=rng.normal(size=N_LAYERS) * 10.0 ** rng.integers(-9, 9))
        space.check(genome)
        n_moved += list(genome) != before
    assert n_moved >= 58


def test_nothing_moves_where_the_gradient_is_zero_or_points_out_of_the_space():
    space = CurveSpace(N_LAYERS, 4)
    flat = init_constant(space, 2.0)
    before = list(flat)
    mut_gradient(flat, space=space, gradient=np.zeros(N_LAYERS))
    assert flat == before
    mut_gradient(flat, space=space, gradient=np.ones(N_LAYERS))
    assert flat == before
    mut_gradient(flat, space=space, gradient=-np.ones(N_LAYERS))
    assert flat != before


def test_the_same_seed_gives_the_same_mutation_and_draws_once():
    space, slope = CurveSpace(N_LAYERS, 4), np.linspace(-1, 1, N_LAYERS)
    results = []
    for _ in range(2):
        random.seed(7)
        genome = init_constant(space, 1.0)
        mut_gradient(genome, space=space, gradient=slope)
        results.append((list(genome), random.random()))
    random.seed(7)
    random.random()
    assert results[0] == results[1]
    assert random.random() == results[0][1]


@pytest.mark.parametrize(
    ("gradient", "message"),
    [
        (np.ones(3), r"Expected finite derivatives of shape \(n_layers,\) = \(12,\), but got \(3,\)"),
        ([np.nan] * 12, "with 0 finite ones"),
        ("steep", "Expected 12 finite derivatives, but got 'steep'"),
    ],
)
def test_a_gradient_that_is_none_is_refused(gradient, message):
    space = CurveSpace(N_LAYERS, 4)
    with pytest.raises(CurveError, match=message):
        mut_gradient(init_constant(space, 1.0), space=space, gradient=gradient)


def test_a_step_of_no_share_and_a_genome_of_another_space_are_refused():
    space = CurveSpace(N_LAYERS, 4)
    with pytest.raises(CurveError, match="Expected finest to be a share of the axis"):
        mut_gradient(init_constant(space, 1.0), space=space, gradient=np.ones(N_LAYERS), finest=0)
    with pytest.raises(CurveError, match="it has 2 control points instead of n_points = 4"):
        mut_gradient(BezierGenome([(0, 1), (11, 1)]), space=space, gradient=np.ones(N_LAYERS))


def all_genomes(space):
    xs = itertools.product(range(space.x_axis.n_steps + 1), repeat=space.n_points - 2)
    ys = list(itertools.product(range(space.y_axis.n_steps + 1), repeat=space.n_points))
    genomes = []
    for inner in xs:
        if list(inner) != sorted(inner):
            continue
        for y in ys:
            points = space.points([0, *inner, space.x_axis.n_steps], y)
            if space.contains(points):
                genomes.append(points)
    return genomes


def test_a_fit_on_a_small_grid_is_nearly_always_the_nearest_of_all_genomes():
    space = CurveSpace(6, 3, y_min=0.8, y_max=1.6, y_step=0.1, max_delta=0.3)
    curves = space.decode(all_genomes(space))
    rng, excess = np.random.default_rng(2), []
    for _ in range(12):
        values = rng.uniform(0.7, 1.7, 6)
        fitted = fit_curve(values, space)
        space.check(fitted)
        error = ((space.decode([fitted])[0] - values) ** 2).sum()
        excess.append(error / ((curves - values) ** 2).sum(axis=1).min() - 1)
    assert min(excess) > -1e-12
    assert np.median(excess) == pytest.approx(0, abs=1e-12)
    assert max(excess) < 0.1


def test_a_fit_keeps_bounds_and_amplitude_where_values_do_not():
    space = CurveSpace(N_LAYERS, 4, max_delta=0.1)
    values = np.where(np.arange(N_LAYERS) < 6, 0.1, 5.0)
    fitted = fit_curve(values, space)
    space.check(fitted)
    # Nothing feasible is nearer among the straight curves with the steepest rise.
    rivals = [space.nearest([(x, low + 0.1 * k) for k, x in enumerate((0, 4, 7, 11))]) for low in (0.5, 1.7)]
    errors = ((space.decode([fitted, *rivals]) - values) ** 2).sum(axis=1)
    assert errors[0] <= errors[1:].min()


def test_free_values_are_fitted_exactly_where_every_layer_has_a_point():
    space = CurveSpace(60, 60, curve="linear", x_rule="even", max_delta=1.5)
    values = space.y_axis.low + 0.02 * np.random.default_rng(0).integers(0, 76, 60)
    np.testing.assert_allclose(space.decode([fit_curve(values, space)])[0], values, atol=1e-12)
    outside = values.copy()
    outside[7] = 9.0
    values[7] = 2.0
    np.testing.assert_allclose(space.decode([fit_curve(outside, space)])[0], values, atol=1e-12)
