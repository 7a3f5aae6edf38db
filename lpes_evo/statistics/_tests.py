"""Intervals and tests for vectors of scales that were tried on the same inputs."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

_N_RESAMPLES = 2000


def by_source(values: FloatArray, sources: Sequence[str]) -> FloatArray:
    """Return means over the inputs of each source.

    Args:
        values: One number for each input, ``(..., n_inputs)``.
        sources: What each input is made of, ``(n_inputs,)``.

    Returns:
        One number for each source, ``(..., n_sources)``, in the order in which sources first come.
    """
    order = {source: number for number, source in enumerate(dict.fromkeys(sources))}
    numbers = np.array([order[source] for source in sources])
    return np.stack([values[..., numbers == number].mean(axis=-1) for number in order.values()], axis=-1)


def median_interval(values: FloatArray, seed: int = 0) -> dict[str, float]:
    """Return the median over vectors of the mean over sources, with its 95 % interval.

    The interval is the percentile bootstrap that draws vectors and sources anew, both at once, since each vector met
    each source; it is not too narrow (Owen 2007, The pigeonhole bootstrap). With one vector only sources are drawn.

    Args:
        values: One number for each vector and source, ``(n_vectors, n_sources)``.
        seed: Seed of the resampling.

    Returns:
        ``value``, ``low`` and ``high``.
    """
    low, high = np.quantile(_resampled_medians(values, seed), [0.025, 0.975])
    return {"value": float(np.median(values.mean(axis=1))), "low": float(low), "high": float(high)}


def _resampled_medians(values: FloatArray, seed: int, stream: int = 0) -> FloatArray:
    """Return bootstrap medians over vectors of means over sources, ``(n_resamples,)``.

    Equal seeds draw the same sources; unrelated arms draw their vectors from different streams.
    """
    n_vectors, n_sources = values.shape
    generator = np.random.default_rng(seed)
    counts = generator.multinomial(n_sources, np.full(n_sources, 1 / n_sources), size=_N_RESAMPLES)
    means = values @ counts.T / n_sources
    drawn = np.random.default_rng([seed, stream]).integers(n_vectors, size=(n_vectors, _N_RESAMPLES))
    medians: FloatArray = np.median(np.take_along_axis(means, drawn, axis=0), axis=0)
    return medians


def signed_rank_p(differences: FloatArray) -> float:
    """Return the two-sided p-value of Wilcoxon's signed-rank test of paired differences ``(n,)``; 1 if all are 0."""
    from scipy.stats import wilcoxon

    return float(wilcoxon(differences).pvalue) if differences.any() else 1.0


def paired_comparison(curve: FloatArray, others: FloatArray) -> dict[str, Any]:
    """Compare an arm with the curve on the same sources.

    Two tests, both two-sided: over sources, Wilcoxon's signed-rank test of the difference between the arm's median
    vector and the curve; over vectors, the sign test of how many of them exceed the curve.

    Args:
        curve: Numbers of the curve, ``(n_sources,)``.
        others: Numbers of the arm's vectors, ``(n_vectors, n_sources)``.

    Returns:
        The median difference ``value`` (arm minus curve) with ``low`` and ``high``, see `median_interval`; ``n_more``
        and ``n_less``, the vectors whose mean is above and below the curve's, of ``n_vectors``; ``p_sources``,
        ``p_vectors`` (``None`` for a single vector), and ``p_value``, the larger of the two.
    """
    from scipy.stats import binomtest

    differences = others - curve
    means = differences.mean(axis=1)
    n_more, n_less = int((means > 0).sum()), int((means < 0).sum())
    p_sources = signed_rank_p(np.median(differences, axis=0))
    p_vectors = None
    if len(others) > 1:
        p_vectors = float(binomtest(n_more, n_more + n_less).pvalue) if n_more + n_less else 1.0
    return {
        **median_interval(differences),
        "n_more": n_more,
        "n_less": n_less,
        "n_vectors": len(others),
        "p_sources": p_sources,
        "p_vectors": p_vectors,
        "p_value": max(p_sources, p_vectors or 0.0),
    }


def unpaired_comparison(first: FloatArray, second: FloatArray) -> dict[str, Any]:
    """Compare two arms of unrelated vectors on the same sources.

    Args:
        first: Numbers of one arm, ``(n_vectors, n_sources)``.
        second: Numbers of the other, ``(n_other_vectors, n_sources)``.

    Returns:
        The difference ``value`` of the medians over vectors (second minus first), with its 95 % percentile bootstrap
        interval ``low`` to ``high`` over vectors and sources; and ``p_value`` of the Mann-Whitney test over vectors,
        two-sided.
    """
    from scipy.stats import mannwhitneyu

    resampled = _resampled_medians(second, 0, stream=1) - _resampled_medians(first, 0)
    low, high = np.quantile(resampled, [0.025, 0.975])
    first_means, second_means = first.mean(axis=1), second.mean(axis=1)
    return {
        "value": float(np.median(second_means) - np.median(first_means)),
        "low": float(low),
        "high": float(high),
        "p_value": float(mannwhitneyu(second_means, first_means).pvalue),
    }


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number by Holm's method (1979)."""
    order = np.argsort(p_values)
    stepped = np.asarray(p_values)[order] * (len(p_values) - np.arange(len(p_values)))
    corrected = np.empty(len(p_values))
    corrected[order] = np.minimum(np.maximum.accumulate(stepped), 1.0)
    return [float(value) for value in corrected]


def rank_correlation(first: FloatArray, second: FloatArray, seed: int = 0) -> dict[str, float] | None:
    """Return Spearman's rank correlation with its 95 % percentile bootstrap interval.

    Args:
        first: Numbers, ``(n,)``.
        second: Numbers that belong to them, ``(n,)``.
        seed: Seed of the resampling.

    Returns:
        ``value``, ``low``, ``high``, ``p_value`` (of no monotone association) and ``n``; ``None`` with fewer than four
        pairs, or where one of the two never changes.
    """
    from scipy.stats import rankdata, spearmanr

    n = len(first)
    if n < 4 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return None
    drawn = np.random.default_rng(seed).integers(n, size=(_N_RESAMPLES, n))
    ranks = [rankdata(values[drawn], axis=1) for values in (first, second)]
    x, y = (entry - entry.mean(axis=1, keepdims=True) for entry in ranks)
    norms = np.sqrt((x**2).sum(axis=1) * (y**2).sum(axis=1))
    # A resample in which one of the two never changes has no correlation.
    usable = norms > 0
    low, high = np.quantile((x * y).sum(axis=1)[usable] / norms[usable], [0.025, 0.975])
    outcome = spearmanr(first, second)
    return {
        "value": float(outcome.statistic),
        "low": float(low),
        "high": float(high),
        "p_value": float(outcome.pvalue),
        "n": n,
    }
