"""Searches that take gradients: the way up, seeds, mutations, failures, resume, any number of workers."""

import dataclasses
import json

import numpy as np
import pytest

from lpes_evo.config import RunConfig, SearchSettings, load_config
from lpes_evo.errors import (
    ConfigError,
    CurveError,
    EvaluationError,
    JournalError,
    SearchOrderError,
    TaskError,
)
from lpes_evo.execution import Evaluator, drive
from lpes_evo.operators import CurveSpace
from lpes_evo.problems import TargetCurveProblem, aggregate
from lpes_evo.runs import RunFolder, estimate_run, history_table, run_search
from lpes_evo.scales import load_scales
from lpes_evo.search import Ascent, Evaluation, GradientProbe, Search, variation_slope
from lpes_evo.storage import Journal
from lpes_evo.workers import DevicePool
from samples import rewrite_journal
from sheet import N_LAYERS, Sheet, Sloped

SPACE = CurveSpace(N_LAYERS, y_min=0.5, y_max=1.5, y_step=0.05, max_delta=0.5)
FREE = dataclasses.replace(SPACE.free(), y_step=None)
GA = {"population_size": 8, "offspring_size": 5, "generations": 3, "n_constants": 3, "preselection": 4}
KINDS = {
    "curve": {"algorithm": "gradient", "gradient_steps": 3, "generations": 3},
    "seeds": GA | {"gradient_seeds": 2, "gradient_steps": 3},
    "mutation": GA | {"gradient_mutation": 0.5},
    "both": GA | {"gradient_seeds": 1, "gradient_mutation": 0.5, "racing": False},
}


def settings_of(kind, **changes):
    return SearchSettings(**KINDS[kind] | changes)


def searched(source, settings, path=None, space=SPACE, seed=3):
    search, evaluator = Search(space, settings, seed=seed), Evaluator(source, space, settings)
    if path is None:
        drive(search, evaluator)
    else:
        with Journal(path, {}) as journal:
            drive(search, evaluator, journal)
    told = [dataclasses.replace(evaluation, seconds=0.0) for evaluation in search.evaluations()]
    return search, (
        history_table(search),
        [(genome.key, genome.fitness.values) for genome in search.population],
        told,
    )


def sampled(told):
    return [evaluation for evaluation in told if evaluation.status == "sampled"]


@pytest.mark.parametrize("space", [SPACE, FREE], ids=["curve", "free"])
def test_the_way_up_comes_near_the_optimum_of_its_space(space):
    target = 1 + 0.3 * np.sin(np.arange(N_LAYERS) / 3)
    problem = TargetCurveProblem(target)
    settings = SearchSettings(
        algorithm="gradient", generations=12, gradient_steps=10, gradient_sources=N_LAYERS, learning_rate=0.03
    )
    search, (_, _, told) = searched(problem, settings, space=space)
    ends = (space.decode([space.fit(target)])[0], np.ones(N_LAYERS))
    best, start = (aggregate(problem.score(scales), problem.groups)[0] for scales in ends)
    assert told[0].values == pytest.approx((start,))
    assert search.best.fitness.values[0] > best - 0.03 * (best - start)
    assert search.best_constant() is None
    assert len(sampled(told)) <= settings.max_gradients
    assert len(told) <= settings.max_evaluations


def test_a_penalty_on_variation_makes_free_scales_smoother():
    target = np.where(np.arange(N_LAYERS) % 2, 1.3, 0.8)

    def variation(penalty):
        settings = SearchSettings(
            algorithm="gradient",
            generations=3,
            gradient_steps=12,
            gradient_sources=N_LAYERS,
            total_variation=penalty,
        )
        search, _ = searched(TargetCurveProblem(target), settings, space=FREE)
        return np.abs(np.diff(np.log(FREE.decode([search.best])[0]))).sum()

    rough, smoother, flat = map(variation, (0.0, 0.01, 1.0))
    assert rough > smoother > flat
    assert flat < 0.1 * rough


def test_the_slope_of_the_variation_is_that_of_differences():
    scales = np.array([1.0, 1.001, 0.7, 1.3, 1.3])

    def variation(scales):
        return np.sqrt(np.diff(np.log(scales)) ** 2 + 1e-6).sum()

    steps = 1e-7 * np.eye(5)
    expected = [(variation(scales + step) - variation(scales - step)) / 2e-7 for step in steps]
    np.testing.assert_allclose(variation_slope(scales), expected, atol=1e-6)


def test_a_way_up_keeps_bounds_order_and_amplitude_and_moves_x():
    space = CurveSpace(N_LAYERS, 5, max_delta=0.1, y_max=1.2)
    ascent = Ascent(space, SearchSettings(learning_rate=0.2), space.fit(np.linspace(0.9, 1.1, N_LAYERS)))
    start, rng = ascent.arrival(), np.random.default_rng(0)
    for _ in range(20):
        ascent.step(rng.normal(size=N_LAYERS) + np.linspace(1, -1, N_LAYERS))
        space.continuous().check(space.continuous().nearest(ascent._points.tolist()))
        assert (ascent._points == space.continuous().nearest(ascent._points.tolist())).all()
        space.check(ascent.arrival())
    assert [x for x, _ in ascent.arrival()] != [x for x, _ in start]


OVERSTEPS = {
    "algorithm": "gradient",
    "gradient_steps": 3,
    "gradient_sources": N_LAYERS,
    "learning_rate": 0.1,
    "generations": 5,
}


def test_steps_that_are_too_long_for_a_problem_are_shortened_until_they_help():
    # The optimum is 1 % away, and a single step already leads 10 % away.
    target = np.full(N_LAYERS, 1.01)
    kept, _ = searched(TargetCurveProblem(target), SearchSettings(**OVERSTEPS), space=FREE)
    settings = SearchSettings(**OVERSTEPS, gradient_backtracking=False)
    plain, (_, _, told) = searched(TargetCurveProblem(target), settings, space=FREE)
    assert plain.best.fitness.values == plain.untouched() == told[0].values
    assert kept.best.fitness.values > kept.untouched()


def test_a_way_up_without_a_bad_arrival_is_the_same_with_and_without_backtracking():
    target = np.full(N_LAYERS, 1.45)
    settings = OVERSTEPS | {"learning_rate": 0.01}
    with_it, without = (
        searched(
            TargetCurveProblem(target), SearchSettings(**settings, gradient_backtracking=is_on), space=FREE
        )[1]
        for is_on in (True, False)
    )
    assert with_it == without


class Misled(Sloped):
    """Its gradients lead away from the optimum."""

    def gradient(self, scales, example_ids=None, weights=None):
        scores, gradient = super().gradient(scales, example_ids, weights)
        return scores, -gradient


class LocalOptimum(Misled):
    """The untouched model is the best."""

    def __init__(self):
        super().__init__()
        self.targets = np.ones_like(self.targets) + 1e-3


def test_a_way_up_that_never_helps_shortens_its_steps_from_the_start_and_then_ends():
    problem = LocalOptimum()
    search, (_, _, told) = searched(problem, SearchSettings(**OVERSTEPS | {"generations": 30}), space=FREE)
    assert search.stop() == "the steps of the ascent are shorter than a hundredth of search.learning_rate"
    first, *others = [np.abs(np.log(scales)).max() for scales, _ in problem.probes[1::3]]
    assert len(others) == 3
    np.testing.assert_allclose([first, *others], [0.1, 0.1 / 4, 0.1 / 16, 0.1 / 64], rtol=0.02)
    assert all((scales == 1).all() for scales, _ in problem.probes[::3])
    assert len(told) == 1 + 4 * 4


def test_a_grid_that_hides_shortened_steps_ends_the_way_up():
    search, _ = searched(LocalOptimum(), SearchSettings(**OVERSTEPS | {"generations": 30}))
    assert search.stop() == "the shortened steps of the ascent move nothing on the grid"


def test_steps_become_longer_again_after_a_good_arrival_up_to_the_learning_rate():
    ascent = Ascent(FREE, SearchSettings(**OVERSTEPS), FREE.fit(np.ones(N_LAYERS)))
    ascent.go_back(ascent.points)
    ascent.go_back(ascent.points)
    lengths = [ascent.length]
    for _ in range(6):
        ascent.lengthen()
        lengths.append(ascent.length)
    assert lengths == pytest.approx([1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 1, 1])


@pytest.mark.parametrize("target", [1.02, 1.3])
def test_a_way_up_that_goes_back_resumes_to_the_same_wherever_it_was_stopped(target, tmp_path):
    problem, settings = TargetCurveProblem(np.full(N_LAYERS, target)), SearchSettings(**OVERSTEPS)
    path = tmp_path / "journal.jsonl"
    _, expected = searched(problem, settings, path, space=FREE)
    lines = path.read_bytes().splitlines(keepends=True)
    for n_kept in range(1, len(lines)):
        path.write_bytes(b"".join(lines[:n_kept]))
        assert searched(problem, settings, path, space=FREE)[1] == expected


def test_samples_are_balanced_and_take_turns():
    problem = Sloped(n_texts=6)
    searched(problem, settings_of("curve", gradient_sources=2))
    samples = [ids for _, ids in problem.probes]
    assert {len(ids) for ids in samples} == {6}
    assert all(sorted(name[-1] for name in ids) == ["b", "b", "e", "e", "m", "m"] for ids in samples)
    assert samples[:3] == samples[3:6]
    assert len({name for ids in samples[:3] for name in ids}) == 18


def test_a_gradient_counts_as_three_forward_passes_and_names_the_scores_it_saw():
    problem = Sloped(n_texts=6)
    # An arrival whose shorter steps the grid hides would be no evaluation.
    settings = settings_of("curve", gradient_sources=2, racing=False, gradient_backtracking=False)
    search, evaluator = Search(SPACE, settings), Evaluator(problem, SPACE, settings)
    drive(search, evaluator)
    told = search.evaluations()
    assert {evaluation.tokens for evaluation in sampled(told)} == {3 * 10 * 6}
    full = [evaluation for evaluation in told if evaluation.status == "ok"]
    assert evaluator.cost.tokens == len(sampled(told)) * 180 + len(full) * 180
    first = sampled(told)[0]
    scores = problem.score(np.ones(N_LAYERS))
    assert first.scores == pytest.approx(scores[list(first.scored)])
    assert first.values == ()
    assert [record["gradients"] for record in search.logbook] == [0, 3, 3, 3]
    assert [record["evaluations"] for record in search.logbook] == [1, 4, 4, 4]


def test_seeds_join_the_first_population_behind_the_starting_points():
    target = 1 + 0.3 * np.sin(np.arange(N_LAYERS) / 3)
    settings = settings_of(
        "seeds", gradient_seeds=3, gradient_steps=8, gradient_sources=N_LAYERS, generations=0
    )
    _, (table, plain, _) = searched(TargetCurveProblem(target), SearchSettings(**GA | {"generations": 0}))
    search, (_, seeded, told) = searched(TargetCurveProblem(target), settings)
    assert len(sampled(told)) == 24
    assert sum(evaluation.status != "sampled" for evaluation in told) == 8
    assert seeded[0][1] > plain[0][1]
    assert max(y for _, y in search.best) > 1.15
    header, first = history_table(search).splitlines()
    assert header.endswith(",spread,gradients")
    assert first.startswith("0,32,")
    assert "gradients" not in table


def test_mutations_along_gradients_start_at_the_best_parents():
    problem = Sloped()
    settings = settings_of("mutation", gradient_parents=2)
    search, (_, _, told) = searched(problem, settings)
    # No parent is asked for twice.
    assert (
        len({scales.tobytes() for scales, _ in problem.probes}) == len(problem.probes) == len(sampled(told))
    )
    assert 2 <= len(problem.probes) <= 6
    without, _ = searched(Sloped(), settings_of("mutation", gradient_mutation=0.0))
    assert search.best.fitness.values >= without.best.fitness.values


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_search_with_and_without_a_journal(kind, tmp_path):
    _, expected = searched(Sloped(), settings_of(kind))
    assert len(sampled(expected[2])) >= 3
    _, again = searched(Sloped(), settings_of(kind), tmp_path / "journal.jsonl")
    assert again == expected


def test_gradients_cross_between_processes():
    _, expected = searched(Sloped(), settings_of("both"))
    with DevicePool("cpu:2", lambda _device: Sloped()) as pool:
        assert searched(pool, settings_of("both"))[1] == expected


class Stopped(Sloped):
    limit = 0

    def stop_at_limit(self):
        if len(self.calls) + len(self.probes) >= self.limit:
            raise KeyboardInterrupt

    def score_many(self, scales, example_ids=None):
        self.stop_at_limit()
        return super().score_many(scales, example_ids)

    def gradient(self, scales, example_ids=None, weights=None):
        self.stop_at_limit()
        return super().gradient(scales, example_ids, weights)


@pytest.mark.parametrize("kind", KINDS)
def test_a_search_stopped_anywhere_resumes_to_the_same_and_takes_no_gradient_twice(kind, tmp_path):
    settings = settings_of(kind, racing=False)
    whole = Sloped()
    _, expected = searched(whole, settings)
    n_passes = len(whole.calls) + len(whole.probes)
    for limit in range(0, n_passes, n_passes // 5):
        path = tmp_path / f"{limit}.jsonl"
        stopped, rest = Stopped(), Sloped()
        stopped.limit = limit
        with pytest.raises(KeyboardInterrupt, match="^$"):
            searched(stopped, settings, path)
        assert searched(rest, settings, path)[1] == expected
        assert len(stopped.probes) + len(rest.probes) == len(whole.probes)


class Moody(Sloped):
    """Has no gradient of every third sample, for one reason or another."""

    def __init__(self, reason):
        super().__init__()
        self.reason = reason

    def gradient(self, scales, example_ids=None, weights=None):
        scores, gradient = super().gradient(scales, example_ids, weights)
        if example_ids[0] != self.example_ids[0]:
            return scores, gradient
        if self.reason == "raises":
            raise RuntimeError("out of luck")
        return scores, gradient[:2] if self.reason == "shape" else np.full_like(gradient, np.nan)


@pytest.mark.parametrize("reason", ["raises", "shape", "nan"])
@pytest.mark.parametrize("kind", ["curve", "both"])
def test_a_gradient_that_fails_is_recorded_and_passed_over(kind, reason, tmp_path):
    settings = settings_of(kind, gradient_sources=4)
    path = tmp_path / "journal.jsonl"
    search, (_, _, told) = searched(Moody(reason), settings, path)
    failed = [evaluation for evaluation in told if evaluation.status == "failed"]
    assert failed
    wanted = {
        "raises": "out of luck",
        "shape": "a gradient of shape",
        "nan": "gradient of finite real numbers",
    }
    assert all(wanted[reason] in evaluation.error for evaluation in failed)
    assert sum(record["failed"] for record in search.logbook) == len(failed)
    assert search.best.fitness.values[0] > -0.05
    assert searched(Sloped(), settings, path)[1][2] == told


@pytest.mark.parametrize("kind", KINDS)
def test_a_problem_without_gradients_is_refused_before_anything_is_scored(kind):
    problem = Sheet()
    with pytest.raises(
        ConfigError, match="Expected a problem with gradients, .* Override its method gradient"
    ):
        searched(problem, settings_of(kind))
    assert not problem.calls


class Broken(Sloped):
    """Has no gradient until it is mended."""

    def gradient(self, scales, example_ids=None, weights=None):
        raise RuntimeError("no backward here")


@pytest.mark.parametrize("max_failures", [2, 5, 100])
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_that_all_fail_stop_the_run_and_a_mended_run_is_the_uninterrupted_one(
    kind, max_failures, tmp_path
):
    settings = settings_of(kind, max_failures=max_failures)
    with pytest.raises(
        EvaluationError, match=r"in a row failed, the last with: RuntimeError: no backward here"
    ):
        searched(Broken(), settings, tmp_path / "journal.jsonl")
    resumed = searched(Sloped(), settings, tmp_path / "journal.jsonl")
    assert resumed[1] == searched(Sloped(), settings)[1]


def test_full_evaluations_that_succeed_do_not_excuse_gradients_that_fail():
    settings = settings_of("mutation", generations=20, max_failures=5)
    problem = Broken()
    with pytest.raises(EvaluationError, match="5 in a row failed"):
        searched(problem, settings)
    first = settings.population_size + 3 * settings.offspring_size
    assert len({curve.tobytes() for curves, _ in problem.calls for curve in curves}) <= first


@pytest.mark.parametrize("gradient", [(1e200,) * N_LAYERS, ("a",) * N_LAYERS, None, (1j,) * N_LAYERS])
def test_a_gradient_that_is_told_and_is_none_counts_as_failed(gradient):
    search = Search(SPACE, settings_of("curve"))
    search.tell([Evaluation((0.5,), (0.5,), 0.0) for _ in search.ask()])
    for _ in range(3):
        assert isinstance(search.ask()[0], GradientProbe)
        search.tell([Evaluation((), (0.5,), 0.0, "sampled", scored=(0,), gradient=gradient)])
    failed = [evaluation for evaluation in search.evaluations() if evaluation.status == "failed"]
    assert len(failed) == 3
    assert all("Expected derivatives that are real numbers below 1e+100" in one.error for one in failed)


def test_a_failed_evaluation_moves_nothing_whatever_else_it_holds():
    search = Search(SPACE, settings_of("curve", gradient_steps=2))
    search.tell([Evaluation((0.5,), (0.5,), 0.0) for _ in search.ask()])
    (first,) = search.ask()
    search.tell([Evaluation((), (), 0.0, "failed", error="no", gradient=(1.0,) * 3)])
    (second,) = search.ask()
    assert (second.scales == first.scales).all()


def test_one_candidate_at_a_time_shares_its_passes_with_none_in_any_precision():
    for is_exact in (True, False):
        problem = Sloped(n_fit=8, is_exact=is_exact)
        searched(problem, settings_of("curve"))
        assert {len(curves) for curves, _ in problem.calls} == {1}
    with pytest.raises(
        ConfigError, match="Expected n_candidates = 1 with the algorithm 'gradient', but got 8"
    ):
        Evaluator(Sloped(), SPACE, settings_of("curve"), n_candidates=8)


@pytest.mark.parametrize("y_min", [0.0, -1.0])
def test_spaces_that_reach_zero_are_for_searches_without_gradients(y_min):
    space = CurveSpace(N_LAYERS, y_min=y_min, y_max=2.0)
    with pytest.raises(ConfigError, match="Expected a space of positive values .* but y_min is"):
        Search(space, settings_of("curve"))
    search, _ = searched(Sloped(), SearchSettings(**GA), space=space)
    assert search.best.fitness.valid


@pytest.mark.parametrize("cost", [0, -3, 2.5, None, "a", True])
def test_a_cost_of_gradients_that_is_no_count_is_refused(cost):
    problem = Sloped()
    problem.gradient_cost = cost
    with pytest.raises(TaskError, match="Expected gradient_cost of the problem to be a whole number"):
        Evaluator(problem, SPACE, settings_of("curve"))


@pytest.mark.parametrize(
    "change",
    [
        {"gradient": [0.1, 0.2]},
        {"status": "raced", "gradient": []},
        {"status": "ok", "values": [0.1], "scored": [], "gradient": []},
    ],
)
def test_a_journal_whose_gradients_are_others_names_the_file(change, tmp_path):
    path, settings = tmp_path / "journal.jsonl", settings_of("curve")
    searched(Sloped(), settings, path)

    def edit(records):
        probe = next(record for record in records if "gradient" in record)
        probe |= change
        if probe["status"] == "ok":
            probe["scores"] = [0.0] * len(Sloped().example_ids)

    rewrite_journal(path, edit)
    with pytest.raises(
        JournalError, match=r"Expected a gradient of 8 numbers under key .* in .*journal\.jsonl"
    ):
        searched(Sloped(), settings, path)


@pytest.mark.parametrize(
    ("scales", "sample"), [(None, 0), (["a", "b"], 0), ([1.0, 1.0], "x"), ([1.0, 1.0], -5)]
)
def test_what_is_no_probe_is_refused(scales, sample):
    with pytest.raises(CurveError, match="Expected"):
        GradientProbe(scales, sample)


@pytest.mark.slow
def test_a_gradient_for_want_of_memory_is_taken_in_smaller_batches():
    class Small(Sloped):
        def gradient(self, scales, example_ids=None, weights=None):
            raise MemoryError

        def smaller(self):
            return Sloped()

    _, (_, _, told) = searched(Small(), settings_of("curve"))
    assert {evaluation.halvings for evaluation in sampled(told)} == {1}


def test_evaluations_with_gradients_round_trip_and_contradictions_are_refused():
    evaluation = Evaluation((), (0.5, 0.25), 1.0, "sampled", scored=(3, 1), tokens=6, gradient=(0.1, -0.2))
    record = evaluation.to_json()
    assert Evaluation.from_json(record) == evaluation
    for change in ({"gradient": []}, {"status": "raced"}, {"gradient": [0.1, float("nan")]}, {"scored": [1]}):
        with pytest.raises(JournalError, match="Expected"):
            Evaluation.from_json(record | change)


def test_a_probe_keeps_its_scales_and_its_sample_apart():
    first, second = GradientProbe([1.0, 0.5], 0), GradientProbe([1.0, 0.5], 1)
    assert first.scales.tolist() == [1.0, 0.5]
    assert first.key != second.key
    assert first != second
    assert first == GradientProbe([1.0, 0.5], 0)
    assert hash(first) == hash(GradientProbe([1.0, 0.5], 0))
    assert first.control_points == second.control_points == ((0.0, 1.0), (1.0, 0.5))


def test_what_is_told_must_fit_what_was_asked_for():
    search = Search(SPACE, settings_of("seeds"))
    search.tell([Evaluation((0.5,), (0.5,), 0.0) for _ in search.ask()])
    assert isinstance(search.ask()[0], GradientProbe)
    with pytest.raises(
        SearchOrderError, match="Expected an evaluation of status sampled for a gradient, but got 'ok'"
    ):
        search.tell([Evaluation((1.0,), (1.0,), 0.0)])
    with pytest.raises(SearchOrderError, match="Expected a gradient of n_layers = 8 numbers, but got 2"):
        search.tell([Evaluation((), (1.0,), 0.0, "sampled", scored=(0,), gradient=(1.0, 2.0))])
    plain = Search(SPACE, SearchSettings(**GA))
    plain.ask()
    with pytest.raises(SearchOrderError, match="status ok or raced for a genome, but got 'sampled'"):
        plain.tell([Evaluation((), (1.0,), 0.0, "sampled", scored=(0,), gradient=(1.0,) * 8)])


def test_an_evaluator_without_gradients_refuses_probes():
    evaluator = Evaluator(Sloped(), SPACE, SearchSettings(**GA))
    with pytest.raises(ConfigError, match="Expected a single probe and settings that take gradients"):
        evaluator.submit([GradientProbe(np.ones(N_LAYERS), 0)])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"algorithm": "steady-state", "gradient_seeds": 1}, "with the algorithm 'ga' alone"),
        ({"algorithm": "nsga2", "gradient_mutation": 0.1}, "with the algorithm 'ga' alone"),
        ({"algorithm": "gradient", "aggregate": "min"}, "the aggregate 'mean' where gradients are taken"),
        ({"gradient_backtracking": True}, "gradient_backtracking with the algorithm 'gradient' alone"),
        ({"learning_rate": 0}, "learning_rate"),
        ({"total_variation": float("inf")}, "total_variation"),
    ],
)
def test_settings_that_contradict_gradients_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        SearchSettings(**settings)


def test_a_metric_without_gradients_is_refused_before_anything_is_loaded():
    with pytest.raises(
        ConfigError, match=r"Expected task\.metric to be log_probability .* 'accuracy', which has none"
    ):
        RunConfig(task={"metric": "accuracy"}, search={"algorithm": "gradient"})


def test_a_model_of_one_layer_has_no_way_up():
    with pytest.raises(ConfigError, match="at least 2 layers to climb"):
        Search(CurveSpace(1), settings_of("curve"))


def test_a_run_along_gradients_on_free_scales_writes_all_its_files_and_resumes(tmp_path):
    changes = {
        "task.options": {"n_pairs": 16},
        "examples.n_per_position": 4,
        "curve.curve": "free",
        "curve.y_step": None,
        "search.algorithm": "gradient",
        "search.gradient_steps": 2,
        "search.gradient_sources": 2,
        "search.generations": 2,
        "report.positions": [0.0, 1.0],
        "report.n_per_position": 4,
        "report.n_shuffles": 0,
    }
    config, folder = load_config(preset="demo", overrides=changes), RunFolder(tmp_path / "run")
    folder.create(config)
    result = run_search(config, folder, devices="in-process")
    scales = load_scales(folder.path)
    assert scales == result.scales
    assert scales.curve == "linear"
    assert len(set(scales.scales)) == len(scales.control_points) == scales.n_layers
    middle = scales.at_depth(2 * scales.n_layers - 1).scales[1]
    assert middle == pytest.approx((scales.scales[0] + scales.scales[1]) / 2)
    assert set(result.summary["methods"]) == {"untouched", "lpes"}
    assert all(path.exists() for path in (folder.history, folder.report, *folder.pictures))
    lines = [json.loads(line) for line in folder.journal.read_text().splitlines()[1:]]
    assert [line["status"] for line in lines] == [
        "ok",
        "sampled",
        "sampled",
        "ok",
        "sampled",
        "sampled",
        "ok",
    ]
    full = lines[0]["tokens"]
    assert sum(line["tokens"] for line in lines if line["status"] == "sampled") == pytest.approx(
        3 * 2 * full, rel=0.1
    )
    before = folder.journal.read_bytes()
    again = run_search(config, folder, devices="in-process")
    assert again.scales == result.scales
    assert folder.journal.read_bytes() == before
    estimate = estimate_run(config, devices="in-process", repeats=1)
    assert (estimate.n_evaluations, estimate.gradient_tokens) == (3, 4 * 3 * full // 2)
    assert f"and {estimate.gradient_tokens} tokens for gradients" in "\n".join(estimate.lines())


def test_a_run_begun_before_there_was_backtracking_goes_on_without_it(tmp_path):
    changes = {
        "task.options": {"n_pairs": 16},
        "examples.n_per_position": 2,
        "search.algorithm": "gradient",
        "search.gradient_steps": 1,
        "search.generations": 1,
        "report.positions": [0.0],
        "report.n_per_position": 2,
        "report.n_shuffles": 0,
    }
    config = load_config(preset="demo", overrides=changes | {"search.gradient_backtracking": False})
    assert load_config(preset="demo", overrides=changes).search.gradient_backtracking
    folder = RunFolder(tmp_path / "run")
    folder.create(config)
    run_search(config, folder, devices="in-process")

    # A folder of an earlier version knows no such setting, and has the hash of its settings without it.
    text = folder.config.read_text()
    assert text.count("  gradient_backtracking: false\n") == 1
    folder.config.write_text(text.replace("  gradient_backtracking: false\n", ""))
    before = folder.journal.read_bytes()
    again = folder.load_config()
    assert not again.search.gradient_backtracking
    run_search(again, folder, devices="in-process")
    assert folder.journal.read_bytes() == before
