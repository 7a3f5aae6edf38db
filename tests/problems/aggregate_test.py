import numpy as np
import pytest
from scipy.stats import norm

from lpes_evo.problems import aggregate, group_of
from lpes_evo.statistics import paired_difference, wilson_interval

SCORES = [1.0, 0.0, 0.5, 0.7, 0.2]
GROUPS = ["end", "middle", "begin", "begin", "middle"]


def test_mean_gives_every_set_the_same_weight():
    assert aggregate(SCORES, GROUPS) == pytest.approx(((1.0 + 0.1 + 0.6) / 3,))


def test_min_is_the_worst_set():
    assert aggregate(SCORES, GROUPS, "min") == pytest.approx((0.1,))


def test_groups_are_ordered_begin_middle_end_then_by_name():
    assert aggregate(SCORES, GROUPS, "groups") == pytest.approx((0.6, 0.1, 1.0))
    assert aggregate([1.0, 2.0, 3.0], ["z", "end", "a"], "groups") == (2.0, 3.0, 1.0)


def test_unknown_aggregate_is_refused():
    with pytest.raises(ValueError, match="one of mean, min, groups, but got 'max'"):
        aggregate(SCORES, GROUPS, "max")


@pytest.mark.parametrize("scores", [[1.0], [[1.0] * 5], []])
def test_scores_that_do_not_fit_the_groups_are_refused(scores):
    with pytest.raises(ValueError, match=r"shape \(n_examples,\) = \(5,\)"):
        aggregate(scores, GROUPS)


@pytest.mark.parametrize(
    ("position", "name"),
    [
        (0, "begin"),
        (0.33, "begin"),
        (1 / 3, "middle"),
        (0.5, "middle"),
        (2 / 3, "middle"),
        (0.67, "end"),
        (1, "end"),
    ],
)
def test_positions_fall_into_three_sets(position, name):
    assert group_of(position) == name


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
