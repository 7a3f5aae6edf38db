import numpy as np
import pytest
import torch

from lpes_evo.analysis import LinearCka, cka_distance, cosine_distance, relative_l2
from lpes_evo.errors import TaskError


def states(n_states, width, seed=0):
    return torch.randn(n_states, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rotation(width):
    return torch.linalg.qr(states(width, width, seed=9))[0]


def reference_cka(x, y):
    """CKA by its definition with centring matrices (arXiv 1905.00414, equations 3 and 4), in NumPy."""
    x, y = x.numpy(), y.numpy()
    centring = np.eye(len(x)) - 1 / len(x)

    def hsic(first, second):
        return np.trace(first @ first.T @ centring @ second @ second.T @ centring)

    return hsic(x, y) / np.sqrt(hsic(x, x) * hsic(y, y))


SHAPES = [(40, 6), (6, 40)]
"""More states than their width and fewer: the two ways in which CKA is computed."""


@pytest.mark.parametrize("shape", SHAPES)
def test_identical_states_have_no_drift_by_any_measure(shape):
    x = states(*shape)
    assert relative_l2(x, x).max() == 0
    assert cosine_distance(x, x).max() == 0
    assert cka_distance(x, x).item() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_an_orthogonal_transform_keeps_cka_and_turns_every_state(shape):
    x = states(*shape)
    y = x @ rotation(shape[1])
    assert cka_distance(x, y).item() == pytest.approx(0, abs=1e-12)
    assert cosine_distance(x, y).mean() > 0.5
    assert relative_l2(x, y).mean() > 0.5


@pytest.mark.parametrize("shape", SHAPES)
def test_a_common_factor_and_a_shift_are_seen_by_l2_alone(shape):
    x = states(*shape)
    assert relative_l2(x, 3 * x).numpy() == pytest.approx(np.full(shape[0], 2.0))
    assert cosine_distance(x, 3 * x).numpy() == pytest.approx(0, abs=1e-15)
    assert cosine_distance(x, -x).numpy() == pytest.approx(np.full(shape[0], 2.0))
    assert cka_distance(x, 3 * x + 100).item() == pytest.approx(0, abs=1e-9)


def test_the_cosine_of_a_known_angle_is_that_of_the_angle():
    x, angle = torch.tensor([[1.0, 0.0]]), torch.tensor(0.3)
    y = 5 * torch.stack([angle.cos(), angle.sin()])[None]
    assert cosine_distance(x, y).item() == pytest.approx(1 - np.cos(0.3))


@pytest.mark.parametrize("shape", SHAPES)
def test_cka_is_that_of_the_definition(shape):
    x, y = states(*shape), states(shape[0], shape[1] + 3, seed=1)
    assert cka_distance(x, y).item() == pytest.approx(1 - reference_cka(x, y), abs=1e-12)


def test_cka_of_batches_is_that_of_all_states_at_once():
    x, y = states(50, 6) + 40, states(50, 9, seed=1) - 70
    alignment = LinearCka()
    for first in range(0, 50, 7):
        alignment.update(x[first : first + 7], y[first : first + 7])
    assert alignment.distance().item() == pytest.approx(1 - reference_cka(x, y), abs=1e-10)
    assert alignment.distance().item() > 0.3


@pytest.mark.parametrize("shape", SHAPES)
def test_several_second_sets_are_compared_at_once(shape):
    x, others = states(*shape), torch.stack([states(*shape, seed=seed) for seed in (0, 1, 2)])
    alone = [cka_distance(x, other).item() for other in others]
    assert cka_distance(x, others).numpy() == pytest.approx(alone, abs=1e-12)
    assert cosine_distance(x, others).shape == relative_l2(x, others).shape == (3, shape[0])


def test_states_without_spread_are_aligned_with_their_like_alone():
    flat, spread = torch.ones(8, 3), states(8, 3).float()
    assert cka_distance(flat, 2 * flat).item() == 0
    assert cka_distance(flat, spread).item() == 1


def test_zero_states_have_no_distance_from_zero_states():
    zero = torch.zeros(2, 3)
    assert relative_l2(zero, zero).tolist() == [0, 0]
    assert relative_l2(zero, zero + 1).isinf().all()


def test_sets_of_different_numbers_of_states_are_refused():
    with pytest.raises(TaskError, match=r"but got \(5, 3\) and \(4, 3\)"):
        cka_distance(states(5, 3), states(4, 3))
    with pytest.raises(TaskError, match="there are none yet"):
        LinearCka().distance()
