"""Interval: a value with its limits; and the intervals that need no resampling."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import binomtest, quantile_test


class Interval(NamedTuple):
    """A value with the limits of its confidence interval.

    Attributes:
        value: The estimate.
        low: Lower limit.
        high: Upper limit.
    """

    value: float
    low: float
    high: float


def wilson_interval(n_successes: int, n_trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the limits of the Wilson interval of a proportion.

    Args:
        n_successes: Number of successes.
        n_trials: Number of trials.
        confidence: Confidence level.

    Returns:
        The lower and the upper limit.

    Raises:
        ValueError: There are no trials, or the number of successes is not between 0 and the number of trials.
    """
    if n_trials < 1 or not 0 <= n_successes <= n_trials:
        raise ValueError(
            f"Expected 0 <= n_successes <= n_trials and n_trials >= 1, but got {n_successes} of {n_trials}."
        )

    interval = binomtest(int(n_successes), int(n_trials)).proportion_ci(confidence, method="wilson")
    return float(interval.low), float(interval.high)


def order_interval(values: npt.ArrayLike, confidence: float = 0.95) -> Interval:
    """Return the median of a sample with the interval of the sign test.

    The limits are two of the values themselves (Thompson, "On confidence ranges for the median", Annals of Mathematical
    Statistics 7(3), 1936). The interval is exact and assumes nothing about the distribution, which suits a few measured
    times. At a level of 95 % it takes six values; with fewer, a limit is NaN.

    Args:
        values: The sample, ``(n,)``.
        confidence: Confidence level.

    Returns:
        The median and its limits.
    """
    sample = np.asarray(values, dtype=np.float64)
    limits = quantile_test(sample, p=0.5).confidence_interval(confidence)
    return Interval(float(np.median(sample)), float(limits.low), float(limits.high))


def combined_interval(intervals: Sequence[Interval]) -> Interval:
    """Return the mean of independent estimates with an interval made of their own intervals.

    The distance of a limit from the mean combines the squared distances of the single limits (Zou and Donner,
    "Construction of confidence limits about effect measures", Statistics in Medicine 27(10), 2008,
    doi:10.1002/sim.3095, with equal weights). The method holds up where an estimate is a proportion of 0 or 1.

    Args:
        intervals: The estimates with their intervals, at least one.

    Returns:
        The mean and its limits.
    """
    n = len(intervals)
    mean = float(np.mean([interval.value for interval in intervals]))
    below = math.hypot(*(interval.value - interval.low for interval in intervals)) / n
    above = math.hypot(*(interval.high - interval.value for interval in intervals)) / n
    return Interval(mean, mean - below, mean + above)
