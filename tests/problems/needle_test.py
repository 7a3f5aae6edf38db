import re

import numpy as np
import pytest

from lpes_evo.errors import TaskError
from lpes_evo.problems import DataRequest, NeedleTask, check_disjoint, data_hash


def draw(task=None, positions=(0.0, 0.5, 1.0), limit=2, seed=0, split="search"):
    return (task or NeedleTask()).examples(
        DataRequest(positions=positions, limit=limit, seed=seed, split=split)
    )


def test_examples_are_byte_identical_on_every_platform():
    assert data_hash(draw()) == "159bc6361d9bd3917c954aeb632df648c1ddcda7af2f70d79544c063aed34e97"


def test_the_gold_needle_stands_at_the_position_asked_for():
    for slot, position in enumerate([0.0, 1 / 7, 2 / 7, 3 / 7, 4 / 7, 5 / 7, 6 / 7, 1.0]):
        (example,) = draw(positions=[position], limit=1)
        needles = re.findall(r"The magic number for (\w+) is (\d+)\.", example.prompt)
        assert len(needles) == 8
        key = re.search(r"What is the magic number for (\w+)\?", example.prompt).group(1)
        assert needles[slot] == (key, example.answer)
        assert example.answer_prefix == f"The magic number for {key} is"


def test_keys_differ_and_numbers_have_the_digits_asked_for():
    for example in draw(NeedleTask(n_keys=20, n_digits=6), limit=5):
        needles = re.findall(r"The magic number for (\w+) is (\d+)\.", example.prompt)
        assert len({key for key, _ in needles}) == 20
        assert all(len(number) == 6 and number[0] != "0" for _, number in needles)


def test_more_filler_makes_a_longer_text_with_the_same_number_of_needles():
    (short,) = draw(positions=[0.5], limit=1)
    (long,) = draw(NeedleTask(n_filler=3), positions=[0.5], limit=1)
    assert long.prompt.count("The grass is green.") == 3 * short.prompt.count("The grass is green.") == 27
    assert long.prompt.count("magic number for") == 9


def test_splits_and_seeds_share_no_example():
    search, report = draw(limit=20), draw(limit=20, split="report")
    check_disjoint(search, report)
    check_disjoint(search, draw(limit=20, seed=1))


def test_a_further_position_leaves_the_other_examples_as_they_are():
    few, more = draw(positions=[0.0, 1.0]), draw(positions=[0.0, 0.5, 1.0])
    assert set(few) < set(more)


def test_positions_ask_different_questions_about_the_same_texts():
    examples = draw(limit=4)
    assert len({example.source for example in examples}) == 4
    assert len({example.prompt.rpartition("What is")[0] for example in examples}) == 4


def test_positions_that_mean_one_slot_ask_about_different_texts():
    examples = draw(positions=[0.5, 0.625], limit=4)
    assert len({example.prompt for example in examples}) == 8
    assert len({example.source for example in examples}) == 8


def test_disjointness_check_refuses_shared_examples():
    with pytest.raises(TaskError, match="disjoint, but 2 report examples"):
        check_disjoint(draw(), draw(positions=[0.5]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_keys": 1}, "n_keys to be an integer from 2"),
        ({"n_keys": 10_000}, "n_keys to be an integer from 2"),
        ({"n_keys": True}, "n_keys"),
        ({"n_filler": 0}, "n_filler to be an integer from 1 to 10000, but got 0"),
        ({"n_digits": 1.5}, "n_digits"),
        ({"n_filler": 10**18}, "n_filler to be an integer from 1 to 10000"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(TaskError, match=message):
        NeedleTask(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"positions": [1.5]}, r"between 0 and 1, but got 1\.5"),
        ({"positions": [float("nan")]}, "between 0 and 1, but got nan"),
        ({"positions": []}, "at least one position"),
        ({"positions": [0.0, -0.0]}, "none of them twice"),
        ({"positions": None}, "list of numbers from 0 to 1, but got None"),
        ({"positions": 0.5}, r"list of numbers from 0 to 1, but got 0\.5"),
        ({"positions": "01"}, "list of numbers from 0 to 1, but got '01'"),
        ({"positions": ["a"]}, "between 0 and 1, but got 'a'"),
        ({"positions": [10**400]}, "between 0 and 1, but got 1000"),
        ({"limit": 0}, "limit of examples to be an integer from 1 to 33333, but got 0"),
        ({"limit": 10**20}, "limit of examples to be an integer from 1 to 33333"),
        ({"limit": "a"}, "limit of examples to be an integer"),
        ({"seed": None}, "seed to be an integer .* but got None"),
        ({"seed": "a"}, "seed to be an integer .* but got 'a'"),
        ({"seed": 1.5}, r"seed to be an integer .* but got 1\.5"),
        ({"seed": True}, "seed to be an integer .* but got True"),
        ({"split": "test"}, "one of search, report, all, but got 'test'"),
    ],
)
def test_bad_draws_are_refused(options, message):
    with pytest.raises(TaskError, match=message):
        draw(**options)


def test_integers_and_floats_of_numpy_give_equal_examples():
    plain = draw(NeedleTask(n_keys=4), positions=[0.0, 0.5], seed=3)
    given = draw(
        NeedleTask(n_keys=np.int64(4)),
        positions=np.array([0.0, 0.5]),
        limit=np.int32(2),
        seed=np.int64(3),
    )
    assert data_hash(given) == data_hash(plain)
