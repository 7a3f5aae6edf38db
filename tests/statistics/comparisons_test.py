import numpy as np
import pytest

from lpes_evo.statistics import (
    paired_comparison,
    rank_correlation,
    unpaired_comparison,
)


def test_a_paired_comparison_knows_its_closed_forms():
    curve = np.arange(6.0)
    found = paired_comparison(curve, np.stack([curve + 1, curve + 2, curve - 1, curve]))
    assert found["value"] == pytest.approx(0.5)
    assert (found["n_more"], found["n_less"], found["n_vectors"]) == (2, 1, 4)
    # Six equal differences of one sign: the signed-rank test is exact, 2 of 2 ** 6 outcomes; two of three vectors.
    assert found["p_sources"] == pytest.approx(2 / 2**6)
    assert found["p_vectors"] == pytest.approx(1.0)
    assert found["p_value"] == found["p_vectors"]


def test_equal_vectors_are_not_told_apart():
    found = paired_comparison(np.ones(6), np.ones((3, 6)))
    assert found["p_value"] == found["p_sources"] == found["p_vectors"] == 1.0
    assert found["value"] == found["low"] == found["high"] == 0.0


def test_unrelated_arms_are_compared_over_vectors():
    first, second = np.arange(8.0)[:, None] * np.ones(5), 20 + np.arange(8.0)[:, None] * np.ones(5)
    found = unpaired_comparison(first, second)
    assert found["value"] == pytest.approx(20)
    assert found["low"] > 14
    assert found["high"] < 26
    assert found["p_value"] == pytest.approx(2 / 12870)
    assert unpaired_comparison(first, first)["p_value"] == pytest.approx(1)
    assert unpaired_comparison(first, first)["low"] < 0


def test_rank_correlations_of_monotone_pairs_are_one():
    values = np.arange(10.0)
    up, down = rank_correlation(values, values**3), rank_correlation(values, -np.exp(values))
    assert (up["value"], down["value"]) == pytest.approx((1.0, -1.0))
    assert up["low"] == up["high"] == pytest.approx(1.0)
    unrelated = rank_correlation(np.random.default_rng(0).random(30), np.random.default_rng(1).random(30))
    assert unrelated["low"] < 0 < unrelated["high"]


def test_there_is_no_rank_correlation_with_what_never_changes_or_is_too_little():
    assert rank_correlation(np.ones(9), np.arange(9.0)) is None
    assert rank_correlation(np.arange(9.0), np.ones(9)) is None
    assert rank_correlation(np.arange(3.0), np.arange(3.0)) is None
