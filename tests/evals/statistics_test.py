import numpy as np
import pytest
from scipy.stats import binomtest

from lpes_evo.evals import ScoredExample, difference, macro_headline, score_interval, summarise_arm
from lpes_evo.problems import headline_of, make_task
from lpes_evo.statistics import wilson_interval


def scored(values, sources=None, positions=None):
    values = [value if isinstance(value, tuple) else (float(value),) for value in values]
    return [
        ScoredExample(
            f"e{number}", positions and positions[number], sources[number] if sources else f"s{number}", value
        )
        for number, value in enumerate(values)
    ]


def ratio(scores):
    return float(scores[:, 0].sum() / scores[:, 1].sum())


def test_right_or_wrong_answers_of_different_sources_get_wilsons_interval():
    result = summarise_arm(None, scored([1, 1, 0, 1]), None, n_failed=2, n_in_smaller_batches=1)
    assert (result.overall.score, result.overall.n, result.overall.interval) == (0.75, 4, "Wilson")
    assert (result.overall.low, result.overall.high) == wilson_interval(3, 4)
    assert result.overall.difference is None
    assert result.positions == []
    assert (result.n_failed, result.n_in_smaller_batches) == (2, 1)


def test_examples_of_one_source_are_drawn_together():
    values = np.array([[1.0]] * 10 + [[0.0]] * 10)
    alone = score_interval(None, values, [f"s{number}" for number in range(20)])
    together = score_interval(None, values, ["a"] * 10 + ["b"] * 10)
    assert together[0] == alone[0] == 0.5
    assert together[3] == "bootstrap over sources"
    assert (together[1], together[2]) == (0.0, 1.0)
    assert alone[2] - alone[1] < 0.5


def test_a_single_source_is_resampled_example_by_example():
    *_, low, high, kind = score_interval(None, np.array([[0.2], [0.4], [0.9]]), ["a"] * 3)
    assert kind == "bootstrap over examples"
    assert low < high


def test_positions_are_summarised_apart():
    values, positions = [1, 0, 1, 1], [0.0, 0.0, 1.0, 1.0]
    result = summarise_arm(
        None, scored(values, positions=positions), None, n_failed=0, n_in_smaller_batches=0
    )
    assert [(row.position, row.score, row.n) for row in result.positions] == [(0.0, 0.5, 2), (1.0, 1.0, 2)]


def test_mcnemars_test_looks_at_the_pairs_that_differ():
    ours, theirs = [1] * 9 + [0] + [1] * 5, [0] * 9 + [1] + [1] * 5
    found = difference(None, scored(ours), scored(theirs))
    assert found.value == pytest.approx(8 / 15)
    assert found.test == "McNemar, exact"
    assert found.p_value == binomtest(9, 10).pvalue
    assert found.low > 0
    same = difference(None, scored(ours), scored(ours))
    assert (same.value, same.low, same.high, same.p_value) == (0, 0, 0, 1)


def test_a_difference_in_one_source_alone_may_be_chance():
    found = difference(
        None, scored([1, 0, 0, 0], ["a", "a", "b", "b"]), scored([0] * 4, ["a", "a", "b", "b"])
    )
    assert (found.value, found.p_value, found.test) == (0.25, 1.0, "permutation over sources")


def test_shared_sources_make_a_difference_less_certain():
    ours, theirs = [1] * 12, [0] * 12
    alone = difference(None, scored(ours), scored(theirs))
    together = difference(None, scored(ours, ["a", "b", "c"] * 4), scored(theirs, ["a", "b", "c"] * 4))
    assert together.test == "permutation over sources"
    # Three sources have 8 patterns of signs, and 2 of them are as far from 0.
    assert together.p_value == pytest.approx(0.25)
    assert alone.p_value < 0.001


def test_only_examples_that_both_answered_are_compared():
    ours = scored([1, 0, 1, 1])
    found = difference(None, ours, scored([0, 0, 1, 1])[:2])
    assert (found.n, found.value) == (2, 0.5)
    assert difference(None, ours[:1], scored([0, 0])[1:]) is None


def test_a_headline_that_is_no_mean_is_resampled_whole():
    generator = np.random.default_rng(1)
    tokens = generator.integers(5, 200, size=60)
    nats = tokens * 2.0 + generator.normal(0, 5, size=60)
    worse = scored(list(zip(nats.tolist(), tokens.tolist(), strict=True)))
    better = scored(list(zip((nats - 0.3 * tokens).tolist(), tokens.tolist(), strict=True)))
    result = summarise_arm(ratio, better, worse, n_failed=0, n_in_smaller_batches=0)
    assert result.overall.score == pytest.approx(nats.sum() / tokens.sum() - 0.3)
    assert result.overall.low < result.overall.score < result.overall.high
    found = result.overall.difference
    assert found.value == pytest.approx(-0.3)
    assert found.low == pytest.approx(-0.3)
    assert found.p_value == pytest.approx(1 / 2000)
    assert found.test == "permutation over sources"


def test_equal_arms_differ_by_nothing_under_any_headline():
    rows = scored([(3.0, 2.0), (5.0, 7.0), (1.0, 4.0)])
    found = difference(ratio, rows, rows)
    assert (found.value, found.low, found.high, found.p_value) == (0, 0, 0, 1)


def test_null_p_values_are_spread_over_the_unit_interval():
    generator = np.random.default_rng(3)
    found = []
    for _ in range(60):
        ours, theirs = generator.normal(size=(2, 30))
        sources = [f"s{number // 3}" for number in range(30)]
        found.append(difference(None, scored(ours, sources), scored(theirs, sources)).p_value)
    assert 0.3 < np.mean(found) < 0.7
    assert np.mean(np.array(found) < 0.1) < 0.25


def test_a_task_tells_whether_its_headline_is_a_mean():
    assert headline_of(make_task("recall")) is None
    headline = headline_of(make_task("perplexity"))
    assert headline(np.array([[10.0, 5.0], [2.0, 1.0]])) == 2.0


def test_the_macro_average_gives_every_subject_the_same_weight():
    assert macro_headline(np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 4.0]])) == 0.5
