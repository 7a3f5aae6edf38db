"""Averages over groups: the mean of each group, and the macro average that gives every group the same weight."""

from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


def group_means(values: npt.ArrayLike, groups: Sequence[Hashable]) -> FloatArray:
    """Return the mean of the values of each group.

    Args:
        values: One number for each member, ``(..., n_members)``.
        groups: The group of each member, ``(n_members,)``, such as the source that an input is made of.

    Returns:
        One mean for each group, ``(..., n_groups)``, in the order in which the groups first occur.
    """
    data = np.asarray(values, dtype=np.float64)
    order = {group: number for number, group in enumerate(dict.fromkeys(groups))}
    numbers = np.array([order[group] for group in groups])

    # Members are sorted by group once, so that each group is one slice.
    sorted_data = data[..., np.argsort(numbers, kind="stable")]
    ends = np.cumsum(np.bincount(numbers))
    return np.stack([part.mean(axis=-1) for part in np.split(sorted_data, ends[:-1], axis=-1)], axis=-1)


def macro_average(values: npt.ArrayLike, groups: Sequence[Hashable]) -> float:
    """Return the mean over groups of their means, so that every group has the same weight whatever its size.

    Args:
        values: One number for each member, ``(n_members,)``.
        groups: The group of each member, ``(n_members,)``.

    Returns:
        The macro average.
    """
    return float(group_means(values, groups).mean())
