import warnings

import numpy as np
import pytest

from lpes_evo.errors import TaskError
from lpes_evo.search import example_blocks, is_worse

GROUPS = ("begin", "middle", "end")


def shares(block, groups):
    return {name: sum(groups[number] == name for number in block) for name in set(groups)}


def test_blocks_of_shared_sources_hold_whole_sources_in_their_order():
    sources = [f"text-{number // 3}" for number in range(21)]
    blocks = example_blocks(sources, GROUPS * 7, 2)
    assert [block.tolist() for block in blocks] == [
        list(range(start, min(start + 6, 21))) for start in range(0, 21, 6)
    ]
    # The examples of a source need not stand together.
    blocks = example_blocks([f"text-{number % 7}" for number in range(21)], sorted(GROUPS * 7), 2)
    assert blocks[0].tolist() == [0, 1, 7, 8, 14, 15]


@pytest.mark.parametrize("order", ["mixed", "sorted"])
def test_where_every_example_is_its_own_source_each_block_holds_each_group_equally(order):
    groups = GROUPS * 8 if order == "mixed" else sorted(GROUPS * 8)
    blocks = example_blocks([f"text-{number}" for number in range(24)], groups, 2)
    assert len(blocks) == 4
    assert all(shares(block, groups) == dict.fromkeys(GROUPS, 2) for block in blocks)


def test_uneven_groups_are_spread_over_the_blocks_and_nothing_is_lost():
    rng = np.random.default_rng(0)
    for _ in range(50):
        n = int(rng.integers(1, 40))
        sources = [f"text-{rng.integers(12)}" for _ in range(n)]
        groups = [GROUPS[rng.integers(3)] for _ in range(n)]
        blocks = example_blocks(sources, groups, int(rng.integers(1, 5)))
        assert sorted(np.concatenate(blocks).tolist()) == list(range(n))
        assert all(len(block) for block in blocks)
        homes = [{sources[number] for number in block} for block in blocks]
        assert sum(map(len, homes)) == len(set(sources))
    groups = ["begin"] * 20 + ["end"] * 5
    blocks = example_blocks([f"text-{number}" for number in range(25)], groups, 4)
    assert all(shares(block, groups) == {"begin": 4, "end": 1} for block in blocks)


@pytest.mark.parametrize(("sources", "groups", "n"), [([], [], 1), (["a"], [], 1), (["a"], ["begin"], 0)])
def test_blocks_of_nothing_are_refused(sources, groups, n):
    with pytest.raises(
        TaskError, match=f"got {len(sources)} sources, {len(groups)} groups and n_sources = {n}"
    ):
        example_blocks(sources, groups, n)


def judged(differences, how="mean", level=0.05, groups=None, reference=None):
    n = len(differences)
    reference = np.linspace(-1, 0, n) if reference is None else np.asarray(reference, dtype=float)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return is_worse(reference + differences, np.arange(n), reference, groups or ["begin"] * n, how, level)


def test_a_candidate_is_worse_once_enough_examples_say_so():
    worse = -np.array([0.1, 0.2, 0.3, 0.4, 0.5])
    # Five pairs of one sign have the p-value 1/32, four have 1/16.
    assert judged(worse)
    assert not judged(worse[:4])
    assert not judged(worse, level=0.03)
    assert not judged(-worse)
    assert not judged(np.array([-0.1, 0.2, -0.3, 0.4, -0.5]))


def test_equal_scores_and_few_ties_are_no_evidence_and_no_warning():
    assert not judged(np.zeros(20))
    assert not judged(np.array([-1.0, *np.zeros(20)]))
    assert not judged(-np.ones(9), reference=np.ones(9))
    assert judged(-np.ones(10), reference=np.ones(10))
    assert not judged(np.array([]))


def test_one_great_gain_outweighs_many_small_losses_as_in_the_mean():
    differences = np.array([-0.01 * rank for rank in range(1, 20)] + [9.0])
    assert not judged(differences)


def test_only_the_examples_scored_so_far_are_compared():
    reference = np.zeros(12)
    scored = [11, 3, 5, 7, 9]
    assert is_worse([-5, -1, -2, -3, -4], scored, reference, ["begin"] * 12)
    reference[scored] = -9
    assert not is_worse([-5, -1, -2, -3, -4], scored, reference, ["begin"] * 12)


def test_for_the_minimum_only_the_worst_group_of_the_reference_counts():
    groups = ["begin"] * 6 + ["end"] * 6
    ramp = np.linspace(0.1, 0.6, 6)
    reference = [-2.0] * 6 + [-1.0] * 6
    assert judged(np.concatenate([-ramp, ramp * 9]), "min", groups=groups, reference=reference)
    assert not judged(np.concatenate([ramp, -ramp * 9]), "min", groups=groups, reference=reference)


def test_for_the_groups_the_candidate_must_be_worse_in_each():
    groups = ["begin"] * 6 + ["end"] * 6
    ramp = np.linspace(0.1, 0.6, 6)
    assert judged(np.concatenate([-ramp, -ramp]), "groups", groups=groups)
    assert not judged(np.concatenate([-ramp, ramp / 9]), "groups", groups=groups)
    # A group of which nothing is scored yet says nothing.
    assert not is_worse(-ramp, range(6), np.zeros(12), groups, "groups")
    assert is_worse(-ramp, range(6), np.zeros(12), groups, "mean")


def test_among_equal_candidates_the_test_keeps_its_level():
    rng = np.random.default_rng(1)
    share = np.mean([judged(rng.normal(size=20)) for _ in range(1000)])
    assert 0.025 < share < 0.075


def test_every_block_of_a_mixture_holds_sources_of_every_task():
    sources = [f"a{number}" for number in range(30)] + [f"b{number}" for number in range(4)]
    tasks = ["a"] * 30 + ["b"] * 4
    blocks = example_blocks(sources, tasks, 1, tasks)
    assert sorted(np.concatenate(blocks)) == list(range(34))
    assert len(blocks) == 4
    assert all({tasks[number] for number in block} == {"a", "b"} for block in blocks)
    # Without tasks, a small kind is in some blocks alone.
    assert len(example_blocks(sources, tasks, 1)) == 30
