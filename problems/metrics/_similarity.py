"""Exponential similarity of percentages, the metric of SpaceDigest in ZeroSCROLLS (https://arxiv.org/abs/2305.14196)."""

import re
from collections.abc import Iterable

_PERCENTAGE = re.compile(r"(\d+\.?\d*)%")


def percentage(text: str) -> float | None:
    """Return the first percentage of a text, such as 62.5 of ``"about 62.5% of them"``, or ``None``."""
    found = _PERCENTAGE.search(text)
    return None if found is None else float(found[1])


def exponential_similarity(output: str, references: Iterable[str]) -> float:
    """Return ``0.5 ** (distance / 10)`` for the distance of two percentages, the largest over the references.

    Args:
        output: The output of the model; without a percentage it scores 0.
        references: References, at least one, each with a percentage.

    Returns:
        Similarity from 0 to 1; half for each 10 percentage points of distance.

    Raises:
        ValueError: A reference has no percentage.
    """
    said = percentage(output)
    golds = [percentage(reference) for reference in references]
    if None in golds:
        raise ValueError("Expected every reference to hold a percentage such as 62%, but one holds none.")

    if said is None:
        return 0.0
    return max(float(0.5 ** (abs(gold - said) / 10)) for gold in golds if gold is not None)
