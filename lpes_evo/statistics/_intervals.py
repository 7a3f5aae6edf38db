"""Confidence intervals of proportions, of means over examples, and of paired differences."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.stats import binomtest


def wilson_interval(n_successes: int, n_trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the Wilson interval of a proportion.

    Args:
        n_successes: Number of successes.
        n_trials: Number of trials.
        confidence: Confidence level.

    Returns:
        The lower and the upper limit.

    Raises:
        ValueError: There are no trials, or the successes do not lie between 0 and their number.
    """
    if n_trials < 1 or not 0 <= n_successes <= n_trials:
        raise ValueError(
            f"Expected 0 <= n_successes <= n_trials and n_trials >= 1, but got {n_successes} of {n_trials}."
        )
    interval = binomtest(int(n_successes), int(n_trials)).proportion_ci(confidence, method="wilson")
    return float(interval.low), float(interval.high)


def mean_interval(
    values: npt.ArrayLike,
    clusters: Sequence[str] | None = None,
    *,
    confidence: float = 0.95,
    n_resamples: int = 10_000,
    seed: int = 0,
) -> tuple[float, float, float]:
    """Return the mean over examples with its percentile bootstrap interval.

    Args:
        values: One value per example, ``(n_examples,)``; booleans count as 0 and 1.
        clusters: Name of what each example is made of, ``(n_examples,)``. Examples of one cluster are drawn
            together, since they are not independent; each is its own cluster when ``None``.
        confidence: Confidence level.
        n_resamples: Bootstrap samples.
        seed: Seed of the resampling; numpy's global state is not touched.

    Returns:
        The mean, and the lower and the upper limit of its interval.

    Raises:
        ValueError: There are no values, they have more than one axis, or not one cluster for each.
    """
    data = np.asarray(values, dtype=np.float64)
    if data.ndim != 1 or not data.size or (clusters is not None and len(clusters) != data.size):
        raise ValueError(
            f"Expected values of shape (n_examples,) with n_examples >= 1 and a cluster for each, but got "
            f"{data.shape} and {None if clusters is None else len(clusters)} clusters."
        )
    _, numbers = np.unique(np.arange(data.size) if clusters is None else list(clusters), return_inverse=True)
    sums, sizes = np.bincount(numbers, weights=data), np.bincount(numbers)
    # Drawing how often each distinct cluster occurs is the bootstrap itself, and needs memory for the few
    # distinct sums of accuracies instead of for every cluster.
    distinct, counts = np.unique(np.stack([sums, sizes], axis=1), axis=0, return_counts=True)
    draws = np.random.default_rng(seed).multinomial(len(sums), counts / len(sums), size=n_resamples)
    tails = (1 - confidence) / 2
    low, high = np.quantile((draws @ distinct[:, 0]) / (draws @ distinct[:, 1]), [tails, 1 - tails])
    return float(data.mean()), float(low), float(high)


def paired_difference(
    first: npt.ArrayLike,
    second: npt.ArrayLike,
    clusters: Sequence[str] | None = None,
    *,
    confidence: float = 0.95,
) -> tuple[float, float, float]:
    """Return the mean of ``first - second`` over paired examples with its percentile bootstrap interval.

    Args:
        first: One value per example, ``(n_examples,)``; booleans count as 0 and 1.
        second: Values of the same examples, ``(n_examples,)``.
        clusters: What each example is made of, see `mean_interval`.
        confidence: Confidence level.

    Returns:
        The mean difference, and the lower and the upper limit of its interval.

    Raises:
        ValueError: The arrays are empty, differ in shape, have more than one axis, or not one cluster for each.
    """
    ours, theirs = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if ours.ndim != 1 or ours.shape != theirs.shape or not ours.size:
        raise ValueError(
            f"Expected two arrays of one shape (n_examples,) with n_examples >= 1, but got {ours.shape} and "
            f"{theirs.shape}."
        )
    return mean_interval(ours - theirs, clusters, confidence=confidence)
