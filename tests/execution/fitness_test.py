"""The rule that makes fitness values and violations of the scores of a mixture."""

import numpy as np
import pytest

from guarded import N_LAYERS, Wish, guarded
from lpes_evo.config import SearchSettings
from lpes_evo.errors import ConfigError, EvaluationError, JournalError, TaskError
from lpes_evo.execution import Evaluator, FitnessRule, ProblemFacts, drive
from lpes_evo.operators import BezierGenome, CurveSpace
from lpes_evo.problems import MixtureProblem, Problem, aggregate
from lpes_evo.search import Search
from lpes_evo.storage import Journal

SPACE = CurveSpace(N_LAYERS, y_min=0.5, y_max=1.6, y_step=0.05, max_delta=0.5)
CURVE = BezierGenome([(0, 1.2), (3, 1.2), (5, 1.1), (7, 1.0)])
UNRACED = SearchSettings(racing=False)
RACED = SearchSettings()


def related(problem, settings=UNRACED):
    evaluator = Evaluator(problem, SPACE, settings)
    evaluator.relate(evaluator.measure_untouched().scores)
    return evaluator


def evaluated(problem, genome=CURVE, settings=UNRACED):
    evaluator = related(problem, settings)
    evaluator.submit([genome])
    _, (evaluation,) = evaluator.wait()
    return evaluation


def parts():
    """Return three tasks of other sizes, other sets and other units."""
    few = Wish(1.2, n_texts=1, steepness=30.0, offset=2.0)
    return {
        "many": Wish(1.4, n_texts=9),
        "few": few,
        "one": OneSet(0.9, n_texts=2, steepness=0.01, offset=0.004),
    }


class OneSet(Wish):
    """A wish whose examples have no position."""

    def __init__(self, *values, **options):
        super().__init__(*values, **options)
        self.groups = ("all",) * len(self.groups)


@pytest.mark.parametrize("settings", [UNRACED, RACED])
def test_the_fitness_is_the_weighted_mean_of_gains_in_units_of_the_spread_of_each_task(settings):
    weights = {"many": 1.0, "few": 2.0, "one": 0.5}
    evaluation = evaluated(MixtureProblem(parts(), weights), settings=settings)
    curve, ones = SPACE.decode([CURVE])[0], np.ones(N_LAYERS)
    gains, scores = {}, []
    for name, part in parts().items():
        untouched = part.score(ones)
        gain = (part.score(curve) - untouched) / untouched.std()
        scores += gain.tolist()
        sets = [gain[np.array(part.groups) == label].mean() for label in dict.fromkeys(part.groups)]
        gains[name] = np.mean(sets)
    assert evaluation.scores == pytest.approx(scores, rel=1e-12, abs=1e-12)
    expected = (1.0 * gains["many"] + 2.0 * gains["few"] + 0.5 * gains["one"]) / 3.5
    assert evaluation.values == (pytest.approx(expected, rel=1e-12),)


def test_no_task_counts_for_more_because_of_its_examples_its_sets_or_its_units():
    def fitness(n_texts, steepness, offset):
        sizes = {"a": Wish(1.2, n_texts=n_texts, steepness=steepness, offset=offset), "b": Wish(1.4)}
        sizes["a"].targets = np.full_like(sizes["a"].targets, 1.2)
        # The same spread relative to the effect, whatever the number of examples.
        sizes["a"].offsets = steepness * np.resize([0.0, 0.2], 3 * n_texts)
        return evaluated(MixtureProblem(sizes)).values[0]

    assert fitness(4, 1.0, 0.1) == pytest.approx(fitness(40, 1.0, 0.1), rel=1e-9)
    assert fitness(4, 1.0, 0.1) == pytest.approx(fitness(4, 500.0, 0.1), rel=1e-9)


def test_the_untouched_model_has_no_gain_to_the_last_digit():
    class Trembling(Wish):
        """Rounds in another way at every call, as another device does."""

        def score(self, scales, example_ids=None):
            return super().score(scales, example_ids) * (1 + 1e-7 * len(self.calls))

    identity = BezierGenome([(0, 1.0), (3, 1.0), (5, 1.0), (7, 1.0)])
    problem = MixtureProblem({"a": Trembling(1.4), "b": Trembling(0.9)}, guarded={"c": Trembling(1.0)})
    evaluation = evaluated(problem, identity, SearchSettings(racing=True))
    assert set(evaluation.scores) == {0.0}
    assert (evaluation.values, evaluation.violation) == ((0.0,), 0.0)


def test_a_single_task_keeps_its_units_beside_guards_and_is_the_problem_it_was():
    alone, beside = evaluated(Wish(1.4)), evaluated(guarded())
    assert beside.values == alone.values
    assert beside.scores[:12] == alone.scores


def test_the_violation_is_the_loss_of_each_guard_beyond_its_tolerance():
    guards = {"x": Wish(1.0, n_texts=1), "y": Wish(0.8, n_texts=2, steepness=3.0), "z": Wish(1.4)}
    problem = MixtureProblem(
        {"task": Wish(1.3)}, guarded=guards, tolerances={"x": 0.001, "y": 0.01, "z": 0.0}
    )
    curve, ones = SPACE.decode([CURVE])[0], np.ones(N_LAYERS)
    losses = {
        name: -aggregate(guard.score(curve) - guard.score(ones), guard.groups)[0]
        for name, guard in guards.items()
    }
    assert losses["z"] < 0 < losses["x"]
    expected = losses["x"] - 0.001 + losses["y"] - 0.01
    assert evaluated(problem).violation == pytest.approx(expected, rel=1e-12)
    assert evaluated(problem).violation > 0


def test_nsga2_takes_sets_over_all_tasks_or_tasks_as_objectives():
    curve, ones = SPACE.decode([CURVE])[0], np.ones(N_LAYERS)
    gains = {}
    for name, part in parts().items():
        untouched = part.score(ones)
        gain = (part.score(curve) - untouched) / untouched.std()
        for label in dict.fromkeys(part.groups):
            gains[name, label] = gain[np.array(part.groups) == label].mean()

    by_set = evaluated(
        MixtureProblem(parts(), {"few": 3.0}), settings=SearchSettings(algorithm="nsga2", racing=False)
    )
    expected = [(gains["many", label] + 3 * gains["few", label]) / 4 for label in ("begin", "middle", "end")]
    assert by_set.values == pytest.approx([*expected, gains["one", "all"]], rel=1e-12)

    tasks = SearchSettings(algorithm="nsga2", nsga2_objectives="tasks", racing=False)
    by_task = evaluated(MixtureProblem(parts()), settings=tasks)
    expected = [
        np.mean([gain for (task, _), gain in gains.items() if task == name])
        for name in ("many", "few", "one")
    ]
    assert by_task.values == pytest.approx(expected, rel=1e-12)
    worst = evaluated(MixtureProblem(parts()), settings=SearchSettings(aggregate="min", racing=False))
    assert worst.values == pytest.approx([min(gains.values())], rel=1e-12)


def test_a_gradient_is_that_of_the_fitness():
    settings = SearchSettings(algorithm="gradient", gradient_sources=100, racing=False)
    evaluator = related(MixtureProblem(parts(), {"few": 2.0}, guarded={"g": Wish(1.0)}), settings)
    search = Search(SPACE, settings, example_weights=evaluator.rule.example_weights, is_guarded=True)
    (genome,) = search.ask()
    evaluator.submit([genome])
    search.tell(evaluator.wait()[1])
    (probe,) = search.ask()
    evaluator.submit([probe])
    _, (sampled,) = evaluator.wait()

    def fitness(scales):
        total = {}
        for name, part in parts().items():
            untouched = part.score(np.ones(N_LAYERS))
            gain = (part.score(scales) - untouched) / untouched.std()
            total[name] = aggregate(gain, part.groups)[0]
        return (total["many"] + 2 * total["few"] + total["one"]) / 4

    for layer in range(N_LAYERS):
        step = np.eye(N_LAYERS)[layer] * 1e-6
        slope = (fitness(probe.scales + step) - fitness(probe.scales - step)) / 2e-6
        assert sampled.gradient[layer] == pytest.approx(slope, rel=1e-4, abs=1e-6)
    # Guards are no part of it.
    assert max(sampled.scored) < 27 + 3 + 6


def test_a_race_weighs_tasks_as_the_fitness_does():
    # The small task gains more than the large one loses, although nearly all differences are losses.
    large, small = Wish(1.0, n_texts=30, steepness=0.5), Wish(1.3, n_texts=2, steepness=0.07)
    problem = MixtureProblem({"large": large, "small": small})
    evaluator = related(problem, RACED)
    reference = evaluated(problem, BezierGenome([(0, 1.0), (3, 1.0), (5, 1.0), (7, 1.0)]), RACED)
    evaluator.submit([CURVE], reference.scores)
    _, (evaluation,) = evaluator.wait()
    assert evaluation.status == "ok"
    assert evaluation.values > reference.values
    assert np.mean(evaluation.scores) < 0
    # Where the large task alone is searched, the same curve is out.
    alone = Evaluator(Wish(1.0, n_texts=30, steepness=0.5), SPACE, RACED)
    alone.submit([CURVE], tuple(large.score(np.ones(N_LAYERS))))
    assert alone.wait()[1][0].status == "raced"


class Constant(Wish):
    """A task that the untouched model solves, or fails, everywhere."""

    def score(self, scales, example_ids=None):
        return np.ones(len(super().score(scales, example_ids)))


def test_a_task_without_any_spread_is_refused_in_a_mixture_and_welcome_as_a_guard():
    with pytest.raises(
        TaskError, match="score the 12 search examples of easy differently.*all are 1 to within"
    ):
        related(MixtureProblem({"easy": Constant(1.0), "b": Wish(1.4)}))
    assert evaluated(MixtureProblem({"b": Wish(1.4)}, guarded={"easy": Constant(1.0)})).violation == 0
    assert evaluated(MixtureProblem({"easy": Constant(1.0)}, guarded={"b": Wish(1.4)})).values == (1.0,)


def test_options_without_effect_are_refused():
    def rule(problem, **settings):
        return FitnessRule(ProblemFacts.of(problem), SearchSettings(**settings))

    weighted = MixtureProblem(parts(), {"few": 2.0})
    with pytest.raises(ConfigError, match=r"without weights, because search.aggregate=min takes no mean"):
        rule(weighted, aggregate="min")
    with pytest.raises(ConfigError, match=r"many\*1, few\*2, one\*1. Leave the weights out"):
        rule(weighted, algorithm="nsga2", nsga2_objectives="tasks")
    with pytest.raises(ConfigError, match="Expected several tasks where each is an objective, but got one"):
        rule(Wish(1.0), algorithm="nsga2", nsga2_objectives="tasks")
    with pytest.raises(ConfigError, match="nsga2_objectives with the algorithm 'nsga2' alone"):
        SearchSettings(nsga2_objectives="tasks")


def test_a_mixture_is_not_scored_before_the_untouched_model():
    evaluator = Evaluator(guarded(), SPACE, UNRACED)
    with pytest.raises(ConfigError, match="scores of the untouched model before candidates of a mixture"):
        evaluator.submit([CURVE])
    with pytest.raises(ConfigError, match="Expected 21 scores of the untouched model"):
        evaluator.relate((1.0, 2.0))


def test_an_untouched_model_that_cannot_be_scored_stops_the_run_and_keeps_nothing(tmp_path):
    class Broken(Problem):
        n_layers, example_ids, groups = N_LAYERS, ("a", "b"), ("all", "all")

        def score(self, scales, example_ids=None):
            raise RuntimeError("no such weights")

    problem = MixtureProblem({"a": Wish(1.0)}, guarded={"b": Broken()})
    with Journal(tmp_path / "journal.jsonl", {"format": "lpes-evo/journal"}) as journal:
        with pytest.raises(EvaluationError, match="scores of the untouched model.*no such weights"):
            drive(Search(SPACE, UNRACED), Evaluator(problem, SPACE, UNRACED), journal)
        assert len(journal) == 0


def test_a_journal_whose_untouched_scores_are_of_other_examples_is_refused(tmp_path):
    settings = SearchSettings(racing=False, generations=0)
    with Journal(tmp_path / "journal.jsonl", {"format": "lpes-evo/journal"}) as journal:
        drive(Search(SPACE, settings), Evaluator(guarded(), SPACE, settings), journal)
    with Journal(tmp_path / "journal.jsonl", {"format": "lpes-evo/journal"}) as journal:
        other = MixtureProblem({"task": Wish(1.4)}, guarded={"text": Wish(1.0, n_texts=2)})
        with pytest.raises(JournalError, match="scores of the 18 examples under key 'untouched'"):
            drive(Search(SPACE, settings), Evaluator(other, SPACE, settings), journal)
