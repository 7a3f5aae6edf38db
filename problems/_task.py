"""What a task is: seeded examples with the gold fact at any position, for two disjoint splits."""

import hashlib
import json
import math
import numbers
import operator
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Literal, get_args

from lpes_evo.errors import TaskError

MAX_EXAMPLES = 100_000
"""Most examples of one draw: they are held in memory, and scoring more would take weeks on any device."""

SEED_LIMIT = 2**64
"""Seeds lie between minus this and this."""

Split = Literal["search", "report"]
"""Search examples steer the search; report examples are shown to nobody until the search has ended."""


@dataclass(frozen=True)
class Example:
    """One question with one known answer.

    Attributes:
        id: Unique within a task, stable over runs and platforms.
        position: Place of the gold fact in the input, from 0 (beginning) to 1 (end).
        prompt: Text of the user's turn, without chat template.
        answer: Text that follows the prompt when the model is right.
        source: Identity of the material the example is made of (a seeded draw, a record of a file). Two
            examples with one source share their content even where the gold position differs, so search and
            report data are disjoint when their sources are.
        answer_prefix: Words the model's turn is begun with, such as ``"The number is"``. The model is scored
            on what comes after them.
    """

    id: str
    position: float
    prompt: str
    answer: str
    source: str
    answer_prefix: str = ""


class Task(ABC):
    """A maker of examples.

    Attributes:
        name: The name the command line knows the task by.
    """

    name: str

    @abstractmethod
    def examples(
        self, *, positions: Sequence[float], n_per_position: int, seed: int, split: Split
    ) -> list[Example]:
        """Make ``len(positions) * n_per_position`` examples, ordered by position, then by number.

        Args:
            positions: Gold positions, each from 0 to 1.
            n_per_position: Examples at each position.
            seed: Seed of the draw, from ``-2**64`` to ``2**64``.
            split: Which of the two disjoint splits the examples belong to.

        Returns:
            The examples; equal arguments give equal examples on every platform.

        Raises:
            TaskError: There is no position, one is not a number from 0 to 1 or is given twice,
                ``n_per_position`` is not a positive integer, there would be more than `MAX_EXAMPLES` examples,
                the seed is not an integer, the split is unknown, or the data do not suffice.
        """


def check_draw(
    positions: Sequence[float], n_per_position: int, seed: int, split: str
) -> tuple[tuple[float, ...], int, int]:
    """Check the arguments of `Task.examples`.

    Args:
        positions: Gold positions, each from 0 to 1.
        n_per_position: Examples at each position.
        seed: Seed of the draw.
        split: Name of the split.

    Returns:
        The positions as floats, and ``n_per_position`` and the seed as plain integers, whatever type of
        integer they came as: their representations are part of the ids.

    Raises:
        TaskError: There is no position, one is not a number from 0 to 1 or is given twice, ``n_per_position``
            is not a positive integer, there would be more than `MAX_EXAMPLES` examples, the seed is not an
            integer, or the split is unknown.
    """
    if not _is_list(positions):
        raise TaskError(
            f"Expected positions to be a list of numbers from 0 to 1, but got {positions!r:.80}. "
            "Give a single position as [0.5]."
        )
    # Adding 0.0 turns -0.0 into 0.0, whose representation is part of the ids.
    checked = tuple(_position(position) + 0.0 for position in positions)
    if not checked or len(set(checked)) < len(checked):
        raise TaskError(f"Expected at least one position and none of them twice, but got {list(checked)}.")
    number = check_count("n_per_position", n_per_position, most=MAX_EXAMPLES // len(checked) or 1)
    if split not in get_args(Split):
        raise TaskError(f"Expected the split to be one of {', '.join(get_args(Split))}, but got {split!r}.")
    return checked, number, check_count("seed", seed, least=-SEED_LIMIT, most=SEED_LIMIT)


def _position(value: object) -> float:
    """Return a position as a float, or raise `TaskError` where it is none."""
    if not is_position(value):
        raise TaskError(
            f"Expected every position to lie between 0 and 1, but got {value!r:.80}. "
            "0 puts the gold fact at the beginning of the input, 1 at its end."
        )
    return float(value)  # type: ignore[arg-type]


def is_position(value: object) -> bool:
    """Return whether a value is a real number from 0 to 1; ``nan``, text and booleans are none."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    return bool(0 <= value <= 1)  # type: ignore[operator]


def check_count(name: str, value: object, least: int = 1, most: int | None = None) -> int:
    """Check that an option is an integer within bounds.

    Args:
        name: Name of the option.
        value: Its value; integers of numpy are integers, booleans are not.
        least: Smallest value allowed.
        most: Largest value allowed; ``None`` for no limit.

    Returns:
        The value as a plain integer.

    Raises:
        TaskError: It is not.
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or number < least or (most is not None and number > most):
        bounds = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise TaskError(f"Expected {name} to be an integer {bounds}, but got {value!r:.80}.")
    return number


def check_examples(examples: Iterable[Example]) -> tuple[Example, ...]:
    """Check the fields of examples, which may come from anywhere.

    Args:
        examples: The examples.

    Returns:
        The examples.

    Raises:
        TaskError: There are none, one is not an `Example`, a field is not of its type, an id or a prompt is
            empty, a position does not lie between 0 and 1, or two examples share an id.
    """
    if not _is_list(examples):
        raise TaskError(
            f"Expected a list of examples, but got {examples!r:.80}. Make them with Task.examples."
        )
    checked = tuple(examples)
    for example in checked:
        if not isinstance(example, Example):
            raise TaskError(
                f"Expected every example to be an Example, but got {example!r:.80}. Make them with Task.examples."
            )
        for field in ("id", "prompt", "answer", "source", "answer_prefix"):
            value = getattr(example, field)
            if not _is_text(value) or (field in ("id", "prompt") and not value.strip()):
                kind = "text that is not empty" if field in ("id", "prompt") else "text"
                raise TaskError(
                    f"Expected the {field} of example {example.id!r:.80} to be {kind} in Unicode, but got "
                    f"{value!r:.80}."
                )
        # A subclass of float or int alone can be written to the hash of the data.
        if not isinstance(example.position, (int, float)) or not is_position(example.position):
            raise TaskError(
                f"Expected the position of example {example.id!r:.80} to lie between 0 and 1, but got "
                f"{example.position!r:.80}."
            )
    n_ids = len({example.id for example in checked})
    if n_ids < len(checked) or not checked:
        raise TaskError(
            f"Expected at least one example and no id twice, but got {len(checked)} examples with "
            f"{n_ids} different ids."
        )
    return checked


def _is_list(value: object) -> bool:
    """Return whether a value holds others; text holds letters only."""
    return isinstance(value, Iterable) and not isinstance(value, str)


def _is_text(value: object) -> bool:
    """Return whether a value is text that has a UTF-8 form; tokenizers refuse a lone surrogate."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


def slot_of(position: float, n_slots: int) -> int:
    """Return the index, from 0 to ``n_slots - 1``, of the slot nearest to a position between 0 and 1."""
    return math.floor(position * (n_slots - 1) + 0.5)


def check_disjoint(search_examples: Iterable[Example], report_examples: Iterable[Example]) -> None:
    """Check that no report example was seen by the search.

    Args:
        search_examples: Examples that steer the search.
        report_examples: Examples that are held out.

    Raises:
        TaskError: Two examples of the two sets have the same source or the same prompt.
    """
    search = list(search_examples)
    sources = {example.source for example in search}
    prompts = {example.prompt for example in search}
    shared = [
        example for example in report_examples if example.source in sources or example.prompt in prompts
    ]
    if shared:
        raise TaskError(
            f"Expected search and report examples to be disjoint, but {len(shared)} report examples are "
            f"made of material that the search uses, first {shared[0].id!r}. "
            "Draw them with split='search' and split='report' of one task."
        )


def data_hash(examples: Iterable[Example]) -> str:
    """Return the SHA-256 of the content of examples, 64 hexadecimal digits.

    Scores are comparable only where the hashes of their data are equal.

    Args:
        examples: The examples, in order.

    Returns:
        The hash; equal on every platform.
    """
    digest = hashlib.sha256()
    for example in examples:
        digest.update(json.dumps(asdict(example), sort_keys=True, ensure_ascii=True).encode() + b"\n")
    return digest.hexdigest()
