"""Exact match of L-Eval (https://arxiv.org/abs/2307.11088) with its extraction: ``auto_eval.py`` and ``em.py``.

Rules that look arbitrary are those of the released scorer, on which published numbers depend.
"""

import re

from lpes_evo.problems.metrics._subspan import normalize_answer

_LETTERS = "ABCD"
_PHRASES = (
    "will be",
    "of the code",
    "is",
    "would be",
    "the value of",
    "the result of",
    "printed",
)


def exact_match(output: str, reference: str) -> float:
    """Compare an extracted answer with an extracted reference.

    Args:
        output: The extracted answer.
        reference: The extracted reference.

    Returns:
        For a reference of option letters, 1 for the same letters and 0.25 for some of them and no other; for a
        number, whether the numbers are equal; else whether the reference is contained, case and spaces aside.
    """
    gold = normalize_answer(reference, lower=False)
    if all(letter in _LETTERS for letter in gold):
        said = normalize_answer(output, lower=False)
        if said == gold:
            return 1.0
        return 0.25 if set(said) <= set(gold) else 0.0

    try:
        return float(float(output) == float(reference))
    except ValueError:
        return float(_squeezed(reference) in _squeezed(output))


def _squeezed(text: str) -> str:
    """Return a text without case and spaces."""
    return text.lower().replace(" ", "")


def answer_letters(output: str, *, several: bool) -> str:
    """Extract option letters from an output.

    Args:
        output: The output of the model.
        several: Whether several options can be right, as in Coursera.

    Returns:
        With one right option, the first letter from A to D anywhere, also inside a word. With several, the letters
        at the beginning if there are two or more; else those that stand before white space, a period or a closing
        parenthesis; else the first run of letters. ``A``, a guess, where there is none, and ``None`` for nothing.
    """
    if not output.strip():
        return "None"
    if output in _LETTERS:
        return output
    if not several:
        return next((letter for letter in output if letter in _LETTERS), "A")

    leading = output[: len(output) - len(output.lstrip(_LETTERS))]
    if len(leading) > 1:
        return _ordered(leading)

    rest = output[len(leading) :].split("Question")[0]
    named = _ordered(leading + "".join(re.findall(r"[A-D](?=[\s.)])", rest)))
    if named:
        return named
    run = re.search(r"[A-D]+", rest)
    return run[0] if run else "A"


def _ordered(letters: str) -> str:
    """Return each of some letters once, in the order of the alphabet."""
    return "".join(sorted(set(letters)))


def reference_letters(reference: str) -> str:
    """Extract the option letters of the first word of a reference; ``A`` where it has none."""
    return re.sub(r"[^A-D]", "", reference.split()[0]) or "A"


def final_number(text: str) -> str:
    """Extract the result of a solved problem.

    Args:
        text: A solution.

    Returns:
        The digits, up to a period, of the word after "The answer is", else of the last word with a digit in the
        first paragraph; empty where there is none.
    """
    stated = re.search(r"The answer is (\S+)", text)
    if stated:
        word = stated[1]
    else:
        words = reversed(text.split("\n\n")[0].split(" "))
        word = next((word for word in words if any(letter.isdigit() for letter in word)), "")

    return "".join(letter for letter in word.split(".")[0] if letter.isdigit())


def code_reference(text: str) -> str:
    """Write the output of a program without the signs that its spelling may differ in."""
    text = re.sub(r"\s+", " ", text)
    for sign in (",", "'", "\\", ".0"):
        text = text.replace(sign, "")
    return text.replace("] [", "][").replace("[ [", "[[").replace("] ]", "]]")


def code_output(output: str, reference: str) -> str:
    """Extract the stated output of a program.

    Args:
        output: The output of the model.
        reference: The reference, whose length sets how many words are looked at.

    Returns:
        As many words as the reference has and three more, after "the final output", else from the end.
    """
    n_words = len(reference.split()) + 3
    text = code_reference(output)
    for phrase in _PHRASES:
        text = text.replace(phrase, "")

    if "the final output" in text:
        words = re.split(r"\s+", text.split("the final output")[-1])[:n_words]
    else:
        words = re.split(r"\s+", text)[-n_words:]
    return " ".join(words)


def truth_word(text: str) -> str:
    """Return ``true`` or ``false``, whichever the first word that holds one of them says, or ``<error>``."""
    for word in text.lower().split():
        for truth in ("true", "false"):
            if truth in word:
                return truth
    return "<error>"
