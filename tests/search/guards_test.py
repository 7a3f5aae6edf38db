"""Guards: who makes one worse beyond its tolerance loses to everyone who does not, in every algorithm."""

import dataclasses
import json

import numpy as np
import pytest

from guarded import N_LAYERS, Wish, guarded
from lpes_evo.comparison import OPTIMISERS, OptimiserSearch
from lpes_evo.config import SearchSettings
from lpes_evo.execution import Evaluator, drive
from lpes_evo.operators import BezierGenome, CurveSpace
from lpes_evo.search import Evaluation, Search, TrainingSet
from lpes_evo.storage import Journal

SPACE = CurveSpace(N_LAYERS, y_min=0.5, y_max=1.6, y_step=0.05, max_delta=0.5)
SMALL = {
    "population_size": 12,
    "offspring_size": 8,
    "generations": 5,
    "n_constants": 4,
    "in_flight": 5,
    "preselection": 8,
    "gradient_steps": 2,
    "learning_rate": 0.02,
}
WAYS = {
    "ga": {},
    "ga without racing": {"racing": False},
    "ga without preselection": {"preselection": 1},
    "ga against the worst": {"race_against": "worst"},
    "seeds and mutations along gradients": {"gradient_seeds": 2, "gradient_mutation": 0.5},
    "steady-state": {"algorithm": "steady-state"},
    "nsga2": {"algorithm": "nsga2"},
    "random": {"algorithm": "random"},
    "gradient": {"algorithm": "gradient"},
}


def searched(problem, changes, journal=None, seed=1):
    settings = SearchSettings(**SMALL | changes)
    evaluator = Evaluator(problem, SPACE, settings)
    search = Search(
        SPACE,
        settings,
        seed=seed,
        n_objectives=evaluator.rule.n_objectives,
        example_weights=evaluator.rule.example_weights,
        is_guarded=evaluator.rule.is_guarded,
    )
    drive(search, evaluator, journal)
    return search


def loss_of_guard(genome):
    """Return how much worse than the untouched model the guard is, by arithmetic of its own."""
    guard = Wish(1.0, n_texts=3)
    untouched, found = guard.score(np.ones(N_LAYERS)), guard.score(SPACE.decode([genome])[0])
    return float((untouched - found).mean())


@pytest.mark.parametrize("way", WAYS)
def test_a_guard_changes_the_winner_in_every_algorithm(way):
    free, kept = searched(Wish(1.4), WAYS[way]), searched(guarded(), WAYS[way])
    assert loss_of_guard(free.best) > 0.02
    assert loss_of_guard(kept.best) <= 0.02
    # The guard leaves room for a gain, and the search takes it.
    task = Wish(1.4)
    assert task.score(SPACE.decode([kept.best])[0]).mean() > task.score(np.ones(N_LAYERS)).mean()
    assert kept.best.fitness.violation == 0
    assert any(evaluation.violation > 0 for evaluation in kept.evaluations())


@pytest.mark.parametrize("name", ["cma-es", "tpe"])
def test_a_guard_changes_the_winner_of_a_wrapped_optimiser(name):
    settings = SearchSettings(**SMALL | {"racing": False})
    best = []
    for problem in (Wish(1.4), guarded()):
        search = OptimiserSearch(OPTIMISERS[name], SPACE, 60, settings, seed=1)
        drive(search, Evaluator(problem, SPACE, search.settings))
        best.append(search.best)
    free, kept = best
    assert loss_of_guard(free) > 0.02 >= loss_of_guard(kept)


@pytest.mark.parametrize("way", WAYS)
def test_a_guard_that_nothing_breaks_changes_nothing_but_the_cost(way):
    # A race has one test more before the guards are scored.
    changes = WAYS[way] | {"racing": False}
    free, kept = searched(Wish(1.4), changes), searched(guarded(tolerance=100.0), changes)
    assert [genome.key for genome in kept.population] == [genome.key for genome in free.population]
    assert [evaluation.values for evaluation in kept.evaluations()] == [
        evaluation.values for evaluation in free.evaluations()
    ]
    assert all(evaluation.violation == 0 for evaluation in kept.evaluations())


def test_the_untouched_model_keeps_a_guard_without_any_tolerance():
    search = searched(guarded(tolerance=0.0), {})
    first = search.evaluations()[0]
    assert first.violation == 0
    assert all(score == 0 for score in first.scores[12:])
    assert search.best.fitness.violation == 0


def test_survivors_come_with_those_that_keep_the_guards_first():
    search = searched(guarded(), {"population_size": 30, "n_constants": 12, "generations": 1})
    violations = [genome.fitness.violation for genome in search.population]
    n_kept = violations.count(0)
    assert 0 < n_kept < len(violations)
    assert violations[:n_kept] == [0] * n_kept
    assert violations[n_kept:] == sorted(violations[n_kept:])
    fitness = [genome.fitness.values for genome in search.population[:n_kept]]
    assert fitness == sorted(fitness, reverse=True)
    assert search.logbook[-1]["best"] == fitness[0][0]
    assert search.logbook[-1]["violation"] == 0
    assert search.logbook[0]["violating"] > 0


def test_the_logbook_has_no_columns_of_guards_without_any():
    assert "violation" not in searched(Wish(1.4), {}).logbook.header
    assert searched(guarded(), {}).logbook.header[-2:] == ["violating", "violation"]


def test_nothing_is_raced_against_a_parent_that_breaks_a_guard():
    settings = SearchSettings(**SMALL | {"generations": 1})
    search = Search(SPACE, settings, is_guarded=True)
    first = search.ask()
    # All break the guard: the parents are the least bad, and whoever keeps it may have any fitness.
    search.tell([Evaluation((1.0,), (1.0, 1.0), 0.0, violation=0.5) for _ in first])
    search.ask()
    assert search.reference() is None
    raced = Search(SPACE, settings, is_guarded=True)
    first = raced.ask()
    told = [Evaluation((1.0,), (1.0, 1.0), 0.0, violation=0.5) for _ in first]
    told[2] = Evaluation((-3.0,), (-3.0, -3.0), 0.0)
    raced.tell(told)
    raced.ask()
    assert raced.reference() == (-3.0, -3.0)


def test_a_candidate_that_is_raced_out_costs_nothing_on_the_guards():
    problem = guarded()
    search = searched(problem, {})
    raced = [evaluation for evaluation in search.evaluations() if evaluation.status == "raced"]
    assert raced
    assert all(max(evaluation.scored) < 12 and evaluation.violation == 0 for evaluation in raced)
    n_full = sum(evaluation.status == "ok" for evaluation in search.evaluations())
    guard_calls = problem.parts["text"].calls
    # Three blocks of one source each, and the measurement of the untouched model.
    assert len(guard_calls) == 3 * (n_full + 1)


def test_a_violation_is_told_and_kept_and_no_other_journal_has_one(tmp_path):
    for name, problem in (("guarded", guarded()), ("free", Wish(1.4))):
        with Journal(tmp_path / f"{name}.jsonl", {"format": "lpes-evo/journal"}) as journal:
            search = searched(problem, {}, journal)
        text = (tmp_path / f"{name}.jsonl").read_text()
        assert ("violation" in text) == (name == "guarded")
        assert ("untouched" in text) == (name == "guarded")
    assert Evaluation((1.0,), (1.0,), 0.5).to_json() == {
        "status": "ok",
        "values": [1.0],
        "scores": [1.0],
        "seconds": 0.5,
    }
    told = Evaluation((1.0,), (1.0,), 0.5, violation=0.25)
    assert Evaluation.from_json(json.loads(json.dumps(told.to_json()))) == told
    assert search.best


@pytest.mark.parametrize("way", WAYS)
def test_a_guarded_search_that_was_killed_anywhere_ends_with_the_same_bytes(way, tmp_path):
    with Journal(tmp_path / "whole.jsonl", {"format": "lpes-evo/journal"}) as journal:
        whole = searched(guarded(), WAYS[way], journal)
    lines = (tmp_path / "whole.jsonl").read_text().splitlines(keepends=True)
    expected = [evaluation.to_json() for evaluation in without_time(whole.evaluations())]

    for n_kept in (1, 2, len(lines) // 2, len(lines) - 1):
        path = tmp_path / f"{n_kept}.jsonl"
        path.write_text("".join(lines[:n_kept]))
        with Journal(path, {"format": "lpes-evo/journal"}) as journal:
            resumed = searched(guarded(), WAYS[way], journal)
        assert [evaluation.to_json() for evaluation in without_time(resumed.evaluations())] == expected
        assert list(resumed.logbook) == list(whole.logbook)
        assert [genome.key for genome in resumed.population] == [genome.key for genome in whole.population]


def without_time(evaluations):
    return [dataclasses.replace(evaluation, seconds=0.0) for evaluation in evaluations]


@pytest.mark.parametrize("bad", [-0.1, float("nan"), float("inf"), None, "much"])
def test_a_violation_that_is_no_finite_number_of_at_least_0_makes_a_failed_evaluation(bad):
    search = Search(SPACE, SearchSettings(**SMALL), is_guarded=True)
    genomes = search.ask()
    good = Evaluation((1.0,), (1.0,), 0.0)
    search.tell([good] * (len(genomes) - 1) + [Evaluation((1.0,), (1.0,), 0.0, violation=bad)])
    failed = search.evaluations()[-1]
    assert failed.status == "failed"
    assert "a violation that is a finite number of at least 0" in failed.error


def test_the_surrogate_prefers_a_curve_that_keeps_the_guards_to_a_better_one_that_breaks_them():
    constants = np.linspace(0.6, 1.5, 10)
    training_set, without = TrainingSet("mean"), TrainingSet("mean")
    for value in constants:
        curve = np.full(N_LAYERS, value).tobytes()
        loss = max(0.0, 2 * (value - 1.1))
        training_set.add(curve, Evaluation((value,), (value,), 0.0, violation=loss), None)
        without.add(curve, Evaluation((value,), (value,), 0.0), None)
    new = np.array([np.full(N_LAYERS, value) for value in (0.95, 1.12, 1.55)])
    assert without.surrogate().best_of(new) == 2
    assert training_set.surrogate().best_of(new) == 1


def test_a_raced_out_curve_counts_in_the_surrogate_by_its_weighted_difference():
    reference = (1.0, 2.0, 3.0, 7.0)
    curves = [np.full(N_LAYERS, value).tobytes() for value in (0.8, 1.0, 1.2)]
    raced = Evaluation((), (0.5, 1.0), 0.0, "raced", scored=(0, 1))
    # The last example is that of a guard, and the first counts twice as much as each other.
    weighted, plain = TrainingSet("mean"), TrainingSet("mean")
    weighted.add(curves[0], raced, reference, (0.5, 0.25, 0.25, 0.0))
    plain.add(curves[0], Evaluation((1.75 - (0.5 * 0.5 + 1.0 * 0.25) / 0.75,), (1.0,), 0.0), None)
    for training_set in (weighted, plain):
        for curve, value in zip(curves[1:], (1.5, 1.2), strict=True):
            training_set.add(curve, Evaluation((value,), (value,), 0.0), None)
    assert weighted.surrogate() is not None
    single = TrainingSet("mean")
    single.add(curves[0], Evaluation((), (0.5,), 0.0, "raced", scored=(0,)), reference, (1.0, 0.0, 0.0, 0.0))
    assert single.surrogate() is None


def test_deap_ranks_a_fitness_with_a_violation_by_the_rule_of_deb():
    def fitness(value, violation):
        genome = BezierGenome([(0, 1.0), (7, 1.0)])
        genome.fitness.values = (value,)
        genome.fitness.violation = violation
        return genome.fitness

    kept, better, slight, heavy = fitness(0.1, 0.0), fitness(0.2, 0.0), fitness(9.0, 0.1), fitness(99.0, 2.0)
    assert better > kept > slight > heavy
    for best, worst in ((better, kept), (kept, slight), (slight, heavy)):
        assert best.dominates(worst)
    assert not slight.dominates(kept)
    assert fitness(1.0, 0.5) > fitness(0.5, 0.5)
    assert fitness(1.0, 0.5) == fitness(1.0, 0.5) != fitness(1.0, 0.0)
    assert hash(fitness(1.0, 0.5)) == hash(fitness(1.0, 0.5))
    del heavy.values
    assert not heavy.valid
    assert heavy.violation == 0
