"""Distances of two sets of states: relative L2, one minus cosine, and one minus linear CKA."""

from typing import TYPE_CHECKING

from lpes_evo.accelerators import as_float64
from lpes_evo.errors import TaskError

if TYPE_CHECKING:
    import torch


def relative_l2(states: "torch.Tensor", others: "torch.Tensor") -> "torch.Tensor":
    """Return ``||y - x|| / ||x||`` of every state.

    Args:
        states: The states ``x``, ``(..., width)``.
        others: The states ``y``, ``(..., width)``; they broadcast against the first.

    Returns:
        The distances, ``(...)``, at least 0; infinite where ``x`` is zero and ``y`` is not, 0 where both are zero.
    """
    import torch

    distance = (others - states).norm(dim=-1)
    return torch.where(distance == 0, distance, distance / states.norm(dim=-1))


def cosine_distance(states: "torch.Tensor", others: "torch.Tensor") -> "torch.Tensor":
    """Return one minus the cosine of the angle between states.

    The distance is computed as half of the squared distance of the unit vectors. That is the same number, and it loses
    nothing to rounding where the angle is small.

    Args:
        states: The states, ``(..., width)``.
        others: The states they are compared with, ``(..., width)``; they broadcast against the first.

    Returns:
        The distances, ``(...)``, from 0 to 2; 0.5 where one of the states is zero.
    """
    from torch.nn.functional import normalize

    return (normalize(others, dim=-1) - normalize(states, dim=-1)).square().sum(dim=-1) / 2


class LinearCka:
    """Linear centred kernel alignment (CKA) of two sets of states that come batch by batch.

    CKA is ``||X'Y||^2 / (||X'X|| ||Y'Y||)`` in Frobenius norms, with one row for each state and columns centred
    (Kornblith et al. 2019, arXiv 1905.00414, section 3). It lies between 0 and 1, and is 1 for states that differ by a
    rotation, a reflection, a common factor or a shift. Between batches, three matrices of sums of products are kept in
    float64, of the size of the widths. The result is that of all states at once.
    """

    def __init__(self) -> None:
        self._sums: list[torch.Tensor] = []
        self._n_states = 0

    def update(self, states: "torch.Tensor", others: "torch.Tensor") -> None:
        """Add pairs of states.

        Args:
            states: States of the first set, ``(n_states, width)``.
            others: The same states in the second set, ``(..., n_states, other_width)``; leading axes hold several such
                sets.

        Raises:
            TaskError: The two sets do not hold equally many states.
        """
        _check_pairs(states, others)
        x, y = as_float64(states), as_float64(others)

        # Products of states far from the origin would lose their spread to rounding.
        if not self._sums:
            self._origins = x.mean(dim=-2), y.mean(dim=-2, keepdim=True)
        x, y = x - self._origins[0], y - self._origins[1]

        new = [x.sum(dim=-2), y.sum(dim=-2), x.mT @ x, y.mT @ y, x.mT @ y]
        self._sums = [old + more for old, more in zip(self._sums, new, strict=True)] if self._sums else new
        self._n_states += len(x)

    def distance(self) -> "torch.Tensor":
        """Return one minus the CKA of all pairs so far, ``(...)`` in float64, from 0 to 1.

        It is 0 where all states of each set are equal, and 1 where those of one set alone are equal.

        Raises:
            TaskError: There are no states yet.
        """
        if not self._n_states:
            raise TaskError("Expected states before their alignment is asked for, but there are none yet.")

        x, y, xx, yy, xy = self._sums
        xx, yy, xy = (
            products - left[..., :, None] * right[..., None, :] / self._n_states
            for products, left, right in ((xx, x, x), (yy, y, y), (xy, x, y))
        )
        return _distance(xy.square().sum(dim=(-2, -1)), xx, yy)


def cka_distance(states: "torch.Tensor", others: "torch.Tensor") -> "torch.Tensor":
    """Return one minus the linear CKA of sets of states, see `LinearCka`.

    Products are formed over widths or over states, whichever are fewer, so that they need no more memory than the
    states themselves.

    Args:
        states: States of the first set, ``(n_states, width)``.
        others: The same states in the second set, ``(..., n_states, other_width)``; leading axes hold several such
            sets.

    Returns:
        The distances, ``(...)`` in float64, from 0 to 1.

    Raises:
        TaskError: The two sets do not hold equally many states, or there are none.
    """
    _check_pairs(states, others)
    if len(states) > max(states.shape[-1], others.shape[-1]):
        alignment = LinearCka()
        alignment.update(states, others)
        return alignment.distance()

    x, y = (values - values.mean(dim=-2, keepdim=True) for values in (as_float64(states), as_float64(others)))
    xx, yy = x @ x.mT, y @ y.mT
    return _distance((xx * yy).sum(dim=(-2, -1)), xx, yy)


def _check_pairs(states: "torch.Tensor", others: "torch.Tensor") -> None:
    """Refuse sets that do not hold equally many states, or none."""
    if states.dim() != 2 or others.dim() < 2 or len(states) != others.shape[-2] or not len(states):
        raise TaskError(
            f"Expected states (n_states, width) and (..., n_states, width), as many in both and at least one, but got "
            f"{tuple(states.shape)} and {tuple(others.shape)}."
        )


def _distance(shared: "torch.Tensor", own: "torch.Tensor", other: "torch.Tensor") -> "torch.Tensor":
    """Return one minus the alignment, given ``||X'Y||^2`` and the products of each set with itself."""
    import torch

    norm, other_norm = own.norm(dim=(-2, -1)), other.norm(dim=(-2, -1))
    distance = (1 - shared / (norm * other_norm)).clamp(0.0, 1.0)

    # A set without spread is aligned with another such set, and with nothing else.
    distance = torch.where((norm == 0) | (other_norm == 0), 1.0, distance)
    return torch.where((norm == 0) & (other_norm == 0), 0.0, distance)
