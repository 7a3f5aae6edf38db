import numpy as np
import pytest

from lpes_evo.statistics import group_means, macro_average


def test_inputs_of_one_source_count_once():
    values = np.array([[1.0, 3.0, 10.0, 20.0]])
    assert group_means(values, ["b", "b", "a", "c"]).tolist() == [[2.0, 10.0, 20.0]]


def test_groups_come_in_the_order_in_which_they_first_occur_and_keep_the_other_axes():
    generator = np.random.default_rng(0)
    values, groups = generator.normal(size=(2, 3, 12)), ["z", "a", "m", "a"] * 3
    found = group_means(values, groups)
    assert found.shape == (2, 3, 3)
    for number, name in enumerate(("z", "a", "m")):
        expected = values[..., np.array(groups) == name].mean(axis=-1)
        assert found[..., number] == pytest.approx(expected)


def test_the_macro_average_gives_every_group_the_same_weight():
    assert macro_average([1.0, 1.0, 1.0, 0.0], [0, 0, 0, 4]) == 0.5
