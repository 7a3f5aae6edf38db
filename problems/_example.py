"""Example: one question with its accepted answers, and checks, hashes and comparisons of examples."""

import hashlib
import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from lpes_evo.errors import TaskError
from lpes_evo.problems._checks import is_filled, is_json, is_position, is_span, is_text

_HASHED_BY_EVALUATIONS = (
    "id",
    "prompt",
    "answers",
    "position",
    "source",
    "cut",
    "gold",
    "answer_prefix",
    "max_new_tokens",
    "details",
)


@dataclass(frozen=True)
class Example:
    """One question with its accepted answers.

    Attributes:
        id: Unique within a task, stable over runs and platforms.
        prompt: Text of the user's turn, without chat template.
        answers: Accepted answers or references; for a likelihood task, the one text whose log-probability is taken.
        position: Place of the gold fact in the input from 0 (beginning) to 1 (end); ``None`` where a task has none.
        source: Identity of the material that the example is made of (a seeded draw, a record of a file). Examples of
            one source are not independent, and search and report data are disjoint when their sources are.
        cut: Start and end, in characters of the prompt, of the part that may lose its middle when the prompt is too
            long: the document. Instruction and question stand outside. ``None`` where nothing may be cut.
        gold: Start and end, in characters of the prompt, of the fact that is needed, so that a cut that loses it is
            reported; ``None`` where there is none.
        answer_prefix: Words the model's turn is begun with, such as ``"The number is"``. The model is scored on what
            comes after them.
        max_new_tokens: Most tokens the model may answer with.
        details: Further values that the metric needs, such as the kind of question.
    """

    id: str
    prompt: str
    answers: tuple[str, ...]
    position: float | None = None
    source: str = ""
    cut: tuple[int, int] | None = None
    gold: tuple[int, int] | None = None
    answer_prefix: str = ""
    max_new_tokens: int = 100
    details: dict[str, Any] = field(default_factory=dict, hash=False)

    @property
    def answer(self) -> str:
        """The first accepted answer, which teacher forcing scores."""
        return self.answers[0]


def check_examples(examples: Any) -> tuple[Example, ...]:
    """Check the fields of examples, which may come from anywhere.

    Args:
        examples: The examples.

    Returns:
        The examples.

    Raises:
        TaskError: There are none, one is not an `Example` or has a field that is not as `Example` describes it, or
            two examples share an id.
    """
    if not isinstance(examples, Iterable) or isinstance(examples, str):
        raise TaskError(
            f"Expected a list of examples, but got {examples!r:.80}. Make them with Task.examples."
        )

    checked = tuple(examples)
    for example in checked:
        if not isinstance(example, Example):
            raise TaskError(
                f"Expected every example to be an Example, but got {example!r:.80}. Make them with Task.examples."
            )
        fault = fault_of(example)
        if fault is not None:
            raise TaskError(
                f"Expected every example to be sound, but {short(example.id)} has {fault}. Mend the task that made it."
            )

    n_ids = len({example.id for example in checked})
    if n_ids < len(checked) or not checked:
        raise TaskError(
            f"Expected at least one example and no id twice, but got {len(checked)} examples with "
            f"{n_ids} different ids."
        )
    return checked


def fault_of(example: Example) -> str | None:
    """Return what is wrong with the fields of an example, or ``None``."""
    rules: dict[str, tuple[Callable[[Any], bool], str]] = {
        "id": (is_filled, "text that is not empty"),
        "prompt": (is_text, "text in Unicode"),
        "answers": (
            lambda texts: isinstance(texts, tuple) and all(map(is_text, texts)),
            "a tuple of texts in Unicode",
        ),
        # A subclass of float or int alone can be written to the hash of the data.
        "position": (
            lambda place: place is None or (isinstance(place, (int, float)) and is_position(place)),
            "a float from 0 to 1 or None",
        ),
        "source": (is_text, "text in Unicode"),
        "cut": (lambda span: span is None or is_span(span, example.prompt), "a span of the prompt or None"),
        "gold": (lambda span: span is None or is_span(span, example.prompt), "a span of the prompt or None"),
        "answer_prefix": (is_text, "text in Unicode"),
        "max_new_tokens": (lambda count: type(count) is int and count >= 0, "an int from 0"),
        "details": (is_json, "a dict that json can write"),
    }
    for name, (is_right, expected) in rules.items():
        value = getattr(example, name)
        if not is_right(value):
            return f"{name} = {short(value)}, where {expected} belongs"
    return None


def short(value: Any) -> str:
    """Return a value as text of at most 80 letters, whatever a user made of it."""
    text = f"a {type(value).__name__} that cannot be shown"
    with suppress(Exception):
        text = " ".join(repr(value).split())
    return text[:80]


def check_disjoint(search_examples: Iterable[Example], report_examples: Iterable[Example]) -> None:
    """Check that no report example was seen by the search.

    Args:
        search_examples: Examples that steer the search.
        report_examples: Examples that are held out.

    Raises:
        TaskError: Two examples of the two sets have the same source or the same prompt.
    """
    shared = seen_examples(search_examples, report_examples)
    if shared:
        raise TaskError(
            f"Expected search and report examples to be disjoint, but {len(shared)} report examples are "
            f"made of material that the search uses, first {shared[0].id!r}. "
            "Draw them with split='search' and split='report' of one task."
        )


def seen_examples(search_examples: Iterable[Example], others: Iterable[Example]) -> list[Example]:
    """Return the examples that are made of material which the search uses.

    Args:
        search_examples: Examples that steer the search.
        others: Examples that should not.

    Returns:
        Those of the others that have the source or the prompt of a search example, or its text where there is no
        prompt.
    """
    search = list(search_examples)
    sources = {example.source for example in search}
    asked = {_asked(example) for example in search}
    return [example for example in others if example.source in sources or _asked(example) in asked]


def _asked(example: Example) -> tuple[str, ...]:
    """Return what an example asks; known texts without a prompt are told apart by themselves."""
    return (example.prompt,) if example.prompt else ("", *example.answers)


def data_hash(examples: Iterable[Example]) -> str:
    """Return the SHA-256 of what the scores of known answers depend on.

    Searches know their data by it: scores are comparable only where the hashes of their data are equal.

    Args:
        examples: The examples, in order.

    Returns:
        The hash, 64 hexadecimal digits; equal on every platform.
    """
    return _hash(map(_answered_form, examples))


def evaluation_hash(examples: Iterable[Example]) -> str:
    """Return the SHA-256 of every field of examples, since outputs depend on cuts and lengths too.

    Args:
        examples: The examples, in order.

    Returns:
        The hash, 64 hexadecimal digits; equal on every platform.
    """
    return _hash(
        {name: value for name, value in asdict(example).items() if name in _HASHED_BY_EVALUATIONS}
        for example in examples
    )


def _answered_form(example: Example) -> dict[str, Any]:
    """Return what `data_hash` hashes; journals of earlier versions hold hashes of this form."""
    answers = {"answer": example.answer} if len(example.answers) == 1 else {"answers": example.answers}
    return {
        "id": example.id,
        "position": example.position,
        "prompt": example.prompt,
        **answers,
        "source": example.source,
        "answer_prefix": example.answer_prefix,
    }


def _hash(forms: Iterable[dict[str, Any]]) -> str:
    """Return the SHA-256 of values as lines of JSON."""
    digest = hashlib.sha256()
    for form in forms:
        digest.update(json.dumps(form, sort_keys=True, ensure_ascii=True).encode() + b"\n")
    return digest.hexdigest()
