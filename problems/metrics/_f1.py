"""F1 of words, the metric of SQuAD as SCROLLS, ZeroSCROLLS and L-Eval use it."""

from collections import Counter
from collections.abc import Iterable

from lpes_evo.problems._data import optional_module
from lpes_evo.problems.metrics._subspan import normalize_answer


def token_f1(output: str, answers: Iterable[str], *, ascii_only: bool = False) -> float:
    """Return the largest F1 of the words of an output and of one of the references.

    Args:
        output: The output of the model.
        answers: References, at least one.
        ascii_only: Whether to spell other letters in ASCII after normalisation, as ZeroSCROLLS does.

    Returns:
        F1 from 0 to 1.

    Raises:
        TaskError: ``ascii_only`` is set, and the package that does it is not installed.
    """
    said = _words(output, ascii_only)
    return max(_f1(said, _words(answer, ascii_only)) for answer in answers)


def _words(text: str, ascii_only: bool) -> list[str]:
    """Return the words of a normalised text."""
    normalized = normalize_answer(text)
    if ascii_only and not normalized.isascii():
        spell = optional_module("text_unidecode", "score letters beyond ASCII as ZeroSCROLLS does").unidecode
        normalized = str(spell(normalized))
    return normalized.split()


def _f1(said: list[str], reference: list[str]) -> float:
    """Return the F1 of the words of an output and of a reference."""
    n_common = (Counter(said) & Counter(reference)).total()
    if not n_common:
        return 0.0

    precision, recall = n_common / len(said), n_common / len(reference)
    return 2 * precision * recall / (precision + recall)
