import random
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from lpes_evo.operators import CurveSpace, bernstein, de_casteljau, init_random_walk, invert


def exact_value(coefficients, t):
    """De Casteljau's scheme in exact fractions."""
    level = [Fraction(coefficient) for coefficient in coefficients]
    t = Fraction(t)
    while len(level) > 1:
        level = [(1 - t) * left + t * right for left, right in pairwise(level)]
    return level[0]


def random_points(n_layers, n_points, n, x_step):
    space = CurveSpace(n_layers, n_points, x_step=x_step)
    random.seed(5)
    return np.array([init_random_walk(space) for _ in range(n)])


@pytest.mark.parametrize("n_points", [2, 3, 4, 8, 16, 32])
def test_bernstein_and_de_casteljau_agree(n_points):
    generator = np.random.default_rng(n_points)
    t = np.concatenate([[0.0, 1.0], generator.random(200)])
    for _ in range(20):
        coefficients = generator.uniform(-2, 2, n_points)
        np.testing.assert_allclose(
            bernstein(t, n_points) @ coefficients, de_casteljau(coefficients, t), rtol=0, atol=1e-12
        )


def test_bernstein_weights_are_a_partition_of_one():
    weights = bernstein(np.linspace(0, 1, 101), 6)
    assert weights.shape == (101, 6)
    assert (weights >= 0).all()
    np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-14)
    np.testing.assert_array_equal(weights[[0, -1]], np.eye(6)[[0, -1]])


def test_both_take_scalars():
    assert bernstein(0.5, 3).tolist() == [0.25, 0.5, 0.25]
    assert de_casteljau([1.0, 2.0, 5.0], 0.5) == 2.5


@pytest.mark.parametrize("x_step", [1, None])
@pytest.mark.parametrize("n_points", [2, 3, 4, 8])
def test_the_inversion_is_exact_to_1e_13(n_points, x_step):
    points = random_points(12, n_points, 25, x_step)
    margin = Fraction(1, 10**13)
    for x, row in zip(points[..., 0], invert(points[..., 0], 12), strict=True):
        assert row[0] == 0
        assert row[-1] == 1
        for layer, t in list(enumerate(row.tolist()))[1:-1]:
            assert exact_value(x, t - margin) <= layer <= exact_value(x, t + margin)


@pytest.mark.parametrize(
    "x",
    [
        [0, 0, 0, 31],
        [0, 31, 31, 31],
        [0, 0, 31, 31],
        [0, 15, 15, 31],
        [0, 0, 0, 0, 0, 0, 0, 31],
        [0, 31, 31, 31, 31, 31, 31, 31],
        [0, 15, 15, 15, 15, 15, 15, 31],
        [0, 1e-12, 1e-12, 31],
        [0, 31 - 1e-12, 31, 31],
    ],
)
def test_flat_ends_and_repeated_x_are_inverted(x):
    t = invert(np.array([x], dtype=float), 32)[0]
    assert (np.diff(t) > 0).all()
    margin = Fraction(1, 10**13)
    for layer in range(1, 31):
        assert exact_value(x, t[layer] - margin) <= layer <= exact_value(x, t[layer] + margin)


def test_equally_spaced_x_give_equally_spaced_t():
    t = invert(np.array([[0.0, 5.0, 10.0, 15.0]]), 16)
    np.testing.assert_allclose(t[0], np.arange(16) / 15, atol=1e-15)


def test_one_layer_is_read_at_the_first_point():
    assert invert(np.zeros((2, 4)), 1).tolist() == [[0.0], [0.0]]
    assert CurveSpace(1).decode([[(0, 1.1), (0, 1.2), (0, 1.3), (0, 1.4)]]).tolist() == [[1.1]]


def test_two_layers_are_the_end_points():
    decoded = CurveSpace(2).decode([[(0, 1.1), (0, 1.2), (1, 1.3), (1, 1.4)]])
    assert decoded.tolist() == [[1.1, 1.4]]


@pytest.mark.parametrize("n_points", [2, 4, 8, 32])
def test_decoding_agrees_with_de_casteljau(n_points):
    points = random_points(20, n_points, 50, 1)
    values = CurveSpace(20, n_points).decode(points)
    t = invert(points[..., 0], 20)
    for row in range(50):
        np.testing.assert_allclose(de_casteljau(points[row, :, 1], t[row]), values[row], rtol=0, atol=1e-12)
