"""Documents of a prompt: the needed ones are moved to a position among the others."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from lpes_evo.problems._example import Example
from lpes_evo.problems._task import slot_of
from lpes_evo.problems.metrics import normalize_answer

HEAD = (
    "Write a high-quality answer for the given question using only the provided search results (some of which might "
    "be irrelevant).\n\n"
)
"""The instruction of Lost in the Middle (https://arxiv.org/abs/2307.03172)."""

plain_answer = partial(normalize_answer, marks_join_words=True)
"""Returns the words of an answer, as best-subspan exact match normalises them."""


@dataclass(frozen=True)
class Document:
    """A document.

    Attributes:
        title: Its title; empty for none.
        text: Its text.
    """

    title: str
    text: str

    def numbered(self, number: int) -> str:
        """Return the document as a prompt shows it."""
        title = f"(Title: {self.title})" if self.title else ""
        return f"Document [{number}]{title} {self.text}"


@dataclass(frozen=True)
class Arranged:
    """Documents in the order of a prompt.

    Attributes:
        text: The numbered documents, one to a line.
        gold: Start and end of the gold documents, in characters of the text.
        first: Number of the first gold document, from 1.
        n_documents: Number of documents.
    """

    text: str
    gold: tuple[int, int]
    first: int
    n_documents: int


def arrange(
    golds: Sequence[Document],
    others: Sequence[Document],
    position: float,
    show: Callable[[Document, int], str] = Document.numbered,
) -> Arranged:
    """Move the gold documents, side by side, to a position among the others, which keep their order.

    Args:
        golds: The gold documents.
        others: The other documents.
        position: The place, from 0 to 1.
        show: Gives the text of a document with a number.

    Returns:
        The documents.
    """
    slot = slot_of(position, len(others) + 1)
    documents = [*others[:slot], *golds, *others[slot:]]
    lines = [show(document, number) for number, document in enumerate(documents, start=1)]

    start = sum(len(line) + 1 for line in lines[:slot])
    end = start + len("\n".join(lines[slot : slot + len(golds)]))
    return Arranged("\n".join(lines), (start, end), slot + 1, len(documents))


def warn_of_empty_answers(examples: Sequence[Example]) -> list[str]:
    """Return a warning about accepted answers that every output contains, where there are some."""
    empty = sorted(
        {
            f"{answer!r} of {example.details['question']!r}"
            for example in examples
            for answer in example.answers
            if not plain_answer(answer)
        }
    )
    if not empty:
        return []
    return [
        f"{len(empty)} accepted answers are empty once normalised, so that any output counts as correct: "
        f"{', '.join(empty[:3])}."
    ]
