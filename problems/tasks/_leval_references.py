"""Readable references of L-Eval: those that the scorer can use; the others score by chance or not at all."""

from collections.abc import Callable

from lpes_evo.problems.metrics import (
    code_reference,
    exact_match,
    final_number,
    has_rouge_words,
    normalize_answer,
)

_CHOICE = ("coursera", "quality", "tpo")


def readable_references(variant: str) -> tuple[Callable[[str], bool], str, str]:
    """Return the test for references of a task that its scorer can read.

    Args:
        variant: Name of the task.

    Returns:
        A function that tells whether a reference, as examples hold it, can be read; the part that the others lack; and
        the consequence for their scores.
    """
    if variant in _CHOICE:
        return _names_an_option, "option letter in the first word", "A counts as right"
    if variant == "gsm100":
        return lambda gold: bool(final_number(gold)), "number", "only an output without one is right"
    if variant == "codeU":
        return (
            lambda gold: bool(code_reference(gold).strip()),
            "output of code",
            "only an empty output is right",
        )
    if variant == "topic_retrieval_longchat":
        return (
            lambda gold: bool(normalize_answer(gold)),
            "word but articles",
            "only an output without one is right",
        )

    if variant == "sci_fi":
        return _is_truth, "plain true or false", "no output is right"
    if variant.endswith("_qa") or variant == "natural_question":
        return lambda gold: bool(normalize_answer(gold)), "word but articles", "every output scores 0"

    return has_rouge_words, "word of Latin letters or digits", "every output scores 0"


def _names_an_option(gold: str) -> bool:
    """Return whether the first word of a reference has an option letter."""
    return bool(set(gold.split()[0]) & set("ABCD"))


def _is_truth(gold: str) -> bool:
    """Return whether a reference is matched by true or by false."""
    return any(exact_match(truth, gold) == 1 for truth in ("true", "false"))
