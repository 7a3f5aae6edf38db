"""Comparisons of vectors of scales that met the same sources: paired, unpaired, and rank correlations.

Each returns a mapping that `json` can write, for the files of an analysis.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import mannwhitneyu, spearmanr

from lpes_evo.statistics._bootstrap import correlation_limits, median_interval, resampled_medians
from lpes_evo.statistics._tests import sign_test_p, signed_rank_p

FloatArray = npt.NDArray[np.float64]

_FEWEST_PAIRS = 4


def paired_comparison(curve: FloatArray, others: FloatArray) -> dict[str, Any]:
    """Compare the vectors of an arm with the curve on the same sources.

    There are two tests. Over sources, it is the signed-rank test of the difference between the median vector of the arm
    and the curve. Over vectors, it is the sign test of how many of them exceed the curve.

    Args:
        curve: Numbers of the curve, ``(n_sources,)``.
        others: Numbers of the vectors of the arm, ``(n_vectors, n_sources)``.

    Returns:
        The median difference ``value`` (arm minus curve) with ``low`` and ``high``, see `median_interval`; ``n_more``
        and ``n_less``, the number of vectors whose mean is above and below that of the curve, of ``n_vectors``;
        ``p_sources``, ``p_vectors`` (``None`` for a single vector), and ``p_value``, the larger of the two.
    """
    differences = others - curve
    means = differences.mean(axis=1)

    p_sources = signed_rank_p(np.median(differences, axis=0))
    p_vectors = sign_test_p(means) if len(others) > 1 else None
    return {
        **median_interval(differences)._asdict(),
        "n_more": int((means > 0).sum()),
        "n_less": int((means < 0).sum()),
        "n_vectors": len(others),
        "p_sources": p_sources,
        "p_vectors": p_vectors,
        "p_value": max(p_sources, p_vectors or 0.0),
    }


def unpaired_comparison(first: FloatArray, second: FloatArray) -> dict[str, Any]:
    """Compare two arms of unrelated vectors on the same sources.

    Args:
        first: Numbers of one arm, ``(n_vectors, n_sources)``.
        second: Numbers of the other arm, ``(n_other_vectors, n_sources)``.

    Returns:
        The difference ``value`` of the medians over vectors (second minus first), with its 95 % percentile bootstrap
        interval ``low`` to ``high`` over vectors and sources; and ``p_value`` of the Mann-Whitney test over vectors.
    """
    resampled = resampled_medians(second, stream=1) - resampled_medians(first)
    low, high = np.quantile(resampled, [0.025, 0.975])

    first_means, second_means = first.mean(axis=1), second.mean(axis=1)
    return {
        "value": float(np.median(second_means) - np.median(first_means)),
        "low": float(low),
        "high": float(high),
        "p_value": float(mannwhitneyu(second_means, first_means).pvalue),
    }


def rank_correlation(first: FloatArray, second: FloatArray, seed: int = 0) -> dict[str, float] | None:
    """Return Spearman's rank correlation with its 95 % percentile bootstrap interval.

    Args:
        first: Numbers, ``(n,)``.
        second: The numbers paired with them, ``(n,)``.
        seed: Seed of the resampling.

    Returns:
        ``value``, ``low``, ``high``, ``p_value`` (of no monotone association) and ``n``; ``None`` with fewer than four
        pairs, or where one of the two never changes.
    """
    n = len(first)
    if n < _FEWEST_PAIRS or np.ptp(first) == 0 or np.ptp(second) == 0:
        return None

    low, high = correlation_limits(first, second, seed)
    outcome = spearmanr(first, second)
    return {
        "value": float(outcome.statistic),
        "low": low,
        "high": high,
        "p_value": float(outcome.pvalue),
        "n": n,
    }
