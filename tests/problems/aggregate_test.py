import pytest

from lpes_evo.problems import aggregate, group_of

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
