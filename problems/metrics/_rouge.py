"""ROUGE-1, ROUGE-2 and ROUGE-L without stemming, as SCROLLS, ZeroSCROLLS and L-Eval use them."""

import re
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from lpes_evo.problems._data import optional_module

TYPES = ("rouge1", "rouge2", "rougeL")


@cache
def _scorer() -> Any:
    """Return the scorer of the package ``rouge-score``."""
    module = optional_module("rouge_score.rouge_scorer", "compute ROUGE")
    return module.RougeScorer(TYPES, use_stemmer=False)


def rouge(output: str, references: Iterable[str]) -> tuple[float, float, float]:
    """Return ROUGE-1, ROUGE-2 and ROUGE-L, of each the largest F-measure over the references.

    Args:
        output: The output of the model.
        references: References, at least one.

    Returns:
        The three scores, each from 0 to 1.

    Raises:
        TaskError: The package ``rouge-score`` is not installed.
    """
    scores = [_scorer().score(reference, output) for reference in references]
    one, two, longest = (max(score[kind].fmeasure for score in scores) for kind in TYPES)
    return float(one), float(two), float(longest)


def has_rouge_words(text: str) -> bool:
    """Return whether ROUGE finds a word in a text; it knows runs of the letters a to z and of digits alone."""
    return re.search("[a-z0-9]", text.lower()) is not None


def geometric_mean(scores: npt.NDArray[np.float64]) -> float:
    """Return the geometric mean of the mean ROUGE-1, ROUGE-2 and ROUGE-L of several outputs.

    Args:
        scores: One row for each output, ``(n_examples, 3)``.

    Returns:
        The geometric mean of the three means, on the scale of ``scores``. It is not the mean of geometric means.
    """
    return float(np.prod(scores.mean(axis=0)) ** (1 / scores.shape[1]))
