"""Concordance index of two orders, the metric of BookSumSort in ZeroSCROLLS (https://arxiv.org/abs/2305.14196)."""

import re
from collections.abc import Iterable
from itertools import combinations

_MOST_DIGITS = 18


def listed_numbers(text: str) -> list[int]:
    """Return the numbers of a text in order; everything but digits, commas and white space is deleted first."""
    words = re.sub(r"[^0-9\s,]", "", text).replace(",", " ").split()
    # Python refuses to read thousands of digits as one number; its first digits tell it from every other number.
    return [int(word.lstrip("0")[:_MOST_DIGITS] or "0") for word in words]


def concordance_index(output: str, references: Iterable[str]) -> float:
    """Return the share of pairs that stand in the same order in an output and a reference.

    Args:
        output: The output of the model; it scores 0 unless it lists the numbers of the reference, each once.
        references: References, at least one, each an order of the numbers from 1 on.

    Returns:
        The largest share over the references, from 0 to 1.
    """
    said = listed_numbers(output)
    return max(_concordance(said, listed_numbers(reference)) for reference in references)


def _concordance(said: list[int], gold: list[int]) -> float:
    """Return the share of pairs of ``gold`` that stand in the same order in ``said``; 0 where the numbers differ."""
    if sorted(said) != sorted(gold):
        return 0.0

    place = {number: index for index, number in enumerate(said)}
    pairs = list(combinations(gold, 2))
    return sum(place[first] < place[second] for first, second in pairs) / len(pairs) if pairs else 1.0
