"""What a task is: seeded examples with the gold fact at any position, for two disjoint splits."""

import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Literal, get_args

from lpes_evo.errors import TaskError

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
            seed: Seed of the draw.
            split: Which of the two disjoint splits the examples belong to.

        Returns:
            The examples; equal arguments give equal examples on every platform.

        Raises:
            TaskError: A position lies outside [0, 1], a number is not positive, or the data do not suffice.
        """


def check_draw(positions: Sequence[float], n_per_position: int, split: str) -> tuple[float, ...]:
    """Check the arguments of `Task.examples`.

    Args:
        positions: Gold positions, each from 0 to 1.
        n_per_position: Examples at each position.
        split: Name of the split.

    Returns:
        The positions as floats.

    Raises:
        TaskError: There is no position, one lies outside [0, 1] or is given twice, ``n_per_position`` is not
            a positive integer, or the split is unknown.
    """
    # Adding 0.0 turns -0.0 into 0.0, whose representation is part of the ids.
    checked = tuple(float(position) + 0.0 for position in positions)
    for position in checked:
        if not (math.isfinite(position) and 0 <= position <= 1):
            raise TaskError(
                f"Expected every position to lie between 0 and 1, but got {position}. "
                "0 puts the gold fact at the beginning of the input, 1 at its end."
            )
    if not checked or len(set(checked)) < len(checked):
        raise TaskError(f"Expected at least one position and none of them twice, but got {list(checked)}.")
    check_count("n_per_position", n_per_position)
    if split not in get_args(Split):
        raise TaskError(f"Expected the split to be one of {', '.join(get_args(Split))}, but got {split!r}.")
    return checked


def check_count(name: str, value: object, least: int = 1, most: int | None = None) -> None:
    """Check that an option is an integer within bounds.

    Args:
        name: Name of the option.
        value: Its value.
        least: Smallest value allowed.
        most: Largest value allowed; ``None`` for no limit.

    Raises:
        TaskError: It is not.
    """
    if (
        isinstance(value, bool)
        or not isinstance(value, int)
        or value < least
        or (most is not None and value > most)
    ):
        bounds = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise TaskError(f"Expected {name} to be an integer {bounds}, but got {value!r}.")


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
