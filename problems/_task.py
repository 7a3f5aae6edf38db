"""What a task is: seeded examples with the gold fact at any position, for two disjoint splits."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

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
        source: Identity of the material the example is made of (a seeded draw, a record of a file). Two examples
            with one source share their content even where the gold position differs, so search and report data
            are disjoint when their sources are.
    """

    id: str
    position: float
    prompt: str
    answer: str
    source: str


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
