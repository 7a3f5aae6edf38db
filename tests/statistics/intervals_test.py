"""Intervals: those with a formula, those of a bootstrap, and those made of other intervals."""

import numpy as np
import pytest
from scipy.stats import norm

from lpes_evo.statistics import (
    Interval,
    column_limits,
    combined_interval,
    mean_interval,
    median_interval,
    order_interval,
    paired_difference,
    statistic_interval,
    wilson_interval,
)


@pytest.mark.parametrize(("successes", "trials"), [(0, 50), (27, 50), (50, 50), (1, 1)])
def test_wilson_interval_equals_its_formula(successes, trials):
    z, share = norm.ppf(0.975), successes / trials
    middle = (share + z**2 / (2 * trials)) / (1 + z**2 / trials)
    half = z / (1 + z**2 / trials) * np.sqrt(share * (1 - share) / trials + z**2 / (4 * trials**2))
    assert wilson_interval(successes, trials) == pytest.approx((middle - half, middle + half), abs=1e-12)


@pytest.mark.parametrize(("successes", "trials"), [(0, 0), (3, 2), (-1, 2)])
def test_wilson_interval_refuses_impossible_counts(successes, trials):
    with pytest.raises(ValueError, match="0 <= n_successes <= n_trials"):
        wilson_interval(successes, trials)


def test_paired_difference_agrees_with_the_normal_interval():
    rng = np.random.default_rng(0)
    first, second = rng.random(400) < 0.7, rng.random(400) < 0.6
    difference = first.astype(float) - second
    error = difference.std() / 20
    mean, low, high = paired_difference(first, second)
    assert mean == pytest.approx(difference.mean())
    assert (low, high) == pytest.approx((mean - 1.96 * error, mean + 1.96 * error), abs=0.15 * error)


def test_paired_difference_repeats_and_leaves_the_global_state():
    state = np.random.get_state()[1].copy()
    first, second = np.arange(20.0), np.arange(20.0) % 3
    assert paired_difference(first, second) == paired_difference(first, second)
    assert (np.random.get_state()[1] == state).all()


def test_equal_values_have_no_difference():
    assert paired_difference([1, 0, 1], [1, 0, 1]) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(("first", "second"), [([1.0], [1.0, 2.0]), ([], []), ([[1.0]], [[1.0]])])
def test_values_that_do_not_pair_are_refused(first, second):
    with pytest.raises(ValueError, match="two arrays of one shape"):
        paired_difference(first, second)


def test_the_interval_of_the_median_covers_the_truth_about_as_often_as_it_says():
    generator = np.random.default_rng(0)
    covered = 0
    for _ in range(60):
        values = generator.standard_normal((15, 1)) + generator.standard_normal((1, 12))
        found = median_interval(values)
        assert found.low <= found.value <= found.high
        covered += found.low <= 0 <= found.high
    assert covered >= 52


def test_an_interval_of_one_vector_is_about_sources_and_of_one_source_about_vectors():
    assert median_interval(np.ones((1, 5))) == (1.0, 1.0, 1.0)
    vectors = median_interval(np.arange(9.0)[:, None])
    assert vectors.value == 4.0
    assert vectors.low < 3 < 5 < vectors.high


def test_a_plain_sample_has_the_interval_of_vectors_on_one_source():
    values = np.random.default_rng(0).normal(size=30)
    assert median_interval(values) == median_interval(values[:, None])
    assert median_interval(values).value == np.median(values)


def test_order_statistics_are_two_of_the_values():
    # Of nine values, the second from either end: binomial tails of 10 / 512 each.
    values = np.array([5, 1, 9, 3, 7, 2, 8, 4, 6])
    assert order_interval(values) == (5, 2, 8)
    assert np.isnan(order_interval(values[:4]).low)


def test_the_bootstraps_of_a_mean_agree():
    values, clusters = np.random.default_rng(1).normal(size=200), np.arange(200) // 4
    by_counts = mean_interval(values, clusters.tolist())
    by_rows = statistic_interval(lambda rows: float(rows.mean()), values[:, None], clusters)
    assert by_rows.value == pytest.approx(by_counts.value)
    width = by_counts.high - by_counts.low
    assert (by_rows.low, by_rows.high) == pytest.approx((by_counts.low, by_counts.high), abs=0.1 * width)

    low, high = column_limits(np.stack([values, -values], axis=1))
    alone = mean_interval(values)
    assert (low[0], high[0]) == pytest.approx((alone.low, alone.high), abs=0.1 * width)
    assert (-high[1], -low[1]) == pytest.approx((low[0], high[0]))


def test_names_of_clusters_do_not_matter():
    values = np.random.default_rng(2).normal(size=30)
    numbers = [number // 3 for number in range(30)]
    assert mean_interval(values, numbers) == mean_interval(values, [f"source {10 - n}" for n in numbers])


def test_combined_intervals_are_narrower_and_know_which_side_is_wide():
    one = Interval(0.5, 0.3, 0.6)
    found = combined_interval([one, one])
    assert found == pytest.approx((0.5, 0.5 - 0.2 / np.sqrt(2), 0.5 + 0.1 / np.sqrt(2)))
    assert combined_interval([one]) == pytest.approx(one)
    certain = combined_interval([Interval(1.0, 0.8, 1.0), Interval(0.0, 0.0, 0.2)])
    assert certain == pytest.approx((0.5, 0.4, 0.6))
