import itertools
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest

from lpes_evo.operators import (
    BezierGenome,
    CurveError,
    CurveSpace,
    init_constant,
    init_random_walk,
    nearest_indices,
)


@pytest.fixture
def space():
    return CurveSpace(8, 4, y_min=0.5, y_max=2.0, y_step=0.1, max_delta=0.3)


@pytest.fixture
def tiny():
    """A space small enough to list every genome."""
    return CurveSpace(4, 4, y_min=0.8, y_max=1.2, y_step=0.1, max_delta=0.2)


@pytest.fixture(scope="module")
def all_genomes():
    """Every genome of the tiny space, by trying all grid points and asking for the constraints one by one."""
    genomes = []
    for x in itertools.product(range(4), repeat=2):
        for y in itertools.product([0.8, 0.9, 1.0, 1.1, 1.2], repeat=4):
            if x[0] <= x[1] and max(map(abs, np.diff(y))) < 0.2 + 1e-9:
                genomes.append(list(zip((0.0, *map(float, x), 3.0), y, strict=True)))
    return genomes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_layers": 0}, r"Expected n_layers to be a whole number >= 1, but got 0"),
        ({"n_layers": True}, r"Expected n_layers to be a whole number >= 1, but got True"),
        ({"n_layers": 4.0}, r"Expected n_layers to be a whole number >= 1, but got 4\.0"),
        ({"n_points": 1}, r"Expected n_points to be a whole number from 2 to 32, but got 1"),
        ({"y_min": math.nan}, r"Expected y_min to be finite, at most 1e100 in size, but got nan\. Use"),
        ({"y_max": math.inf}, r"Expected y_max to be finite, at most 1e100 in size, but got inf\. Use"),
        ({"y_max": 10**400}, r"Expected y_max to be finite, at most 1e100 in size, but got 1000"),
        ({"y_max": 10**5000}, r"Expected y_max to be finite"),
        ({"n_points": 33}, r"Expected n_points to be a whole number from 2 to 32, but got 33\. Use"),
        ({"y_min": "0.5"}, r"Expected y_min to be a number, but got '0\.5'"),
        ({"max_delta": None}, r"Expected max_delta to be a number, but got None"),
        ({"y_min": 3.0}, r"Expected y_min <= y_max, but got 3\.0 and 2\.0"),
        ({"max_delta": -0.1}, r"Expected max_delta >= 0, but got -0\.1"),
        ({"y_step": 0.0}, r"Expected y_step >= 1\.5e-05, but got 0\.0"),
        ({"y_step": -0.1}, r"Expected y_step >= 1\.5e-05, but got -0\.1"),
        (
            {"max_delta": 0.05},
            r"max_delta to be a whole number of y_step = 0\.02, but got 0\.05\. Use 0\.04 or 0\.06",
        ),
        (
            {"y_max": 2.01},
            r"y_max to be y_min = 0\.5 plus a whole number of y_step = 0\.02, but got 2\.01\. Use 2 or 2\.02",
        ),
        ({"x_step": 2}, r"Expected x_step to divide n_layers - 1 = 31, but got 2\. Use one of 1, 31"),
        ({"x_step": 0}, r"Expected x_step to be a whole number >= 1, but got 0"),
    ],
)
def test_a_space_that_makes_no_sense_is_refused(arguments, message):
    with pytest.raises(CurveError, match=message):
        CurveSpace(**{"n_layers": 32, **arguments})


def test_numpy_numbers_become_python_numbers():
    space = CurveSpace(np.int64(8), y_min=np.float64(0.5), max_delta=np.float32(0.5))
    assert space == CurveSpace(8, y_min=0.5, max_delta=0.5)
    assert type(space.n_layers) is int
    assert type(space.y_min) is float


def test_a_space_survives_pickling_and_is_hashable(space):
    assert pickle.loads(pickle.dumps(space)) == space  # noqa: S301
    assert hash(space) == hash(CurveSpace(8, 4, y_min=0.5, y_max=2.0, y_step=0.1, max_delta=0.3))


def test_a_space_cannot_be_changed(space):
    with pytest.raises(AttributeError, match="cannot assign"):
        space.y_min = 0.1


FEASIBLE = [(0.0, 1.0), (2.0, 1.2), (5.0, 1.5), (7.0, 1.5)]


@pytest.mark.parametrize(
    ("gene", "point", "message"),
    [
        (2, (5.0, 2.3), r"gene 2 has y = 2\.3, above y_max = 2\.0"),
        (2, (5.0, 0.4), r"gene 2 has y = 0\.4, below y_min = 0\.5"),
        (1, (2.0, 1.24), r"gene 1 has y = 1\.24, not on the grid of y_step = 0\.1; 1\.2 is nearest"),
        (1, (2.5, 1.2), r"gene 1 has x = 2\.5, not on the grid of x_step = 1; 2\.0 is nearest"),
        (1, (6.0, 1.2), r"gene 2 has x = 5\.0, below x = 6\.0 of gene 1"),
        (2, (9.0, 1.5), r"gene 2 has x = 9\.0, above n_layers - 1 = 7\.0"),
        (1, (-1.0, 1.2), r"gene 1 has x = -1\.0, below 0"),
        (0, (1.0, 1.0), r"gene 0 has x = 1\.0, but it is pinned to 0\.0"),
        (3, (6.0, 1.5), r"gene 3 has x = 6\.0, but it is pinned to 7\.0"),
        (3, (7.0, 1.9), r"gene 3 has y = 1\.9, further than max_delta = 0\.3 from y = 1\.5 of gene 2"),
        (0, (0.0, math.nan), r"gene 0 is \(0\.0, nan\), not a pair of finite numbers"),
        (0, (0.0,), r"gene 0 is \(0\.0,\), not a pair of finite numbers"),
        (0, 1.0, r"gene 0 is 1\.0, not a pair of finite numbers"),
    ],
)
def test_check_names_gene_and_bound(space, gene, point, message):
    genome = list(FEASIBLE)
    assert space.contains(genome)
    genome[gene] = point
    assert not space.contains(genome)
    with pytest.raises(CurveError, match=message):
        space.check(genome)


def test_check_names_everything_that_is_broken(space):
    assert space.violations([(0.0, 9.0), (2.0, 1.2), (5.0, 1.5), (7.0, 0.1)]) == [
        "gene 0 has y = 9.0, above y_max = 2.0",
        "gene 3 has y = 0.1, below y_min = 0.5",
        "gene 1 has y = 1.2, further than max_delta = 0.3 from y = 9.0 of gene 0",
        "gene 3 has y = 0.1, further than max_delta = 0.3 from y = 1.5 of gene 2",
    ]


def test_check_names_a_wrong_number_of_points(space):
    with pytest.raises(CurveError, match="it has 3 control points instead of n_points = 4"):
        space.check(FEASIBLE[:3])


def test_a_start_genome_out_of_bounds_is_refused_at_once(space):
    with pytest.raises(ValueError, match=r"gene 2 has y = 2\.3, above y_max = 2\.0"):
        space.genome([(0, 1.0), (2, 1.2), (5, 2.3), (7, 1.5)])


def test_genome_takes_whole_numbers_and_arrays(space):
    assert space.genome([(0, 1), (2, 1.2), (5, 1.5), (7, 1.5)]) == FEASIBLE
    assert space.genome(np.array(FEASIBLE)) == FEASIBLE


def test_the_grid_has_no_rounding_errors():
    space = CurveSpace(8, y_min=0.1, y_max=1.1, y_step=0.1, max_delta=0.3)
    assert space.y_axis.values(range(11)) == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1]


def test_bounds_on_a_grid_lose_their_rounding_errors():
    space = CurveSpace(8, y_min=0.1 + 0.2, y_max=0.3 + 5 * 0.1, y_step=0.1, max_delta=0.1)
    assert space == CurveSpace(8, y_min=0.3, y_max=0.8, y_step=0.1, max_delta=0.1)
    assert space.y_axis.values([0, 5]) == [0.3, 0.8]


def test_n_curves_counts_every_genome(tiny, all_genomes):
    assert all(tiny.contains(genome) for genome in all_genomes)
    assert tiny.n_curves == len(all_genomes)
    assert type(tiny.n_curves) is int


def test_n_curves_of_small_and_large_spaces():
    assert CurveSpace(1, 2, y_min=0.8, y_max=1.2, y_step=0.1, max_delta=0.0).n_curves == 5
    assert CurveSpace(2, 2, y_min=1.0, y_max=1.0).n_curves == 1
    # Without an amplitude bound: 76 values for each of 4 points, and multisets of 2 of 32 layers.
    assert CurveSpace(32, max_delta=1.5).n_curves == 76**4 * math.comb(33, 2)


@pytest.mark.parametrize("axis", [{"y_step": None}, {"x_step": None}])
def test_n_curves_is_infinite_where_an_axis_is_continuous(axis):
    assert CurveSpace(8, **axis).n_curves == math.inf


def test_a_continuous_axis_of_one_point_is_counted():
    assert CurveSpace(1, 2, y_min=1.0, y_max=1.0, y_step=None, x_step=None).n_curves == 1


def test_nearest_is_the_best_of_all_genomes(tiny, all_genomes):
    genomes = np.array(all_genomes)
    generator = np.random.default_rng(3)
    for _ in range(40):
        points = generator.normal([1.5, 1.0], [2.0, 0.4], size=(4, 2))
        nearest = tiny.nearest(points)
        tiny.check(nearest)
        distances = ((genomes - points) ** 2).sum(axis=(1, 2))
        assert ((np.array(nearest) - points) ** 2).sum() == pytest.approx(distances.min(), abs=1e-12)


@pytest.mark.parametrize("seed", range(30))
def test_the_nearest_indices_agree_with_a_search_over_the_whole_grid(seed):
    generator = np.random.default_rng(seed)
    n_points, last = generator.integers(2, 7), int(generator.integers(0, 50))
    rise = int(generator.integers(0, last + 1))
    targets = generator.uniform(-0.5 * last - 2, 1.5 * last + 2, n_points)
    grid = np.arange(last + 1)
    cost = (grid - targets[0]) ** 2
    allowed = np.abs(grid[:, None] - grid) <= rise
    for target in targets[1:]:
        cost = np.where(allowed, cost, np.inf).min(axis=1) + (grid - target) ** 2
    found = nearest_indices(
        [Fraction(target) for target in targets], [0] * n_points, [(0, last)] * n_points, (-rise, rise)
    )
    assert np.abs(np.diff(found)).max() <= rise
    assert ((found - targets) ** 2).sum() == pytest.approx(cost.min(), rel=1e-12)


def test_nearest_agrees_with_a_quadratic_programme_on_continuous_axes():
    from scipy.optimize import LinearConstraint, minimize

    space = CurveSpace(10, 5, y_min=0.5, y_max=1.5, y_step=None, max_delta=0.2, x_step=None)
    differences = LinearConstraint(np.diff(np.eye(5), axis=0), -0.2, 0.2)
    points = np.array([(1.0, 0.4), (5.0, 1.4), (3.0, 0.7), (9.0, 1.3), (7.0, 1.9)])
    nearest = np.array(space.nearest(points))
    space.check(nearest)
    best = minimize(
        lambda y: ((y - points[:, 1]) ** 2).sum(),
        np.ones(5),
        bounds=[(0.5, 1.5)] * 5,
        constraints=[differences],
        method="SLSQP",
        options={"ftol": 1e-14},
    )
    np.testing.assert_allclose(nearest[:, 1], best.x, atol=1e-6)
    # Isotonic regression of 5, 3 is 4, 4; the ends are pinned.
    np.testing.assert_allclose(nearest[:, 0], [0, 4, 4, 9, 9], atol=1e-8)


def test_nearest_leaves_a_feasible_genome_as_it_is(space):
    assert space.nearest(FEASIBLE) == FEASIBLE


def test_nearest_puts_rounding_errors_back_on_the_grid(space):
    assert space.nearest([(0, 0.1 + 0.2 + 0.7), (2, 1.2), (5, 1.5), (7, 1.5)]) == FEASIBLE


def test_nearest_wants_as_many_points_as_the_space_has(space):
    with pytest.raises(CurveError, match="Expected n_points = 4 control points, but got 3"):
        space.nearest(FEASIBLE[:3])


def test_nearest_wants_finite_points(space):
    with pytest.raises(CurveError, match="Expected gene 1 to be a pair"):
        space.nearest([(0, 1), (2, math.inf), (5, 1), (7, 1)])


def test_fit_finds_a_curve_of_the_space_again():
    space = CurveSpace(10, 4, y_min=0.5, y_max=2.0, y_step=0.01, max_delta=0.5)
    genome = space.genome([(0, 0.8), (3, 1.2), (6, 1.0), (9, 0.9)])
    assert space.fit(space.decode([genome])[0]) == genome


def test_fit_wants_one_finite_value_per_layer(space):
    with pytest.raises(CurveError, match=r"shape \(n_layers,\) = \(8,\), but got \(7,\)"):
        space.fit(np.ones(7))
    with pytest.raises(CurveError, match="with 7 finite ones"):
        space.fit([math.nan] + [1.0] * 7)


@pytest.mark.parametrize(
    ("points", "message"),
    [
        (
            FEASIBLE,
            r"shape \(n, n_points, 2\) = \(n, 4, 2\), but got \(4, 2\)\. Wrap a single genome in a list",
        ),
        ([FEASIBLE[:3]], r"but got \(1, 3, 2\)"),
        ([FEASIBLE, FEASIBLE[:3]], "Expected genomes of n_points = 4 pairs each"),
        ([[(0, 1), (5, 1), (3, 1), (7, 1)]], "but genome 0 is"),
        ([FEASIBLE, [(1, 1), (2, 1), (3, 1), (7, 1)]], "but genome 1 is"),
        ([[(0, 1), (2, 1), (3, 1), (6, 1)]], "x going from 0 to n_layers - 1 = 7"),
        ([[(0, 1), (2, math.nan), (3, 1), (7, 1)]], "Expected finite points"),
    ],
)
def test_decode_refuses_what_is_not_a_curve(space, points, message):
    with pytest.raises(CurveError, match=message):
        space.decode(points)


def test_decode_takes_genomes_lists_and_arrays(space):
    genome = BezierGenome(FEASIBLE)
    expected = space.decode([genome])
    assert expected.shape == (1, 8)
    assert expected.dtype == np.float64
    np.testing.assert_array_equal(space.decode(np.array([FEASIBLE])), expected)
    np.testing.assert_array_equal(space.decode([FEASIBLE]), expected)


def test_decode_of_nothing_is_empty(space):
    assert space.decode([]).shape == (0, 8)
    assert space.decode(np.empty((0, 4, 2))).shape == (0, 8)


def test_a_decoded_curve_does_not_depend_on_its_neighbours():
    space = CurveSpace(32, 6)
    genomes = [init_random_walk(space) for _ in range(700)]
    together = space.decode(genomes)
    for row in range(0, 700, 50):
        np.testing.assert_array_equal(space.decode([genomes[row]])[0], together[row])


@pytest.mark.parametrize("n_layers", [1, 2, 3, 32])
@pytest.mark.parametrize("n_points", [2, 3, 4, 8, 32])
def test_decoded_values_lie_within_the_control_values(n_layers, n_points):
    space = CurveSpace(n_layers, n_points)
    genomes = [init_random_walk(space) for _ in range(200)]
    values, y = space.decode(genomes), np.array(genomes)[..., 1]
    assert (values >= y.min(axis=1, keepdims=True)).all()
    assert (values <= y.max(axis=1, keepdims=True)).all()
    np.testing.assert_array_equal(values[:, 0], y[:, 0])
    if n_layers > 1:
        np.testing.assert_array_equal(values[:, -1], y[:, -1])


@pytest.mark.parametrize("n_layers", [1, 2, 7, 32])
def test_constant_curves_decode_to_exactly_the_constant(n_layers):
    space = CurveSpace(n_layers)
    for y in space.y_axis.values(range(space.y_axis.n_steps + 1)):
        assert (space.decode([init_constant(space, y)]) == y).all()


def test_contains_identity():
    assert CurveSpace(8).contains_identity
    assert CurveSpace(8, y_step=None).contains_identity
    assert not CurveSpace(8, y_min=1.1, y_max=2.0, y_step=0.1).contains_identity
    assert not CurveSpace(8, y_min=0.55, y_max=2.05, y_step=0.1).contains_identity


def test_numbers_too_large_for_a_float_are_refused(space):
    huge = [*FEASIBLE[:1], (2, 10**400), *FEASIBLE[2:]]
    assert space.violations(huge)[0].startswith("gene 1 is (2, 1000")
    assert "gene 1 has y = 1e+308, above y_max = 2.0" in space.violations(
        [FEASIBLE[0], (2, 1e308), *FEASIBLE[2:]]
    )
    with pytest.raises(CurveError, match="Expected genomes of n_points = 4 pairs each, but got"):
        space.decode([huge])


def test_what_is_no_sequence_is_refused(space):
    with pytest.raises(CurveError, match=r"Expected control points as \(x, y\) pairs, but got None\. Give"):
        space.genome(None)
    with pytest.raises(CurveError, match="it is None, not a sequence of control points"):
        space.check(None)
    with pytest.raises(CurveError, match=r"Expected 8 finite values, but got 'a'\. Give"):
        space.fit("a")


@pytest.mark.parametrize("x_step", [1, None])
def test_n_curves_of_constant_curves_does_not_count_their_x(x_step):
    assert CurveSpace(32, y_min=1.0, y_max=1.0, x_step=x_step).n_curves == 1
    assert CurveSpace(32, max_delta=0.0, x_step=x_step).n_curves == 76
