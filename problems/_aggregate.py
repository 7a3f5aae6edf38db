"""Aggregates: fitness values from the scores of examples."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lpes_evo.statistics import group_means

SETS = ("begin", "middle", "end")
"""The three sets of a retrieval task, in the order in which their means are given."""


def group_of(position: float | None) -> str:
    """Return the set of a gold position.

    Args:
        position: The position from 0 to 1; ``None`` where there is none.

    Returns:
        ``begin`` below 1/3, ``end`` above 2/3, else ``middle``; ``all`` without a position.
    """
    if position is None:
        return "all"
    if position < 1 / 3:
        return "begin"
    return "end" if position > 2 / 3 else "middle"


def aggregate(scores: npt.ArrayLike, groups: Sequence[str], how: str = "mean") -> tuple[float, ...]:
    """Turn scores of examples into fitness values.

    Args:
        scores: One score per example, ``(n_examples,)``.
        groups: Name of the set of each example, ``(n_examples,)``.
        how: ``mean`` of the set means, so that every set counts the same whatever its size; ``min`` of the
            set means; or ``groups`` for the set means themselves, as objectives of NSGA-II.

    Returns:
        One value, or one per set: ``begin``, ``middle``, ``end``, then others in the order of their names.

    Raises:
        ValueError: There are no scores, the lengths differ, or ``how`` is unknown.
    """
    values = np.asarray(scores, dtype=np.float64)
    if values.shape != (len(groups),) or not len(groups):
        raise ValueError(
            f"Expected scores of shape (n_examples,) = ({len(groups)},) for {len(groups)} groups and at "
            f"least one example, but got {values.shape}."
        )

    by_group = dict(zip(dict.fromkeys(groups), group_means(values, groups).tolist(), strict=True))
    names = [name for name in SETS if name in by_group] + sorted(by_group.keys() - set(SETS))
    means = tuple(by_group[name] for name in names)

    if how == "mean":
        return (float(np.mean(means)),)
    if how == "min":
        return (min(means),)
    if how == "groups":
        return means
    raise ValueError(f"Expected how to be one of mean, min, groups, but got {how!r}.")
