"""Best-subspan exact match, the metric of question answering in Lost in the Middle.

Source: ``metrics.py`` of https://arxiv.org/abs/2307.03172.
"""

import re
import string
from collections.abc import Iterable

import regex

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = r"\b(a|an|the)\b"


def normalize_answer(text: str, *, lower: bool = True, marks_join_words: bool = False) -> str:
    """Normalise a text as the evaluation script of SQuAD does.

    ASCII punctuation is deleted (a hyphen joins its words), articles become spaces, runs of white space one space.

    Args:
        text: The text.
        lower: Whether to lower its case first; L-Eval's exact match does not.
        marks_join_words: Whether a letter and a combining mark are one word, so that an accented "a" is no article. The
            released code of Lost in the Middle takes words from the package ``regex``, where they are; that of L-Eval
            and of ZeroSCROLLS takes them from ``re``, where they are not.

    Returns:
        The normalised text; empty for ``"The"``.
    """
    text = (text.lower() if lower else text).translate(_PUNCTUATION)
    words = regex if marks_join_words else re
    return " ".join(words.sub(_ARTICLES, " ", text).split())


def best_subspan_match(output: str, answers: Iterable[str]) -> float:
    """Score an output whose first line should contain one of the accepted answers.

    The comparison is of characters, so ``focus`` contains ``US``; an answer that normalises to nothing is contained
    in everything. Only the first line counts, since the prompt holds the answer and could be copied.

    Args:
        output: The output of the model.
        answers: Accepted answers.

    Returns:
        1 if the first line contains an accepted answer, else 0.
    """
    said = normalize_answer(output.split("\n")[0], marks_join_words=True)
    return float(any(normalize_answer(answer, marks_join_words=True) in said for answer in answers))
