import copy
import json
import math
import multiprocessing
import operator
import pickle
import subprocess
import sys

import numpy as np
import pytest
from deap import base, tools

from lpes_evo.operators import BezierGenome, CurveError, CurveFitness

POINTS = [(0.0, 1.0), (2.0, 1.2), (5.0, 1.5), (7.0, 1.5)]
COPIES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda thing: pickle.loads(pickle.dumps(thing)),  # noqa: S301
}


@pytest.fixture(params=COPIES.values(), ids=COPIES.keys())
def duplicate(request):
    return request.param


def test_a_new_fitness_is_invalid():
    assert not CurveFitness().valid
    assert CurveFitness((1.0, -1.0)).values == ()


def test_fitness_values_can_be_set_and_deleted():
    fitness = CurveFitness((1.0, -2.0), (3.0, 4.0))
    assert fitness.values == (3.0, 4.0)
    assert fitness.wvalues == (3.0, -8.0)
    del fitness.values
    assert not fitness.valid


def test_two_searches_with_different_directions_coexist():
    accuracy = [CurveFitness((1.0,), (value,)) for value in (0.3, 0.7)]
    perplexity = [CurveFitness((-1.0,), (value,)) for value in (3.0, 7.0)]
    assert accuracy[1] > accuracy[0]
    assert perplexity[1] < perplexity[0]


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        -math.inf,
        1j,
        1 + 0j,
        np.complex128(1),
        np.float32("nan"),
        "1.0",
        None,
        [1.0],
        10**400,
        1e308,
    ],
)
def test_fitness_refuses_what_is_not_a_finite_number(value):
    fitness = CurveFitness((1.0, 10.0))
    with pytest.raises(CurveError, match="Expected every fitness value to be a finite real number, but got"):
        fitness.values = (1.0, value)
    assert not fitness.valid


@pytest.mark.parametrize("values", [(), (1.0,), (1.0, 2.0, 3.0)])
def test_fitness_refuses_a_wrong_number_of_values(values):
    fitness = CurveFitness((1.0, 1.0))
    with pytest.raises(CurveError, match=f"Expected 2 fitness values, one per weight, but got {len(values)}"):
        fitness.values = values


@pytest.mark.parametrize("weights", [(), (0.0,), (math.nan,), (1.0, math.inf)])
def test_fitness_refuses_weights_without_direction(weights):
    with pytest.raises(CurveError, match="Expected weights to be finite numbers other than zero"):
        CurveFitness(weights)


def test_copies_of_a_fitness_keep_weights_and_crowding_distance(duplicate):
    fitness = CurveFitness((-1.0, 2.0), (3.0, 4.0))
    fitness.crowding_dist = 0.5
    clone = duplicate(fitness)
    assert clone == fitness
    assert clone.weights == (-1.0, 2.0)
    assert clone.values == (3.0, 4.0)
    assert clone.crowding_dist == 0.5
    del clone.values
    assert fitness.valid


def test_a_genome_is_a_list_of_float_pairs():
    genome = BezierGenome([[0, 1], np.array([7, 1.5])])
    assert genome == [(0.0, 1.0), (7.0, 1.5)]
    assert all(type(number) is float for point in genome for number in point)
    assert not genome.fitness.valid


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ([], "Expected at least 2 control points, but got 0"),
        ([(0, 1)], "Expected at least 2 control points, but got 1"),
        ([(0, 1), (1,)], r"Expected gene 1 to be a pair \(x, y\) of finite numbers, but got \(1,\)"),
        ([(0, 1), 5], "Expected gene 1 .* but got 5"),
        ([(0, math.nan), (1, 1)], "Expected gene 0 .* but got .*nan"),
        ([(0, 1), (10**400, 1)], "Expected gene 1"),
        ([(0, 1), "12"], "Expected gene 1 .* but got '12'"),
        ([(0, 1), (1, True)], "Expected gene 1 .* but got .*True"),
        ([(0, 1), (1, None)], "Expected gene 1 .* but got .*None"),
    ],
)
def test_a_genome_of_anything_else_is_refused(points, message):
    with pytest.raises(CurveError, match=message):
        BezierGenome(points)


def test_genomes_are_equal_by_content_and_then_have_equal_keys():
    first, second = BezierGenome(POINTS), BezierGenome(POINTS, weights=(-1.0,))
    second.fitness.values = (1.0,)
    assert first == second
    assert first.key == second.key
    second[1] = (2.0, 1.3)
    assert first != second
    assert first.key != second.key


def test_minus_zero_and_whole_numbers_have_the_key_of_their_equals():
    expected = BezierGenome([(0.0, 0.0), (1.0, 1.0)])
    assert BezierGenome([(-0.0, -0.0), (1, 1)]).key == expected.key
    expected[0] = (0, -0.0)
    assert expected.key == "0.0,0.0;1.0,1.0"


def test_the_key_is_the_same_in_every_process(tmp_path):
    code = f"from lpes_evo.operators import BezierGenome; print(BezierGenome({POINTS}).key)"
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert output.stdout.strip() == BezierGenome(POINTS).key


def test_json_round_trip_is_exact():
    genome = BezierGenome([(0, 1 / 3), (0.1 + 0.2, 1e-300), (7, 2 / 7)])
    again = BezierGenome.from_json(genome.to_json(), weights=(-1.0,))
    assert again == genome
    assert again.key == genome.key
    assert again.fitness.weights == (-1.0,)
    assert json.loads(genome.to_json()) == [list(point) for point in genome]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Expected a genome as JSON"),
        ("[[0, 1], [7", "Expected a genome as JSON"),
        (None, "Expected a genome as JSON, but got None"),
        ('{"x": 1}', r"Expected a JSON array of \[x, y\] pairs"),
        ("3", r"Expected a JSON array of \[x, y\] pairs, but got '3'"),
        ("[[0, 1], [7, NaN]]", "Expected gene 1 to be a pair"),
        ('[[0, 1], [7, "1"]]', "Expected gene 1 to be a pair"),
        ("[[0, 1], [7, true]]", "Expected gene 1 to be a pair"),
        ("[[0, 1], [7]]", "Expected gene 1 to be a pair"),
        ("[[0, 1]]", "Expected at least 2 control points"),
    ],
)
def test_json_that_was_damaged_is_refused(text, message):
    with pytest.raises(CurveError, match=message):
        BezierGenome.from_json(text)


def test_copies_of_a_genome_share_nothing(duplicate):
    genome = BezierGenome(POINTS, weights=(-1.0,))
    genome.fitness.values = (2.0,)
    genome.history_index = 7
    clone = duplicate(genome)
    assert type(clone) is BezierGenome
    assert clone == genome
    assert clone.fitness == genome.fitness
    assert clone.fitness.weights == (-1.0,)
    assert clone.history_index == 7
    del clone.fitness.values
    clone[1] = (2.0, 1.3)
    assert genome.fitness.values == (2.0,)
    assert genome == POINTS


def test_clone_of_a_toolbox_makes_an_independent_genome():
    genome = BezierGenome(POINTS)
    clone = base.Toolbox().clone(genome)
    assert clone == genome
    assert clone is not genome
    assert clone.fitness is not genome.fitness


def test_genomes_cross_to_spawned_processes_and_back():
    genome = BezierGenome(POINTS, weights=(-1.0,))
    genome.fitness.values = (2.0,)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        (clone,) = pool.map(copy.copy, [genome])
        (key,) = pool.map(operator.attrgetter("key"), [genome])
    assert clone == genome
    assert clone.fitness.values == (2.0,)
    assert clone.fitness.weights == (-1.0,)
    assert key == genome.key


def test_the_hall_of_fame_holds_equal_genomes_once():
    genomes = [BezierGenome(POINTS), BezierGenome(POINTS), BezierGenome([(0, 1), (7, 1)])]
    for genome, value in zip(genomes, (1.0, 1.0, 2.0), strict=True):
        genome.fitness.values = (value,)
    hall_of_fame = tools.HallOfFame(10)
    hall_of_fame.update(genomes)
    assert len(hall_of_fame) == 2
    genomes[2][0] = (0.0, 5.0)
    assert hall_of_fame[0] == [(0.0, 1.0), (7.0, 1.0)]
