import random

import numpy as np
import pytest
from deap import base
from scipy.interpolate import BSpline

from lpes_evo.operators import (
    CurveError,
    CurveSpace,
    cx_mix,
    init_constants,
    init_quasi_random,
    init_random_walk,
    mut_mix,
)

N_LAYERS = 20
KINDS = ("bezier", "linear", "spline")
RULES = ("sorted", "free", "even")


def curves(space, n=60, seed=3):
    random.seed(seed)
    return [init_random_walk(space) for _ in range(n)]


def dense(space, genome, n=20_001):
    """The curve of a genome at many parameters, by SciPy's B-splines alone."""
    points = np.array(genome)
    degree = {"linear": 1, "spline": min(3, len(points) - 1), "bezier": len(points) - 1}[space.curve]
    knots = np.r_[[0] * degree, np.linspace(0, 1, len(points) - degree + 1), [1] * degree]
    return BSpline(knots, points, degree)(np.linspace(0, 1, n)).T


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_points", [2, 5, 8])
def test_every_layer_has_the_value_where_the_curve_first_reaches_it(kind, rule, n_points):
    space = CurveSpace(N_LAYERS, n_points, curve=kind, x_rule=rule, x_step=None)
    genomes = curves(space, 10)
    inner = np.arange(1, N_LAYERS - 1)
    for genome, row in zip(genomes, space.decode(genomes), strict=True):
        x, y = dense(space, genome)
        first = np.array([np.argmax(x >= layer) for layer in inner])
        low, high = np.minimum(y[first - 1], y[first]), np.maximum(y[first - 1], y[first])
        assert ((low - 1e-4 <= row[1:-1]) & (row[1:-1] <= high + 1e-4)).all()
        assert (row[0], row[-1]) == (genome[0][1], genome[-1][1])


def is_strict(genome):
    x = [point[0] for point in genome]
    return len(set(x)) == len(x)


def test_pieces_between_the_points_are_numpys_interpolation():
    space = CurveSpace(N_LAYERS, 6, curve="linear")
    genomes = [genome for genome in curves(space, 200) if is_strict(genome)]
    expected = [np.interp(np.arange(N_LAYERS), *np.array(genome).T) for genome in genomes]
    np.testing.assert_allclose(space.decode(genomes), expected, rtol=0, atol=1e-12)


def test_a_layer_on_a_vertical_piece_takes_its_first_point_and_the_ends_are_the_end_points():
    space = CurveSpace(5, 6, curve="linear", max_delta=1.5)
    values = space.decode([[(0, 0.5), (0, 1.0), (2, 1.4), (2, 0.6), (4, 0.8), (4, 2.0)]])[0]
    np.testing.assert_allclose(values, [0.5, 1.2, 1.4, 0.7, 2.0], atol=1e-15)


@pytest.mark.parametrize("n_points", [2, 3, 4])
def test_a_cubic_spline_of_few_points_is_the_bezier_curve(n_points):
    bezier, spline = (CurveSpace(N_LAYERS, n_points, curve=kind) for kind in ("bezier", "spline"))
    genomes = curves(bezier)
    np.testing.assert_allclose(spline.decode(genomes), bezier.decode(genomes), rtol=0, atol=1e-12)


def test_free_x_that_happen_to_be_sorted_give_the_same_curve():
    strict, free = (CurveSpace(N_LAYERS, 7, x_rule=rule) for rule in ("sorted", "free"))
    genomes = curves(strict)
    np.testing.assert_allclose(free.decode(genomes), strict.decode(genomes), rtol=0, atol=1e-11)


def test_one_value_for_each_layer_is_the_curve_of_as_many_even_points():
    space = CurveSpace(N_LAYERS, N_LAYERS, curve="linear", x_rule="even", max_delta=1.5)
    genomes = curves(space)
    np.testing.assert_allclose(space.decode(genomes), np.array(genomes)[..., 1], rtol=0, atol=1e-14)
    assert {len({x for x, _ in genome}) for genome in genomes} == {N_LAYERS}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("grid", [{}, {"x_step": None, "y_step": None}], ids=["grid", "continuous"])
def test_everything_that_operators_make_is_feasible_and_decodes_between_its_bounds(kind, rule, grid):
    space = CurveSpace(N_LAYERS, 6, curve=kind, x_rule=rule, **grid)
    population = curves(space, 20) + init_quasi_random(space, 20, seed=2) + init_constants(space, 5)
    moved = 0
    for _ in range(300):
        first, second = random.sample(population, 2)
        before = [point[0] for point in first]
        cx_mix(first, second, space=space)
        mut_mix(first, space=space)
        moved += before != [point[0] for point in first]
        space.check(first)
        space.check(second)
    values, y = space.decode(population), np.array(population)[..., 1]
    assert (values >= y.min(axis=1, keepdims=True)).all()
    assert (values <= y.max(axis=1, keepdims=True)).all()
    assert (moved == 0) == (rule == "even")
    has_turns = (np.diff(np.array(population)[..., 0], axis=1) < 0).any()
    assert has_turns == (rule == "free")


@pytest.mark.parametrize("kind", KINDS)
def test_constant_curves_are_exact(kind):
    space = CurveSpace(N_LAYERS, 6, curve=kind)
    for genome in init_constants(space, 7):
        assert set(space.decode([genome])[0]) == {genome[0][1]}


@pytest.mark.parametrize("kind", KINDS)
def test_fit_finds_a_curve_of_the_space_again(kind):
    space = CurveSpace(N_LAYERS, 5, curve=kind, x_rule="even")
    for genome in curves(space, 10):
        assert space.fit(space.decode([genome])[0]) == genome


@pytest.mark.parametrize("rule", RULES)
def test_the_nearest_genome_keeps_the_rule(rule):
    space = CurveSpace(N_LAYERS, 5, x_rule=rule)
    points = [(0, 1.0), (12.2, 1.1), (5.4, 1.2), (7.0, 1.1), (19, 1.0)]
    xs = [x for x, _ in space.nearest(points)]
    assert xs == {"sorted": [0, 8, 9, 9, 19], "free": [0, 12, 5, 7, 19], "even": [0, 5, 10, 14, 19]}[
        rule
    ] or (rule == "sorted" and xs == sorted(xs))
    space.check(space.nearest(points))


def test_the_curves_of_a_small_space_are_counted_by_the_rule():
    counts = {
        rule: CurveSpace(4, 4, y_min=1.0, y_max=1.2, y_step=0.1, max_delta=0.2, x_rule=rule).n_curves
        for rule in RULES
    }
    assert counts == {"sorted": 81 * 10, "free": 81 * 16, "even": 81}
    assert np.isinf(CurveSpace(4, 4, y_step=None, x_rule="even").n_curves)
    assert np.isfinite(CurveSpace(4, 4, x_step=None, x_rule="even").n_curves)


def test_x_that_break_the_rule_are_refused():
    turned = [(0, 1.0), (9, 1.0), (3, 1.0), (19, 1.0)]
    CurveSpace(N_LAYERS, x_rule="free").check(turned)
    with pytest.raises(CurveError, match=r"gene 2 has x = 3, below x = 9 of gene 1"):
        CurveSpace(N_LAYERS).check(turned)
    with pytest.raises(CurveError, match=r"gene 1 has x = 9, but x_rule 'even' pins it to 6\.0"):
        CurveSpace(N_LAYERS, x_rule="even").check(turned)
    with pytest.raises(CurveError, match="x_rule 'even' pins it"):
        mut_mix(CurveSpace(N_LAYERS, x_rule="free").genome(turned), space=CurveSpace(N_LAYERS, x_rule="even"))
    with pytest.raises(CurveError, match="without decreasing"):
        CurveSpace(N_LAYERS, curve="linear").decode([turned])


@pytest.mark.parametrize(("name", "words"), [("curve", KINDS), ("x_rule", RULES)])
@pytest.mark.parametrize("value", ["cubic", None, 3, ["bezier"]])
def test_an_unknown_word_is_refused(name, words, value):
    with pytest.raises(CurveError, match=f"Expected {name} to be one of {', '.join(words)}, but got"):
        CurveSpace(N_LAYERS, **{name: value})


def test_local_curves_may_have_more_points_than_bezier_curves():
    toolbox = base.Toolbox()
    space = CurveSpace(80, 80, curve="linear", x_rule="even")
    space.register(toolbox)
    assert space.decode(toolbox.population(n=3)).shape == (3, 80)
    with pytest.raises(CurveError, match="Expected n_points to be a whole number from 2 to 32"):
        CurveSpace(80, 80)
    with pytest.raises(CurveError, match="Expected n_points to be a whole number from 2 to 256"):
        CurveSpace(80, 300, curve="spline")
