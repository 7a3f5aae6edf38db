"""Racing: the blocks in which examples are scored, and the test that drops a candidate as worse than a parent.

The candidates of a race (Maron and Moore, "Hoeffding races", NeurIPS 6, 1994) are scored on more and more examples, the
same for all, and leave it once a test says that they are worse; in evolutionary computation, see Birattari et al., "A
racing algorithm for configuring metaheuristics", GECCO 2002. The test here is the signed-rank test for paired
samples (Wilcoxon, "Individual comparisons by ranking methods", Biometrics Bulletin 1(6), 1945). It is repeated after
every block, and examples that share a source are not independent, so its level is a setting of a heuristic: over a
whole race, the chance of losing a candidate that is no worse can be larger.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lpes_evo.errors import TaskError
from lpes_evo.statistics import signed_rank_p

_MIN_TIED = 10


def example_blocks(
    sources: Sequence[str], groups: Sequence[str], n_sources: int, tasks: Sequence[str] | None = None
) -> list[npt.NDArray[np.int64]]:
    """Divide examples into the blocks in which every candidate is scored.

    Examples of one source stay together, because they can share a forward pass. Sources are dealt to the blocks kind by
    kind, where the kind of a source is the set of groups of its examples. If every source has examples of all groups,
    there is one kind; if every example is its own source, there is one kind for each group. So the groups are as even
    in every block as they are in the whole.

    Args:
        sources: Identity of what each example was made from, ``(n_examples,)``.
        groups: Name of the set of each example, ``(n_examples,)``.
        n_sources: Sources of the most frequent kind in a block; other kinds are spread evenly over the blocks.
        tasks: Name of the task of each example, ``(n_examples,)``. With several tasks the blocks are so few that the
            smallest task has sources enough for them, because a block without it would say nothing of a mixture.

    Returns:
        The example numbers of each block, ascending within it; every number from 0 to n_examples - 1 is in one block.

    Raises:
        TaskError: There are no examples, the lengths differ, or ``n_sources`` is below 1.
    """
    if not sources or len(sources) != len(groups) or n_sources < 1:
        raise TaskError(
            f"Expected one source and one group for each of at least one example and n_sources >= 1, "
            f"but got {len(sources)} sources, {len(groups)} groups and n_sources = {n_sources}."
        )

    examples: dict[str, list[int]] = {}
    for number, source in enumerate(sources):
        examples.setdefault(source, []).append(number)
    kinds: dict[frozenset[str], list[str]] = {}
    for source, numbers in examples.items():
        kinds.setdefault(frozenset(groups[number] for number in numbers), []).append(source)

    n_rounds = max(map(len, kinds.values()))
    if tasks is not None:
        rounds_of: dict[str, int] = {}
        for members in kinds.values():
            task = tasks[examples[members[0]][0]]
            rounds_of[task] = max(rounds_of.get(task, 0), len(members))
        n_sources *= -(-n_rounds // min(rounds_of.values()))

    blocks: list[list[int]] = [[] for _ in range(-(-n_rounds // n_sources))]
    for members in kinds.values():
        for rank, source in enumerate(members):
            # The middle of its share of the rounds: rank itself for the most frequent kind.
            place = (2 * rank + 1) * n_rounds // (2 * len(members))
            blocks[place // n_sources] += examples[source]
    return [np.array(sorted(block), dtype=np.int64) for block in blocks]


def is_worse(
    scores: npt.ArrayLike,
    scored: npt.ArrayLike,
    reference: npt.ArrayLike,
    groups: Sequence[str],
    how: str = "mean",
    level: float = 0.05,
    weights: npt.ArrayLike | None = None,
) -> bool:
    """Return whether a candidate is worse than a reference, by a one-sided test on the examples scored so far.

    The aggregate decides which examples are compared. For ``mean`` these are all examples. For ``min`` these are the
    examples of the group in which the reference has its minimum, because a candidate that is worse there has a smaller
    minimum. For ``groups`` the candidate has to be worse in each group, so that the reference dominates it. In every
    comparison the mean difference must be negative as well, because the fitness is a mean and the signed-rank test
    does not look at it.

    Args:
        scores: Finite scores of the candidate, ``(n_scored,)``.
        scored: Numbers of the examples they belong to, ``(n_scored,)``.
        reference: Finite scores of the reference, ``(n_examples,)``.
        groups: Name of the set of each example, ``(n_examples,)``.
        how: The aggregate, see `lpes_evo.problems.aggregate`.
        level: Largest p-value that counts as worse.
        weights: Weight of each example in the fitness, ``(n_examples,)``, by which its difference is multiplied;
            ``None`` where all count alike.

    Returns:
        The answer; ``False`` while there are too few examples for the level.
    """
    numbers = np.asarray(scored, dtype=np.int64)
    full = np.asarray(reference, dtype=np.float64)
    differences = np.asarray(scores, dtype=np.float64) - full[numbers]
    if weights is not None:
        # What is symmetric about zero stays so, and now ranks and mean weigh as the fitness does.
        differences = differences * np.asarray(weights, dtype=np.float64)[numbers]
    if how == "mean":
        return _are_below_zero(differences, level)

    labels = np.asarray(groups)
    means = {name: float(full[labels == name].mean()) for name in sorted(set(groups))}
    compared = list(means) if how == "groups" else [min(means, key=lambda name: means[name])]
    return all(_are_below_zero(differences[labels[numbers] == name], level) for name in compared)


def _are_below_zero(differences: npt.NDArray[np.float64], level: float) -> bool:
    """Return whether paired differences are below zero by the signed-rank test, in which zeros do not take part."""
    different = differences[differences != 0]
    n = len(different)

    # The smallest p-value of n pairs is 2**-n. With ties only the normal approximation is left, which needs more pairs.
    is_tied = len(np.unique(np.abs(different))) < n
    if not n or 2.0**-n > level or (is_tied and n < _MIN_TIED) or different.mean() >= 0:
        return False
    return signed_rank_p(different, "less") <= level
