import random
from itertools import pairwise

import numpy as np
import pytest
from deap import base
from hypothesis import given, settings, strategies as st

from lpes_evo.operators import (
    BezierGenome,
    CurveError,
    CurveSpace,
    cx_blend,
    cx_mix,
    cx_splice,
    init_constant,
    init_constants,
    init_identity,
    init_quasi_random,
    init_random_walk,
    mut_mix,
    mut_point,
    mut_shift,
    mut_tilt,
)

CROSSOVERS = (cx_blend, cx_splice, cx_mix)
MUTATIONS = (mut_point, mut_shift, mut_tilt, mut_mix)
SPACES = {
    "default": CurveSpace(32),
    "continuous": CurveSpace(32, y_step=None, x_step=None, max_delta=1 / 3, y_min=0.1, y_max=1 / 0.7),
    "continuous values": CurveSpace(9, 6, y_step=None, max_delta=0.1),
    "continuous layers": CurveSpace(9, 5, x_step=None),
    "one layer": CurveSpace(1, 3),
    "two layers": CurveSpace(2, 2),
    "constant curves": CurveSpace(6, max_delta=0.0),
    "one value": CurveSpace(6, y_min=1.0, y_max=1.0),
    "many points": CurveSpace(5, 9, y_min=0.1, y_max=1.1, y_step=0.1, max_delta=0.1),
    "negative values": CurveSpace(7, y_min=-0.3, y_max=0.3, y_step=0.1, max_delta=0.2, x_step=3),
}
each_space = pytest.mark.parametrize("space", SPACES.values(), ids=SPACES.keys())


def assert_feasible(space, genome):
    """Check the constraints from their definition, without the code under test."""
    x, y = np.array(genome).T
    assert all(type(number) is float for point in genome for number in point)
    assert len(genome) == space.n_points
    assert x[0] == 0
    assert x[-1] == space.n_layers - 1
    assert (np.diff(x) >= 0).all()
    assert ((y >= space.y_min) & (y <= space.y_max)).all()
    assert (np.abs(np.diff(y)) <= space.max_delta + 1e-9).all()
    if space.y_step is not None:
        steps = (y - space.y_min) / space.y_step
        np.testing.assert_allclose(steps, np.round(steps), atol=1e-8)
    if space.x_step is not None:
        assert (x % space.x_step == 0).all()
    assert space.contains(genome)


@st.composite
def spaces(draw):
    """Draw any small space, on and off the grid."""
    n_layers = draw(st.integers(1, 12))
    y_step = draw(st.sampled_from([None, 0.02, 0.1, 1 / 3]))
    y_min = draw(st.sampled_from([-0.7, 0.1, 0.5, 1 / 3]))
    unit = y_step or 0.07
    return CurveSpace(
        n_layers,
        draw(st.integers(2, 6)),
        y_min=y_min,
        y_max=y_min + unit * draw(st.integers(0, 20)),
        y_step=y_step,
        max_delta=unit * draw(st.integers(0, 8)),
        x_step=draw(st.sampled_from([None, 1, max(1, n_layers - 1)])),
    )


@settings(max_examples=150, deadline=None)
@given(
    space=spaces(),
    seed=st.integers(0, 2**32),
    steps=st.lists(
        st.tuples(st.sampled_from(CROSSOVERS + MUTATIONS), st.integers(0, 4), st.integers(1, 4)), max_size=25
    ),
)
def test_any_sequence_of_operators_stays_in_the_space_and_aliases_nothing(space, seed, steps):
    random.seed(seed)
    population = [init_random_walk(space) for _ in range(3)] + init_quasi_random(space, 2, seed)
    for operator, first, offset in steps:
        chosen = [population[first], population[(first + offset) % 5]][: 1 if operator in MUTATIONS else 2]
        others = {
            id(genome): list(genome) for genome in population if all(genome is not one for one in chosen)
        }
        result = operator(*chosen, space=space)
        assert isinstance(result, tuple)
        assert all(returned is given for returned, given in zip(result, chosen, strict=True))
        for genome in population:
            assert_feasible(space, genome)
            assert others.get(id(genome), genome) == genome
    assert len({id(genome) for genome in population}) == 5
    assert len({id(genome.fitness) for genome in population}) == 5


@pytest.mark.parametrize("name", ["default", "continuous"])
def test_ten_thousand_rounds_of_crossover_and_mutation_stay_in_the_space(name):
    space = SPACES[name]
    toolbox = base.Toolbox()
    space.register(toolbox)
    random.seed(14)
    population = toolbox.population(n=20)
    for _ in range(10_000):
        first, second = random.sample(range(20), 2)
        population[first], population[second] = toolbox.mate(
            toolbox.clone(population[first]), toolbox.clone(population[second])
        )
        toolbox.mutate(population[first])
        assert space.contains(population[first])
        assert space.contains(population[second])
    for genome in population:
        assert_feasible(space, genome)


@each_space
def test_initialisers_are_feasible(space):
    random.seed(1)
    genomes = [init_random_walk(space) for _ in range(50)] + init_quasi_random(space, 50, seed=1)
    for genome in genomes + init_constants(space, 7):
        assert_feasible(space, genome)


@each_space
@pytest.mark.parametrize("crossover", CROSSOVERS)
def test_crossovers_keep_what_the_parents_have(space, crossover):
    random.seed(2)
    for _ in range(100):
        parents = [init_random_walk(space), init_random_walk(space)]
        before = np.array(parents)
        children = np.array(crossover(*parents, space=space))
        np.testing.assert_allclose(children.sum(axis=0), before.sum(axis=0), atol=1e-9)
        assert (children.min(axis=0) >= before.min(axis=0) - 1e-9).all()


@pytest.mark.parametrize("crossover", CROSSOVERS)
def test_after_a_crossover_each_locus_holds_both_parents_genes(crossover):
    space = CurveSpace(8, y_min=1.0, y_max=2.0, y_step=1.0, max_delta=1.0)
    random.seed(15)
    for _ in range(50):
        first, second = init_constant(space, 1.0), init_constant(space, 2.0)
        crossover(first, second, space=space)
        assert all(
            {y_first, y_second} == {1.0, 2.0}
            for (_, y_first), (_, y_second) in zip(first, second, strict=True)
        )


@pytest.mark.parametrize("crossover", CROSSOVERS)
def test_crossovers_of_numpy_input_change_both_parents(crossover):
    space = CurveSpace(8, y_min=1.0, y_max=2.0, y_step=0.5, max_delta=1.0)
    random.seed(3)
    changed = 0
    for _ in range(20):
        parents = [space.genome(np.array(init_random_walk(space))) for _ in range(2)]
        before = [list(parent) for parent in parents]
        crossover(*parents, space=space)
        assert (parents[0] == before[0]) == (parents[1] == before[1])
        changed += parents[0] != before[0]
    assert changed > 5


def test_splice_takes_every_point_from_one_parent_where_a_junction_is_feasible():
    space = SPACES["default"]
    random.seed(4)
    seams = set()
    for _ in range(300):
        parents = [init_random_walk(space), init_random_walk(space)]
        first, second = map(list, parents)
        cx_splice(*parents, space=space)
        for k in range(1, 4):
            if parents[0] == first[:k] + second[k:]:
                assert parents[1] == second[:k] + first[k:]
                seams.add(k)
    assert seams == {1, 2, 3}


def test_splice_exchanges_the_values_where_no_junction_is_feasible():
    space = CurveSpace(8, 2, y_min=1.0, y_max=2.0, y_step=0.1, max_delta=0.1)
    first, second = init_constant(space, 1.0), init_constant(space, 2.0)
    cx_splice(first, second, space=space)
    assert first == init_constant(space, 2.0)
    assert second == init_constant(space, 1.0)


@each_space
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_mutations_return_the_individual_they_changed(space, mutation):
    random.seed(5)
    genome = init_random_walk(space)
    (returned,) = mutation(genome, space=space)
    assert returned is genome


@each_space
@pytest.mark.parametrize("finest", [1 / 64, 1.0])
def test_a_mutation_changes_the_curve_wherever_another_one_exists(space, finest):
    random.seed(6)
    for _ in range(200):
        genome = init_random_walk(space)
        before = list(genome)
        mut_mix(genome, space=space, finest=finest)
        # Genomes that differ in an inner x only may draw one curve, which n_curves counts once.
        inner_x = space.n_layers > 1 and space.n_points > 2
        assert (genome != before) == (space.n_curves > 1 or inner_x)


def test_mut_point_moves_one_point():
    random.seed(7)
    space = SPACES["default"]
    moved = set()
    for _ in range(300):
        genome = init_random_walk(space)
        before = list(genome)
        mut_point(genome, space=space)
        (k,) = (k for k in range(4) if genome[k] != before[k])
        moved.add(k)
    assert moved == {0, 1, 2, 3}


@pytest.mark.parametrize("name", ["default", "continuous"])
def test_mut_shift_keeps_the_shape(name):
    random.seed(8)
    space = SPACES[name]
    for _ in range(200):
        genome = init_random_walk(space)
        before = np.array(genome)
        mut_shift(genome, space=space)
        shift = np.array(genome) - before
        assert (shift[:, 0] == 0).all() or name == "continuous"
        np.testing.assert_allclose(shift[:, 1], shift[0, 1], atol=1e-9)


def test_mut_shift_leaves_a_curve_that_touches_both_bounds():
    space = CurveSpace(8, 2, y_min=1.0, y_max=2.0, y_step=0.5, max_delta=1.0)
    genome = space.genome([(0, 1.0), (7, 2.0)])
    mut_shift(genome, space=space)
    assert genome == [(0.0, 1.0), (7.0, 2.0)]


def test_mut_tilt_adds_a_straight_line_up_to_rounding():
    random.seed(9)
    space = CurveSpace(32, 5)
    for _ in range(200):
        genome = init_random_walk(space)
        before = np.array(genome)
        mut_tilt(genome, space=space)
        change = (np.array(genome) - before)[:, 1]
        assert np.abs(change).max() > 0.01
        line = np.polyval(np.polyfit(range(5), change, 1), range(5))
        assert np.abs(change - line).max() <= 0.02


@pytest.mark.parametrize("mutation", [mut_point, mut_shift, mut_tilt])
def test_every_neighbouring_grid_curve_can_be_reached(mutation):
    """Mutations reach exactly the curves of their kind, none more often than its share by far."""
    space = CurveSpace(3, 2, y_min=1.0, y_max=1.4, y_step=0.1, max_delta=0.4)
    random.seed(10)
    start = [(0.0, 1.2), (2.0, 1.2)]
    reached = {mutation(space.genome(start), space=space, finest=1.0)[0].key for _ in range(400)}
    assert len(reached) == {mut_point: 8, mut_shift: 4, mut_tilt: 8}[mutation]


@pytest.mark.parametrize("operator", CROSSOVERS + MUTATIONS)
@pytest.mark.parametrize(
    "point", [(5.0, 2.3), (5.0, float("nan")), (5.0, 1.51), (40.0, 1.5), (5.0, 1j), (5.0,), None]
)
def test_an_operator_refuses_a_damaged_genome_at_once(operator, point):
    space = SPACES["default"]
    genome = BezierGenome([(0, 1.0), (2, 1.2), (5, 1.5), (31, 1.5)])
    space.check(genome)
    genome[2] = point
    rest = [] if operator in MUTATIONS else [init_random_walk(space)]
    with pytest.raises(CurveError, match="gene 2"):
        operator(genome, *rest, space=space)


def test_random_seed_reproduces_every_operator():
    space = SPACES["default"]

    def run(numpy_seed):
        np.random.seed(numpy_seed)
        random.seed(11)
        genomes = [init_random_walk(space) for _ in range(10)]
        for first, second in pairwise(genomes):
            cx_mix(first, second, space=space)
            mut_mix(first, space=space)
        return genomes

    assert run(0) == run(1)


def test_quasi_random_genomes_depend_on_the_seed_only_and_disturb_nobody():
    space = SPACES["default"]
    random.seed(12)
    np.random.seed(12)
    states = random.getstate(), np.random.get_state()[1].tolist()
    assert init_quasi_random(space, 20, seed=3) == init_quasi_random(space, 20, seed=3)
    assert init_quasi_random(space, 20, seed=3) != init_quasi_random(space, 20, seed=4)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == states
    assert init_quasi_random(space, 0, seed=3) == []


def test_quasi_random_genomes_spread_evenly():
    first = sorted(genome[0][1] for genome in init_quasi_random(SPACES["default"], 76, seed=5))
    np.testing.assert_allclose(first, np.linspace(0.5, 2.0, 76), atol=0.1)


def test_constants_spread_over_the_values():
    space = CurveSpace(8, y_min=0.5, y_max=1.0, y_step=0.1, max_delta=0.1)
    values = [[genome[0][1] for genome in init_constants(space, n)] for n in range(9)]
    assert values[:5] == [[], [0.7], [0.5, 1.0], [0.5, 0.8, 1.0], [0.5, 0.7, 0.8, 1.0]]
    assert values[6] == values[7] == values[8] == [0.5, 0.6, 0.7, 0.8, 0.9, 1.0]


def test_a_constant_off_the_space_is_refused():
    with pytest.raises(CurveError, match=r"y = 0\.51, not on the grid of y_step = 0\.02"):
        init_constant(CurveSpace(8), 0.51)


def test_identity_is_all_ones_and_needs_one_in_the_space():
    space = CurveSpace(8)
    assert (space.decode([init_identity(space)]) == 1.0).all()
    with pytest.raises(CurveError, match=r"gene 0 has y = 1\.0, below y_min = 1\.1"):
        init_identity(CurveSpace(8, y_min=1.1, y_max=2.1))


@pytest.mark.parametrize("make", [init_constants, lambda space, n: init_quasi_random(space, n, seed=0)])
def test_a_negative_number_of_genomes_is_refused(make):
    with pytest.raises(CurveError, match="Expected n to be a whole number >= 0, but got -1"):
        make(SPACES["default"], -1)


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"blend": 1.5}, r"Expected blend to be a probability from 0 to 1, but got 1\.5"),
        ({"blend": float("nan")}, "Expected blend to be a probability"),
        ({"rates": (1.0, 1.0)}, r"Expected rates of point, shift and tilt as three numbers >= 0"),
        ({"rates": (0.0, 0.0, 0.0)}, "not all 0"),
        ({"rates": (1.0, -1.0, 1.0)}, r"but got \(1\.0, -1\.0, 1\.0\)"),
        ({"finest": 0.0}, r"Expected finest to be a share of the axis in \(0, 1\], but got 0\.0"),
    ],
)
def test_register_refuses_settings_out_of_range(settings_, message):
    with pytest.raises(CurveError, match=message):
        SPACES["default"].register(base.Toolbox(), **settings_)


@pytest.mark.parametrize("mutation", MUTATIONS)
@pytest.mark.parametrize("finest", [0.0, -1.0, 1.5, float("nan")])
def test_mutations_refuse_a_reach_out_of_range(mutation, finest):
    with pytest.raises(CurveError, match="Expected finest to be a share of the axis"):
        mutation(init_random_walk(SPACES["default"]), space=SPACES["default"], finest=finest)


def test_a_mutation_with_rate_zero_is_never_used():
    space = CurveSpace(8, 2, y_min=1.0, y_max=2.0, y_step=0.5, max_delta=1.0)
    toolbox = base.Toolbox()
    space.register(toolbox, rates=(0.0, 1.0, 0.0))
    genome = space.genome([(0, 1.0), (7, 2.0)])
    for _ in range(20):
        toolbox.mutate(genome)
    assert genome == [(0.0, 1.0), (7.0, 2.0)]


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"blend": "a"}, r"Expected blend to be a probability .* got 'a'\. Use"),
        ({"rates": None}, r"Expected rates .* got None\. Use"),
        ({"finest": "a"}, r"Expected finest .* got 'a'\. Use"),
        ({"weights": 1.0}, r"Expected weights .* got 1\.0\. Give a sequence"),
    ],
)
def test_register_refuses_settings_of_another_type(settings_, message):
    with pytest.raises(CurveError, match=message):
        SPACES["default"].register(base.Toolbox(), **settings_)


@pytest.mark.parametrize("seed", [-1, None, "a"])
def test_a_quasi_random_seed_must_be_a_whole_number(seed):
    with pytest.raises(CurveError, match=r"Expected seed to be a whole number >= 0, but got .*\. Use"):
        init_quasi_random(SPACES["default"], 2, seed=seed)
