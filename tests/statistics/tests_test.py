"""The tests of paired differences know their closed forms, and agree with each other where they ask the same."""

import numpy as np
import pytest
from scipy.stats import binomtest, wilcoxon

from lpes_evo.statistics import exchange_p, holm, sign_flip_p, sign_test_p, signed_rank_p


def test_holm_corrects_as_published():
    # Holm (1979): multiply by 4, 3, 2, 1 in ascending order, never below the one before, never above 1.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.9]) == [1.0, 1.0]


def test_the_sign_test_looks_at_the_pairs_that_differ():
    differences = np.array([1] * 9 + [-1] + [0] * 5)
    assert sign_test_p(differences) == binomtest(9, 10).pvalue
    assert sign_test_p(np.zeros(4)) == 1.0


def test_the_signed_rank_test_takes_either_side():
    differences = np.array([-3.0, -1.0, -2.0, -4.0, -5.0, 0.5])
    assert signed_rank_p(differences, "less") == wilcoxon(differences, alternative="less").pvalue
    assert signed_rank_p(differences) == pytest.approx(2 * signed_rank_p(differences, "less"))
    assert signed_rank_p(np.zeros(6)) == 1.0


def test_a_sign_flip_of_few_sources_is_exact():
    # Three sources have 8 patterns of signs, and 2 of them are as far from 0.
    assert sign_flip_p(np.ones(12), np.arange(12) % 3) == pytest.approx(0.25)
    # The sum of a single source is as far from 0 under either sign.
    assert sign_flip_p(np.ones(4), np.zeros(4, dtype=int)) == 1.0


def test_an_exchange_of_arms_asks_what_a_flip_of_signs_asks_where_the_statistic_is_a_mean():
    generator = np.random.default_rng(0)
    ours, theirs = generator.normal(0.3, 1, (40, 1)), generator.normal(0, 1, (40, 1))
    clusters = np.arange(40) // 2
    exchanged = exchange_p(lambda rows: float(rows.mean()), ours, theirs, clusters)
    assert exchanged == pytest.approx(sign_flip_p((ours - theirs)[:, 0], clusters), abs=0.03)
