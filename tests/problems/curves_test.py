import random
import subprocess
import sys

import numpy as np
import pytest
from deap import algorithms, base, tools

from lpes_evo.errors import CurveError, ScalesError, TaskError
from lpes_evo.operators import CurveSpace
from lpes_evo.problems import BrachistochroneProblem, TargetCurveProblem


def test_the_target_scores_zero_and_others_minus_their_squared_error():
    problem = TargetCurveProblem([1.0, 1.5, 2.0])
    np.testing.assert_array_equal(problem.score(np.array([1.0, 1.5, 2.0])), [0, 0, 0])
    np.testing.assert_allclose(problem.score(np.array([1.5, 1.5, 1.0])), [-0.25, 0, -1])
    np.testing.assert_allclose(problem.score(np.array([1.5, 1.5, 1.0]), ["layer-2", "layer-0"]), [-1, -0.25])


def test_the_groups_of_a_target_are_thirds_of_the_layers():
    assert TargetCurveProblem(np.ones(7)).groups == ("begin",) * 3 + ("middle",) * 2 + ("end",) * 2


@pytest.mark.parametrize("target", [[], [[1.0, 2.0]], 1.0])
def test_a_target_that_is_not_a_curve_is_refused(target):
    with pytest.raises(CurveError, match=r"Expected target of shape \(n_layers,\)"):
        TargetCurveProblem(target)


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf])
def test_a_target_that_is_not_positive_is_refused(value):
    with pytest.raises(CurveError, match="Expected target to be finite and positive"):
        TargetCurveProblem([1.0, value])


@pytest.mark.parametrize("problem", [TargetCurveProblem([1.0, 1.5, 2.0]), BrachistochroneProblem(3)])
@pytest.mark.parametrize("scales", [[1.0, 1.0], [1.0, 0.0, 1.0], [1.0, np.nan, 1.0], [[1.0, 1.0, 1.0]]])
def test_scales_that_do_not_fit_are_refused(problem, scales):
    with pytest.raises(ScalesError, match="Expected"):
        problem.score(np.array(scales))


@pytest.mark.parametrize("problem", [TargetCurveProblem([1.0, 1.5, 2.0]), BrachistochroneProblem(3)])
def test_several_curves_score_what_each_scores_alone(problem):
    curves = np.array([[1.0, 1.5, 2.0], [1.5, 1.5, 1.0]])
    ids = problem.example_ids[::-1]
    for chosen in (None, ids):
        scores = problem.score_many(curves, chosen)
        assert (scores.shape, scores.dtype) == ((2, len(ids)), np.float64)
        np.testing.assert_array_equal(scores, [problem.score(curve, chosen) for curve in curves])


@pytest.mark.parametrize("scales", [[1.0, 1.5, 2.0], 1.0, np.empty((0, 3)), np.ones((1, 1, 3))])
def test_several_curves_that_are_no_table_are_refused(scales):
    with pytest.raises(
        ScalesError, match=r"scales of shape \(n_candidates, n_layers\) = \(n, 3\) with n >= 1"
    ):
        BrachistochroneProblem(3).score_many(scales)


def test_a_problem_without_a_model_has_sources_but_neither_tokens_nor_batches():
    problem = TargetCurveProblem([1.0, 1.5, 2.0])
    assert problem.sources == problem.example_ids == ("layer-0", "layer-1", "layer-2")
    assert problem.smaller() is None
    assert problem.n_candidates_that_fit(problem.example_ids) == 1
    assert problem.n_tokens_of(problem.example_ids) == 0
    assert problem.is_exact


@pytest.mark.parametrize("problem", [TargetCurveProblem([1.0, 1.5, 2.0]), BrachistochroneProblem(3)])
def test_an_unknown_example_is_refused(problem):
    with pytest.raises(TaskError, match="Expected example ids among .* but got 'nonsense'"):
        problem.score(np.ones(3), ["nonsense"])


def test_problems_do_not_keep_the_callers_target():
    target = np.array([1.0, 1.5])
    problem = TargetCurveProblem(target)
    target[0] = 9.0
    assert problem.target[0] == 1.0


def test_the_straight_slide_takes_the_time_of_the_inclined_plane():
    problem = BrachistochroneProblem(9, width=3.0, drop=4.0, gravity=10.0)
    straight = 4.0 * np.arange(1, 10) / 10
    # Length 5 at the constant acceleration g * 4 / 5 from rest: t = sqrt(2 * 5 / 8).
    np.testing.assert_allclose(problem.score(straight), [-np.sqrt(10 / 8)])


def test_the_optimum_of_half_a_cycloid_is_pi_times_the_root_of_radius_over_gravity():
    problem = BrachistochroneProblem(5, width=np.pi, drop=2.0, gravity=9.0)
    assert problem.optimum == pytest.approx(np.pi / 3, rel=1e-12)


@pytest.mark.parametrize(("width", "drop"), [(1.0, 0.65), (0.1, 5.0), (20.0, 0.5)])
def test_the_sampled_cycloid_approaches_the_optimum_from_above(width, drop):
    times = []
    for n_layers in (50, 500, 5000):
        problem = BrachistochroneProblem(n_layers, width=width, drop=drop)
        times.append(-problem.score(problem.cycloid_depths())[0] / problem.optimum)
    assert times[0] > times[1] > times[2] > 1
    assert times[2] < 1.002


@pytest.mark.parametrize("arguments", [{"width": 0.0}, {"drop": -1.0}, {"gravity": np.nan}, {"n_layers": 0}])
def test_a_brachistochrone_that_makes_no_sense_is_refused(arguments):
    with pytest.raises(CurveError, match=f"Expected {next(iter(arguments))} "):
        BrachistochroneProblem(**{"n_layers": 5, **arguments})


@pytest.mark.parametrize(
    "grid", [{"y_step": 0.01}, {"y_step": None, "x_step": None}], ids=["grid", "continuous"]
)
def test_plain_deap_comes_within_half_a_percent_of_the_cycloid(grid):
    problem = BrachistochroneProblem(32)
    space = CurveSpace(32, 5, y_min=0.02, y_max=1.02, max_delta=0.5, **grid)
    toolbox = base.Toolbox()
    space.register(toolbox)
    toolbox.register("evaluate", lambda genome: tuple(problem.score(space.decode([genome])[0])))
    toolbox.register("select", tools.selTournament, tournsize=3)
    random.seed(1)
    population, _ = algorithms.eaMuPlusLambda(
        toolbox.population(n=30), toolbox, 30, 60, 0.4, 0.5, 30, verbose=False
    )
    best = -max(genome.fitness.values[0] for genome in population)
    assert problem.optimum < best < 1.005 * problem.optimum


def test_curve_problems_load_no_model_library(tmp_path):
    code = (
        "import sys; from lpes_evo.problems import BrachistochroneProblem, TargetCurveProblem\n"
        "heavy = {'torch', 'transformers', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
