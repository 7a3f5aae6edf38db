"""Accuracy of a chosen letter, the metric of QuALITY in ZeroSCROLLS (https://arxiv.org/abs/2305.14196)."""

import re
from collections.abc import Iterable

_LETTER = re.compile(r"\b[A-D]\b")


def option_letter(text: str) -> str | None:
    """Return the first of A, B, C and D that stands as a word of its own, or ``None``."""
    found = _LETTER.search(text)
    return None if found is None else found[0]


def letter_accuracy(output: str, references: Iterable[str]) -> float:
    """Score an output that chooses a letter.

    Args:
        output: The output of the model.
        references: References, each with a letter.

    Returns:
        1 if the output chooses the letter of one of the references, else 0.
    """
    said = option_letter(output)
    return float(said is not None and any(option_letter(reference) == said for reference in references))
