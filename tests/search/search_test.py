import random

import numpy as np
import pytest

from lpes_evo.config import SearchSettings
from lpes_evo.errors import ConfigError, CurveError, SearchOrderError
from lpes_evo.execution import Evaluator, drive
from lpes_evo.operators import BezierGenome, CurveSpace, init_identity
from lpes_evo.problems import Problem, aggregate
from lpes_evo.search import Evaluation, Search

N_LAYERS = 12
SETTINGS = SearchSettings(population_size=12, offspring_size=8, generations=6, n_constants=5, racing=False)


class Target(Problem):
    """Three sets that want three different curves; counts its evaluations."""

    n_layers = N_LAYERS
    example_ids = ("b", "m", "e")
    groups = ("begin", "middle", "end")

    def __init__(self):
        depth = np.linspace(0, 1, N_LAYERS)
        self.targets = np.stack([1 - 0.3 * depth, 0.8 + 0.2 * depth, 1 - 0.3 * depth**2])
        self.calls = []

    def score(self, scales, example_ids=None):
        self.calls.append(tuple(scales))
        return -((self.targets - scales) ** 2).mean(axis=1)


def space(**changes):
    return CurveSpace(N_LAYERS, **{"y_min": 0.5, "y_max": 1.5, "y_step": 0.05, "max_delta": 0.5} | changes)


def evaluate(genome, curves, problem, how):
    scores = problem.score(curves.decode([genome])[0])
    return Evaluation(aggregate(scores, problem.groups, how), tuple(scores.tolist()), 0.0)


def searched(settings=SETTINGS, seed=0, problem=None, n_objectives=1, curves=None):
    search = Search(curves or space(), settings, seed=seed, n_objectives=n_objectives)
    problem = problem or Target()
    drive(search, Evaluator(problem, search.space, settings))
    return search


def result(search):
    return [(genome.key, genome.fitness.values) for genome in search.population], list(search.logbook)


@pytest.mark.parametrize("algorithm", ["ga", "nsga2", "random"])
def test_a_search_is_a_function_of_its_seed_and_leaves_the_callers_generators_alone(algorithm):
    settings = SETTINGS.model_copy(update={"algorithm": algorithm})
    n_objectives = 3 if algorithm == "nsga2" else 1
    first = searched(settings, n_objectives=n_objectives)
    random.seed(0)
    np.random.seed(1)
    expected = random.Random(0).random(), np.random.RandomState(1).random()
    second = searched(settings, n_objectives=n_objectives)
    assert (random.random(), np.random.random()) == expected
    assert result(first) == result(second)
    assert result(first) != result(searched(settings, seed=1, n_objectives=n_objectives))


@pytest.mark.parametrize("algorithm", ["ga", "nsga2", "random"])
def test_nothing_is_evaluated_twice_and_everything_asked_is_feasible_and_its_own_object(algorithm):
    problem = Target()
    settings = SETTINGS.model_copy(update={"algorithm": algorithm})
    search = Search(space(), settings, n_objectives=3 if algorithm == "nsga2" else 1)
    keys, objects = [], []
    while not search.stop():
        genomes = search.ask()
        for genome in genomes:
            search.space.check(genome)
        keys += [genome.key for genome in genomes]
        objects += genomes
        search.tell([evaluate(genome, search.space, problem, settings.objectives) for genome in genomes])
    assert len(keys) == len(set(keys)) == len({id(genome) for genome in objects})
    assert len(keys) <= settings.max_evaluations


def test_the_first_population_is_no_larger_than_asked_for():
    settings = SearchSettings(population_size=3, n_constants=2, generations=0)
    assert len(Search(space(y_max=1.55), settings).ask()) <= settings.max_evaluations


def test_the_initial_population_holds_the_identity_and_constants_so_the_result_is_never_worse():
    search = Search(space(), SETTINGS)
    genomes = search.ask()
    assert init_identity(space()).key in {genome.key for genome in genomes}
    constants = {genome[0][1] for genome in genomes if len({y for _, y in genome}) == 1}
    assert {0.5, 1.0, 1.5} <= constants
    assert len(constants) >= SETTINGS.n_constants
    problem = Target()
    search = searched(problem=problem)
    identity = np.mean(Target().score(np.ones(N_LAYERS)))
    assert search.best.fitness.values[0] >= identity
    assert 0.7 <= search.best_constant() <= 1.0


@pytest.mark.slow
def test_evolution_beats_random_search_at_equal_evaluations_on_most_seeds():
    settings = SETTINGS.model_copy(update={"generations": 20})
    wins = sum(
        searched(settings, seed=seed).best.fitness.values
        >= searched(settings.model_copy(update={"algorithm": "random"}), seed=seed).best.fitness.values
        for seed in range(10)
    )
    assert wins >= 8


def test_nsga2_keeps_a_front_on_which_nothing_is_dominated():
    search = searched(SETTINGS.model_copy(update={"algorithm": "nsga2"}), n_objectives=3)
    front = list(search.hall_of_fame)
    assert len(front) > 1
    assert not any(a.fitness.dominates(b.fitness) for a in front for b in front)
    assert np.mean(search.best.fitness.values) == max(np.mean(genome.fitness.values) for genome in front)


def test_a_wrong_order_is_an_error_that_says_what_to_do():
    search = Search(space(), SETTINGS)
    with pytest.raises(SearchOrderError, match="Expected at most 0 evaluations.* Ask for genomes first"):
        search.tell([Evaluation((0.0,), (0.0,), 0.0)])
    with pytest.raises(SearchOrderError, match="there is none. Call ask"):
        _ = search.best
    genomes = search.ask()
    with pytest.raises(SearchOrderError, match="Tell the evaluations first"):
        search.ask()
    with pytest.raises(SearchOrderError, match=f"Expected at most {len(genomes)} evaluations.*but got 100"):
        search.tell([Evaluation((0.0,), (0.0,), 0.0)] * 100)
    with pytest.raises(SearchOrderError, match="Expected 1 fitness values.*but got 2"):
        search.tell([Evaluation((0.0, 1.0), (0.0,), 0.0)] * len(genomes))
    search.tell([Evaluation((0.0,), (0.0,), 0.0)] * len(genomes))
    done = searched()
    with pytest.raises(SearchOrderError, match="it has stopped: all 6 generations are done"):
        done.ask()


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1j, "a", None])
def test_a_value_that_is_no_finite_number_makes_a_failed_evaluation_and_harms_nothing_else(bad):
    search = Search(space(), SETTINGS)
    genomes = search.ask()
    good = Evaluation((1.0,), (1.0,), 0.0)
    search.tell([good] * (len(genomes) - 1) + [Evaluation((bad,), (1.0,), 0.0)])
    assert search.logbook[-1]["failed"] == 1
    assert len(search.population) == len(genomes) - 1
    assert "finite real numbers" in search.evaluations()[-1].error
    search.ask()


def test_equal_seeds_of_any_integer_type_give_equal_searches():
    assert Search(space(), SETTINGS, seed=3).ask() == Search(space(), SETTINGS, seed=np.int64(3)).ask()
    for seed in ("a", None, 1.5):
        with pytest.raises(ConfigError, match="Expected the seed to be an integer, but got"):
            Search(space(), SETTINGS, seed=seed)


def test_a_space_of_one_curve_does_not_idle_through_its_generations():
    flat = CurveSpace(N_LAYERS, y_min=1.0, y_max=1.0, y_step=0.05, max_delta=0.05)
    search = searched(SETTINGS.model_copy(update={"generations": 50}), curves=flat)
    assert len(search.evaluations()) == 1
    assert len(search.logbook) <= 5


def test_genomes_to_start_from_take_the_weights_of_the_search():
    given = BezierGenome([(0, 1.0), (3, 1.1), (6, 1.2), (11, 1.3)], weights=(-1.0,))
    search = Search(space(), SETTINGS, initial=[given])
    assert {genome.fitness.weights for genome in search.ask()} == {(1.0,)}


def test_a_genome_from_outside_is_checked_at_the_start_and_evaluated():
    outside = BezierGenome([(0, 1.0), (3, 1.0), (6, 1.0), (11, 9.0)])
    with pytest.raises(CurveError, match=r"9\.0"):
        Search(space(), SETTINGS, initial=[outside])
    given = BezierGenome([(0, 1.0), (3, 1.1), (6, 1.2), (11, 1.3)])
    search = Search(space(), SETTINGS, initial=[given])
    assert given.key in {genome.key for genome in search.ask()}


def test_several_objectives_need_nsga2():
    with pytest.raises(ConfigError, match="n_objectives = 1 for the algorithm 'ga', but got 3"):
        Search(space(), SETTINGS, n_objectives=3)


def test_a_changed_genome_of_ask_does_not_change_the_search():
    search = Search(space(), SETTINGS)
    genomes = search.ask()
    keys = [genome.key for genome in genomes]
    for genome in genomes:
        genome[0] = (0.0, 99.0)
    search.tell([Evaluation((float(index),), (0.0,), 0.0) for index in range(len(genomes))])
    assert search.best.key == keys[-1]


@pytest.mark.parametrize("told", [0.5, None, "ok", {"values": (0.5,)}])
def test_what_is_no_evaluation_is_refused_and_changes_nothing(told):
    search = Search(CurveSpace(6), SearchSettings(generations=1), seed=0)
    asked = search.ask()
    with pytest.raises(SearchOrderError, match="Expected an Evaluation for each genome, but got"):
        search.tell([told])
    assert search.outstanding == len(asked)
