import random
import sys

import numpy as np
import pytest

from lpes_evo import Evaluator, Journal, SearchSettings, drive
from lpes_evo.comparison import CONTESTANTS, OPTIMISERS, OptimiserSearch, UnitCube, ablations
from lpes_evo.errors import ConfigError, EvaluationError, SearchOrderError
from lpes_evo.operators import CurveSpace, init_random_walk
from lpes_evo.problems import TargetCurveProblem
from lpes_evo.search import Evaluation

SPACE = CurveSpace(9, y_min=0.5, y_max=1.5, y_step=0.05, max_delta=0.5)
SETTINGS = SearchSettings(racing=False, population_size=8, n_constants=3, offspring_size=6, preselection=4)
N = 30
EVERYBODY = sorted(CONTESTANTS)
OTHERS = ["cma-es", "tpe"]


class Counted(TargetCurveProblem):
    """A bend, which counts what it scores and fails where a test wants it to."""

    def __init__(self, fails=lambda _scales: False):
        super().__init__(1 - 0.3 * np.sin(np.linspace(0, 3, 9)))
        self.calls = []
        self._fails = fails

    def score(self, scales, example_ids=None):
        self.calls.append(tuple(scales))
        if self._fails(scales):
            raise RuntimeError("broken on purpose")
        return super().score(scales, example_ids)


def searched(name, seed=0, problem=None, journal=None, n=N):
    problem = problem or Counted()
    contestant = CONTESTANTS[name]
    search = contestant.search(SPACE, SETTINGS, n, seed=seed, groups=problem.groups)
    evaluator = Evaluator(problem, contestant.space_of(SPACE), contestant.settings(SETTINGS, n))
    drive(search, evaluator, journal)
    return search


def told(search):
    return [evaluation.scores for evaluation in search.evaluations()]


@pytest.mark.parametrize("name", EVERYBODY)
def test_every_contestant_is_a_function_of_its_seed_and_leaves_the_callers_generators_alone(name):
    first = told(searched(name))
    random.seed(0)
    np.random.seed(1)
    expected = random.Random(0).random(), np.random.RandomState(1).random()
    assert told(searched(name)) == first
    assert (random.random(), np.random.random()) == expected
    assert told(searched(name, seed=1)) != first


@pytest.mark.parametrize("name", EVERYBODY)
def test_every_contestant_makes_the_evaluations_it_may_and_none_twice(name):
    problem = Counted()
    search = searched(name, problem=problem)
    assert len(set(problem.calls)) == len(problem.calls) == len(search.evaluations())
    # To the end of a batch, of which the largest has 9.
    assert N <= len(problem.calls) < N + 10
    assert search.best.fitness.valid


@pytest.mark.parametrize("name", EVERYBODY)
def test_every_contestant_starts_from_the_identity_and_the_constants(name):
    problem = Counted()
    searched(name, problem=problem)
    constants = [call[0] for call in problem.calls[:4] if len(set(call)) == 1]
    assert sorted(constants) == [0.5, 1.0, 1.5]


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("n_kept", [2, 17])
def test_a_search_that_was_stopped_goes_on_from_its_journal_to_the_same_end(name, n_kept, tmp_path):
    path, header = tmp_path / "journal.jsonl", {"format": "test"}
    with Journal(path, header) as journal:
        straight = told(searched(name, journal=journal))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: 1 + n_kept]) + lines[1 + n_kept][:20])
    problem = Counted()
    with Journal(path, header) as journal:
        assert told(searched(name, problem=problem, journal=journal)) == straight
    assert len(problem.calls) == len(straight) - n_kept


@pytest.mark.parametrize("name", OTHERS)
def test_single_failures_are_recorded_and_survived(name):
    def fails(scales):
        return round(scales[0] * 20) % 4 == 1

    problem = Counted(fails)
    search = searched(name, problem=problem)
    n_failed = [evaluation.status for evaluation in search.evaluations()].count("failed")
    assert n_failed == sum(map(fails, set(problem.calls)))
    assert n_failed > 0
    assert search.best.fitness.valid


@pytest.mark.parametrize("name", OTHERS)
def test_a_search_that_only_fails_is_stopped(name):
    with pytest.raises(EvaluationError, match="in a row failed"):
        searched(name, problem=Counted(lambda _scales: True))


@pytest.mark.parametrize("name", OTHERS)
def test_asking_and_telling_out_of_order_is_refused(name):
    search = OptimiserSearch(OPTIMISERS[name], SPACE, N, SETTINGS)
    genomes = search.ask()
    for genome in genomes:
        SPACE.check(genome)
    with pytest.raises(SearchOrderError, match="Tell the evaluations first"):
        search.ask()
    with pytest.raises(SearchOrderError, match="Expected at most"):
        search.tell([Evaluation((0.0,), (0.0,), 0.0)] * (len(genomes) + 1))


@pytest.mark.parametrize("name", OTHERS)
def test_an_optimiser_learns_from_what_it_is_told(name):
    def found(sign):
        return [float(np.mean([genome[0][1] for genome in told_of(sign, seed)[-15:]])) for seed in range(3)]

    def told_of(sign, seed):
        search = OptimiserSearch(OPTIMISERS[name], SPACE, 60, SETTINGS, seed=seed)
        asked = []
        while not search.stop():
            genomes = search.ask()
            asked += genomes
            search.tell([Evaluation((sign * genome[0][1],), (0.0,), 0.0) for genome in genomes])
        return asked

    # Whoever wants a large first value ends far above whoever wants a small one.
    assert min(found(1.0)) > max(found(-1.0)) + 0.2


@pytest.mark.parametrize("name", OTHERS)
def test_a_used_up_space_ends_a_search(name):
    small = CurveSpace(4, 2, y_min=1.0, y_max=1.1, y_step=0.1, max_delta=0.1)
    search = OptimiserSearch(OPTIMISERS[name], small, 100, SETTINGS)
    problem = TargetCurveProblem(np.ones(4))
    drive(search, Evaluator(problem, small, SETTINGS))
    assert len(search.evaluations()) == 4
    assert "of the space are evaluated" in search.stop()


@pytest.mark.parametrize(("name", "package"), [("cma-es", "cma"), ("tpe", "optuna")])
def test_a_missing_package_is_named_with_its_extra(name, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=rf"Expected the package '{package}' of the extra \[compare\]"):
        OptimiserSearch(OPTIMISERS[name], SPACE, N, SETTINGS)


def test_what_optuna_tells_its_user_is_as_it_was_before():
    optuna = pytest.importorskip("optuna")
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.DEBUG)
    try:
        searched("tpe")
        assert optuna.logging.get_verbosity() == optuna.logging.DEBUG
    finally:
        optuna.logging.set_verbosity(before)


@pytest.mark.parametrize("rule", ["sorted", "free", "even"])
def test_a_genome_and_its_vector_are_the_same_point(rule):
    space = CurveSpace(12, 5, x_rule=rule)
    cube = UnitCube(space)
    random.seed(4)
    for _ in range(10):
        genome = init_random_walk(space)
        vector = cube.vector(genome)
        assert vector.shape == (cube.n_dimensions,) == ((5,) if rule == "even" else (8,))
        assert ((vector >= 0) & (vector <= 1)).all()
        assert cube.genome(vector) == genome


def test_any_vector_becomes_a_feasible_genome():
    cube, rng = UnitCube(SPACE), np.random.default_rng(1)
    for _ in range(10):
        SPACE.check(cube.genome(rng.random(cube.n_dimensions)))


def test_free_scales_have_a_value_for_every_layer_and_no_bound_between_them():
    free = CONTESTANTS["free-ga"].space_of(SPACE)
    assert (free.n_points, free.max_delta, free.y_step) == (9, 1.0, 0.05)
    random.seed(1)
    genome = init_random_walk(free)
    np.testing.assert_allclose(free.decode([genome])[0], [y for _, y in genome], atol=1e-14)


def test_the_ablation_changes_one_thing_at_a_time_and_has_no_space_twice():
    variants = {name: contestant.space_of(SPACE) for name, contestant in ablations(SPACE).items()}
    assert next(iter(variants)) == "default"
    assert variants["default"] == SPACE
    assert len(set(variants.values())) == len(variants)
    points = {(space.curve, space.n_points) for space in variants.values()}
    assert {("bezier", n) for n in range(2, 9)} <= points
    assert {("linear", n) for n in range(3, 9)} <= points
    assert {("spline", n) for n in range(5, 9)} <= points
    assert {space.x_rule for space in variants.values()} == {"sorted", "free", "even"}
    assert sorted({space.max_delta for space in variants.values()}) == pytest.approx(
        [0.05, 0.1, 0.25, 0.5, 1.0]
    )


def test_too_few_evaluations_are_refused():
    with pytest.raises(ConfigError, match=r"at least the population_size = 8, but got 7"):
        CONTESTANTS["ga"].search(SPACE, SETTINGS, 7, seed=0, groups=("any",))
