"""Tests of paired differences, and the correction of p-values for their number. All tests are two-sided by default."""

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.stats import binomtest, permutation_test, wilcoxon

FloatArray = npt.NDArray[np.float64]

_N_PERMUTATIONS = 9999

# A statistic that is no mean has to be computed anew for every permutation.
_N_EXCHANGES = 2000


def sign_test_p(differences: npt.ArrayLike) -> float:
    """Return the p-value of the sign test of paired differences.

    Of the pairs that differ, each is equally likely to differ in either direction. For right and wrong answers this is
    McNemar's exact test.

    Args:
        differences: The paired differences, ``(n,)``.

    Returns:
        The p-value; 1 where all differences are 0.
    """
    values = np.asarray(differences)
    n_positive, n_negative = int((values > 0).sum()), int((values < 0).sum())
    n = n_positive + n_negative
    return float(binomtest(n_positive, n).pvalue) if n else 1.0


def signed_rank_p(
    differences: FloatArray, alternative: Literal["two-sided", "less", "greater"] = "two-sided"
) -> float:
    """Return the p-value of the signed-rank test (Wilcoxon, Biometrics Bulletin 1(6), 1945) of paired differences.

    Args:
        differences: The paired differences, ``(n,)``.
        alternative: ``two-sided``; or ``less`` or ``greater``, whether the differences are below or above 0.

    Returns:
        The p-value; 1 where all differences are 0.
    """
    return float(wilcoxon(differences, alternative=alternative).pvalue) if differences.any() else 1.0


def sign_flip_p(differences: FloatArray, clusters: npt.NDArray[np.intp]) -> float:
    """Return the p-value of a mean difference by a permutation test that exchanges two arms source by source.

    Args:
        differences: The paired differences, ``(n_examples,)``.
        clusters: Number of the source of each example, ``(n_examples,)``, counted from 0 without a gap.

    Returns:
        The p-value; 1 where at most one source differs, since its sum is as far from 0 under either sign.
    """
    sums = np.bincount(clusters, weights=differences)
    sums = sums[sums != 0]
    if sums.size < 2:
        return 1.0

    outcome = permutation_test(
        (sums,),
        lambda values, axis: np.sum(values, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=_N_PERMUTATIONS,
        batch=1000,
        random_state=np.random.default_rng(0),
    )
    return float(outcome.pvalue)


def exchange_p(
    statistic: Callable[[FloatArray], float],
    ours: FloatArray,
    theirs: FloatArray,
    clusters: npt.NDArray[np.intp],
) -> float:
    """Return the p-value of the difference of any statistic by a permutation test that exchanges arms by source.

    Args:
        statistic: Takes rows, ``(n, n_parts)``, and returns one number.
        ours: The numbers of one arm, ``(n_examples, n_parts)``.
        theirs: The numbers of the other arm on the same examples, ``(n_examples, n_parts)``.
        clusters: Number of the source of each example, ``(n_examples,)``, counted from 0 without a gap.

    Returns:
        The p-value.
    """
    generator = np.random.default_rng(0)
    observed = abs(statistic(ours) - statistic(theirs))

    # The observed assignment is one of the permutations.
    n_as_large = 1
    for _ in range(_N_EXCHANGES - 1):
        exchanged = generator.integers(2, size=clusters.max() + 1, dtype=bool)[clusters][:, None]
        difference = statistic(np.where(exchanged, theirs, ours)) - statistic(
            np.where(exchanged, ours, theirs)
        )
        # A difference that is smaller by rounding alone counts as equal.
        n_as_large += abs(difference) >= observed * (1 - 1e-12)
    return n_as_large / _N_EXCHANGES


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number.

    Args:
        p_values: The p-values, in any order.

    Returns:
        The corrected p-values, in the same order (Holm, "A simple sequentially rejective multiple test procedure",
        Scandinavian Journal of Statistics 6(2), 1979).
    """
    order = np.argsort(p_values)
    stepped = np.asarray(p_values)[order] * (len(p_values) - np.arange(len(p_values)))

    corrected = np.empty(len(p_values))
    corrected[order] = np.minimum(np.maximum.accumulate(stepped), 1.0)
    return [float(value) for value in corrected]
