"""Statistics of an evaluation: headline scores with intervals, and paired differences with significance tests."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lpes_evo.evals._results import ArmResult, Difference, Row
from lpes_evo.problems import Headline
from lpes_evo.statistics import (
    exchange_p,
    mean_interval,
    paired_difference,
    sign_flip_p,
    sign_test_p,
    statistic_interval,
    wilson_interval,
)

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ScoredExample:
    """The score of one example under one arm.

    Attributes:
        id: Identity of the example.
        position: Gold position; ``None`` where the task has none.
        source: Material of the example.
        score: The numbers of the metric, ``(n_parts,)``.
    """

    id: str
    position: float | None
    source: str
    score: tuple[float, ...]


def summarise_arm(
    headline: Headline | None,
    scored: Sequence[ScoredExample],
    base: Sequence[ScoredExample] | None,
    *,
    n_failed: int,
    n_in_smaller_batches: int,
) -> ArmResult:
    """Condense the scores of an arm, overall and by gold position.

    Args:
        headline: Function that condenses scores, see `lpes_evo.problems.headline_of`.
        scored: Scores of the examples the arm answered, at least one.
        base: Scores of the untouched model; ``None`` where the arm is that model.
        n_failed: Examples without an answer.
        n_in_smaller_batches: Examples answered in smaller batches than planned.

    Returns:
        The result.

    Raises:
        TaskError: The headline of the task fails on these scores, or on a part or a resample of them.
    """
    positions = sorted({example.position for example in scored if example.position is not None})

    return ArmResult(
        overall=_row(headline, None, scored, base),
        positions=[
            _row(
                headline,
                position,
                [example for example in scored if example.position == position],
                base and [example for example in base if example.position == position],
            )
            for position in positions
        ],
        n_failed=n_failed,
        n_in_smaller_batches=n_in_smaller_batches,
    )


def _row(
    headline: Headline | None,
    position: float | None,
    scored: Sequence[ScoredExample],
    base: Sequence[ScoredExample] | None,
) -> Row:
    scores = _matrix(scored)
    score, low, high, interval = score_interval(headline, scores, [example.source for example in scored])
    return Row(
        position=position,
        n=len(scored),
        score=score,
        low=low,
        high=high,
        interval=interval,
        difference=None if base is None else difference(headline, scored, base),
    )


def score_interval(
    headline: Headline | None, scores: FloatArray, sources: Sequence[str]
) -> tuple[float, float, float, str]:
    """Return the headline score with its 95 % interval.

    Wilson's interval where scores are 0 or 1 (or 0 or 100) and no two examples share a source, and over sources where
    all of them are equal; elsewhere the percentile bootstrap over sources, of the headline itself where it is no mean.
    Examples that all come from one source are resampled one by one; their interval says nothing about other material.

    Args:
        headline: Function that condenses scores, see `summarise_arm`.
        scores: Scores of the examples, ``(n_examples, n_parts)``.
        sources: Material of each example, ``(n_examples,)``.

    Returns:
        Score, lower and upper limit, and how the interval was made.
    """
    clusters, kind = _clusters(sources)
    first = scores[:, 0]
    if headline is not None:
        return *statistic_interval(headline, scores, clusters), f"bootstrap over {kind}"
    # Scores in percent are binary too.
    unit = 100.0 if np.isin(first, (0.0, 100.0)).all() and first.any() else 1.0
    n_sources = len(set(sources))
    if _is_binary(first / unit) and n_sources == len(sources):
        low, high = wilson_interval(round(first.sum() / unit), n_sources)
        return float(first.mean()), unit * low, unit * high, "Wilson"
    if _is_binary(first / unit) and len(set(first)) == 1:
        # Resampling equal scores would make a certainty of a few of them.
        low, high = wilson_interval(n_sources if first[0] else 0, n_sources)
        return float(first.mean()), unit * low, unit * high, f"Wilson over {kind}"
    return *mean_interval(first, clusters.tolist()), f"bootstrap over {kind}"


def difference(
    headline: Headline | None, scored: Sequence[ScoredExample], base: Sequence[ScoredExample]
) -> Difference | None:
    """Compare two arms on the examples that both answered.

    The interval is the paired percentile bootstrap over sources. The test is McNemar's, exact, where scores are 0 or
    1 and no two examples share a source; elsewhere a permutation test that exchanges the arms source by source.

    Args:
        headline: Function that condenses scores, see `summarise_arm`.
        scored: Scores of the arm.
        base: Scores of the arm it is compared with.

    Returns:
        The difference; ``None`` where no example was answered by both.
    """
    by_id = {example.id: example for example in base}
    pairs = [(example, by_id[example.id]) for example in scored if example.id in by_id]
    if not pairs:
        return None
    sources = [example.source for example, _ in pairs]
    clusters, kind = _clusters(sources)
    ours, theirs = (_matrix(side) for side in zip(*pairs, strict=True))
    test = f"permutation over {kind}"
    if headline is not None:
        n_parts = ours.shape[1]

        def contrast(rows: FloatArray) -> float:
            return headline(rows[:, :n_parts]) - headline(rows[:, n_parts:])

        both = np.concatenate([ours, theirs], axis=1)
        value, low, high = statistic_interval(contrast, both, clusters)
        p_value = exchange_p(headline, ours, theirs, clusters)
    else:
        value, low, high = paired_difference(ours[:, 0], theirs[:, 0], clusters.tolist())
        if _is_binary(ours[:, 0]) and _is_binary(theirs[:, 0]) and len(set(sources)) == len(sources):
            p_value, test = sign_test_p(ours[:, 0] - theirs[:, 0]), "McNemar, exact"
        else:
            p_value = sign_flip_p(ours[:, 0] - theirs[:, 0], clusters)
    return Difference(value=value, low=low, high=high, p_value=p_value, test=test, n=len(pairs))


def _matrix(scored: Sequence[ScoredExample]) -> FloatArray:
    return np.array([example.score for example in scored], dtype=np.float64)


def _is_binary(values: FloatArray) -> bool:
    return bool(np.isin(values, (0.0, 1.0)).all())


def _clusters(sources: Sequence[str]) -> tuple[npt.NDArray[np.intp], str]:
    """Return the number of the cluster of each example, and what clusters are."""
    _, numbers = np.unique(list(sources), return_inverse=True)
    if numbers.max() == 0:
        return np.arange(len(numbers)), "examples"
    return numbers, "sources"
