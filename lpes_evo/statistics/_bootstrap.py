"""Percentile bootstraps: of means, of medians, and of any statistic, with examples of one source drawn together.

Examples that are made of one source are not independent. A bootstrap therefore draws whole sources, which are called
clusters here, and not single examples. Every function has a fixed seed, so that equal data give equal limits.
"""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from lpes_evo.statistics._intervals import Interval

FloatArray = npt.NDArray[np.float64]

_TAILS = (0.025, 0.975)

# A mean is cheap to resample; a median or a function of the user is not.
_N_RESAMPLES_OF_MEANS = 10_000
_N_RESAMPLES = 2000


def mean_interval(
    values: npt.ArrayLike,
    clusters: Sequence[str] | Sequence[int] | None = None,
    *,
    confidence: float = 0.95,
    n_resamples: int = _N_RESAMPLES_OF_MEANS,
    seed: int = 0,
) -> Interval:
    """Return the mean over examples with its percentile bootstrap interval.

    Args:
        values: One value for each example, ``(n_examples,)``; booleans count as 0 and 1.
        clusters: The source of each example, ``(n_examples,)``. Examples of one source are drawn together. With
            ``None`` every example is a source of its own.
        confidence: Confidence level.
        n_resamples: Number of bootstrap samples.
        seed: Seed of the resampling; the global state of numpy is not touched.

    Returns:
        The mean and the limits of its interval.

    Raises:
        ValueError: There are no values, the values have more than one axis, or there is not one cluster for each value.
    """
    data = np.asarray(values, dtype=np.float64)
    if data.ndim != 1 or not data.size or (clusters is not None and len(clusters) != data.size):
        raise ValueError(
            f"Expected values of shape (n_examples,) with n_examples >= 1 and a cluster for each, but got "
            f"{data.shape} and {None if clusters is None else len(clusters)} clusters."
        )

    _, numbers = np.unique(np.arange(data.size) if clusters is None else clusters, return_inverse=True)
    sums, sizes = np.bincount(numbers, weights=data), np.bincount(numbers)

    # To draw how often each distinct cluster occurs is the same bootstrap, and it needs memory for the few distinct
    # sums of right answers instead of memory for every cluster.
    distinct, counts = np.unique(np.stack([sums, sizes], axis=1), axis=0, return_counts=True)
    draws = np.random.default_rng(seed).multinomial(len(sums), counts / len(sums), size=n_resamples)
    resampled = (draws @ distinct[:, 0]) / (draws @ distinct[:, 1])

    tail = (1 - confidence) / 2
    low, high = np.quantile(resampled, [tail, 1 - tail])
    return Interval(float(data.mean()), float(low), float(high))


def paired_difference(
    first: npt.ArrayLike,
    second: npt.ArrayLike,
    clusters: Sequence[str] | Sequence[int] | None = None,
    *,
    confidence: float = 0.95,
) -> Interval:
    """Return the mean of ``first - second`` over paired examples with its percentile bootstrap interval.

    Args:
        first: One value for each example, ``(n_examples,)``; booleans count as 0 and 1.
        second: Values of the same examples, ``(n_examples,)``.
        clusters: The source of each example, see `mean_interval`.
        confidence: Confidence level.

    Returns:
        The mean difference and the limits of its interval.

    Raises:
        ValueError: The arrays are empty, differ in shape or have more than one axis, or there is not one cluster for
            each example.
    """
    ours, theirs = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if ours.ndim != 1 or ours.shape != theirs.shape or not ours.size:
        raise ValueError(
            f"Expected two arrays of one shape (n_examples,) with n_examples >= 1, but got {ours.shape} and "
            f"{theirs.shape}."
        )

    return mean_interval(ours - theirs, clusters, confidence=confidence)


def column_limits(table: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the limits of 95 % percentile bootstrap intervals of the mean over rows, for each column.

    All columns are resampled with the same draws of rows. The intervals hold column by column, not for all of them at
    once.

    Args:
        table: The values, ``(n_rows, n_columns)``, such as the fitness of each search at each cost.

    Returns:
        The lower and the upper limits, ``(n_columns,)`` each.
    """
    counts = _counts(len(table), _N_RESAMPLES_OF_MEANS)
    low, high = np.quantile(counts @ table / len(table), _TAILS, axis=0)
    return low, high


def median_interval(values: npt.ArrayLike, seed: int = 0) -> Interval:
    """Return the median over vectors of the mean over sources, with its 95 % percentile bootstrap interval.

    Vectors and sources are drawn anew, both at once, since each vector met each source. The interval is not too narrow
    (Owen, "The pigeonhole bootstrap", Annals of Applied Statistics 1(2), 2007). With one vector only the sources are
    drawn; with one source, or a plain sample, only the vectors.

    Args:
        values: One number for each vector and source, ``(n_vectors, n_sources)``, or a plain sample, ``(n_vectors,)``.
        seed: Seed of the resampling.

    Returns:
        The median and the limits of its interval.
    """
    data = np.asarray(values, dtype=np.float64)
    table = data[:, None] if data.ndim == 1 else data

    low, high = np.quantile(resampled_medians(table, seed), _TAILS)
    return Interval(float(np.median(table.mean(axis=1))), float(low), float(high))


def resampled_medians(table: FloatArray, seed: int = 0, stream: int = 0) -> FloatArray:
    """Return bootstrap samples of the median over vectors of the mean over sources.

    Args:
        table: One number for each vector and source, ``(n_vectors, n_sources)``.
        seed: Seed of the resampling; equal seeds draw the same sources.
        stream: Number of the stream that vectors are drawn from, one for each of several unrelated tables.

    Returns:
        The medians, ``(n_resamples,)``.
    """
    n_vectors, n_sources = table.shape
    means = table @ _counts(n_sources, _N_RESAMPLES, seed).T / n_sources

    drawn = np.random.default_rng([seed, stream]).integers(n_vectors, size=(n_vectors, _N_RESAMPLES))
    medians: FloatArray = np.median(np.take_along_axis(means, drawn, axis=0), axis=0)
    return medians


def statistic_interval(
    statistic: Callable[[FloatArray], float],
    rows: FloatArray,
    clusters: npt.NDArray[np.intp],
    *,
    n_resamples: int = _N_RESAMPLES,
) -> Interval:
    """Return any statistic of rows with its 95 % percentile bootstrap interval over clusters.

    Args:
        statistic: Takes rows, ``(n, n_parts)``, and returns one number. It is computed anew for every resample.
        rows: The numbers of each example, ``(n_examples, n_parts)``.
        clusters: Number of the source of each example, ``(n_examples,)``, counted from 0 without a gap.
        n_resamples: Number of bootstrap samples.

    Returns:
        The statistic of all rows and the limits of its interval.
    """
    members = np.split(np.argsort(clusters, kind="stable"), np.cumsum(np.bincount(clusters))[:-1])
    generator = np.random.default_rng(0)

    resampled = []
    for _ in range(n_resamples):
        drawn = generator.integers(len(members), size=len(members))
        resampled.append(statistic(rows[np.concatenate([members[number] for number in drawn])]))

    low, high = np.quantile(resampled, _TAILS)
    return Interval(float(statistic(rows)), float(low), float(high))


def correlation_limits(first: FloatArray, second: FloatArray, seed: int = 0) -> tuple[float, float]:
    """Return the limits of the 95 % percentile bootstrap interval of Spearman's rank correlation.

    Args:
        first: Numbers, ``(n,)``.
        second: The numbers paired with them, ``(n,)``.
        seed: Seed of the resampling.

    Returns:
        The lower and the upper limit.
    """
    from scipy.stats import rankdata

    n = len(first)
    drawn = np.random.default_rng(seed).integers(n, size=(_N_RESAMPLES, n))
    ranks = [rankdata(values[drawn], axis=1) for values in (first, second)]
    x, y = (entry - entry.mean(axis=1, keepdims=True) for entry in ranks)

    # A resample in which one of the two never changes has no correlation.
    norms = np.sqrt((x**2).sum(axis=1) * (y**2).sum(axis=1))
    usable = norms > 0
    low, high = np.quantile((x * y).sum(axis=1)[usable] / norms[usable], _TAILS)
    return float(low), float(high)


def _counts(n: int, n_resamples: int, seed: int = 0) -> npt.NDArray[np.int64]:
    """Return how often each of ``n`` members occurs in each resample, ``(n_resamples, n)``."""
    return np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=n_resamples)
