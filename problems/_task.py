"""Task: a maker of examples and a judge of outputs, which can be searched on and evaluated."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from lpes_evo.errors import TaskError
from lpes_evo.problems._checks import check_count, is_position
from lpes_evo.problems._example import Example

MAX_EXAMPLES = 100_000
"""Most examples of one draw: they are held in memory, and scoring more would take weeks on any device."""

DRAWN_PER_POSITION = 100
"""Examples at each position of a task that draws them, where no limit is given."""

SEED_LIMIT = 2**64
"""Seeds lie between minus this and this."""

Kind = Literal["generate", "likelihood"]
"""The way in which a task is answered: by greedy generation, or by the log-probability of a known text."""

Split = Literal["search", "report", "all"]
"""Search examples steer the search; report examples are shown to nobody until the search has ended; all are both.

A task that draws its data has no end of examples, so that all of them are those of the report.
"""


@dataclass(frozen=True)
class DataRequest:
    """A request for examples of a task.

    Attributes:
        folder: Folder with the data files; ``None`` for tasks that draw their data.
        positions: Gold positions from 0 to 1, for tasks that can place the gold fact.
        limit: Most examples (at each position, where a task has positions); ``None`` for all there are.
        seed: Seed of every draw.
        split: Which of the two disjoint splits the examples belong to. Evaluations ask for all.
        leave_out: Hashes (`source_hash`) of sources that a task with ``splits_sources`` leaves out.
        exact: Whether fewer examples than ``limit``, at any position, are an error, see `examples_of`.
    """

    folder: Path | None = None
    positions: Sequence[float] = (0.0, 0.25, 0.5, 0.75, 1.0)
    limit: int | None = None
    seed: int = 0
    split: Split = "all"
    leave_out: frozenset[str] = frozenset()
    exact: bool = False

    @property
    def drawn_split(self) -> Literal["search", "report"]:
        """The split of a task that draws its data, for which all examples are those of the report."""
        return "search" if self.split == "search" else "report"


class Task(ABC):
    """A maker of examples and a judge of outputs.

    A user adds a task by subclassing this class and naming the file, or by `register_task`.

    Attributes:
        name: The name that `make_task` makes the task of, such as ``kv:25`` or ``leval:tpo``.
        metric: Name of the headline score, such as ``accuracy`` or ``ROUGE geometric mean``.
        kind: Whether outputs are generated, or a known text is scored.
        parts: Names of the numbers that `score` gives for an output.
        larger_is_better: Whether a larger headline is a better one; false for a perplexity.
        teacher_forcing: Whether any output that begins with the first of an example's answers has the full score. Then
            one forward pass can stand for generation where the user asks for it; it misses answers that come later in
            an output.
        reads_data: Whether the task reads files of the data folder.
        splits_sources: Whether the task divides the sources of a file with `divide`. It is then asked for all examples
            by evaluations, and knows sources to leave out; other tasks are asked for the report split instead.
    """

    name: str
    metric: str
    kind: Kind = "generate"
    parts: tuple[str, ...] = ("score",)
    larger_is_better: bool = True
    teacher_forcing: bool = False
    reads_data: bool = True
    splits_sources: bool = False

    @abstractmethod
    def examples(self, request: DataRequest) -> list[Example]:
        """Make or read the examples.

        Args:
            request: Which examples are wanted. Examples of the splits ``search`` and ``report`` share no source.

        Returns:
            The examples; equal requests give equal examples on every platform.

        Raises:
            TaskError: The request is not valid, a split is empty, or a file is missing or malformed.
        """

    @abstractmethod
    def score(self, output: str, example: Example) -> tuple[float, ...]:
        """Score one output.

        Args:
            output: The output of the model.
            example: The example that it answers.

        Returns:
            One number for each of `parts`. A likelihood task is not asked: its parts are nats and tokens.
        """

    def headline(self, scores: npt.NDArray[np.float64]) -> float:
        """Condense the scores of several examples to the number that is reported.

        Args:
            scores: The scores of `score`, ``(n_examples, n_parts)``.

        Returns:
            The mean of the first part; a task whose number is no mean of its examples overrides this.
        """
        return float(np.mean(scores[:, 0]))

    def check(self, examples: Sequence[Example]) -> list[str]:  # noqa: ARG002
        """Return warnings about examples whose scores would mislead, one line each."""
        return []


def check_draw(request: DataRequest) -> tuple[tuple[float, ...], int, int]:
    """Check the request for examples of a task that draws them and places the gold fact.

    Args:
        request: The request; without a limit, `DRAWN_PER_POSITION` examples are drawn at each position.

    Returns:
        The positions as floats, and the number of examples at each position and the seed as plain integers, whatever
        type of integer they came as: their representations are part of the ids.

    Raises:
        TaskError: The positions, the seed or the split are not valid, see `check_places`, the limit is not a positive
            integer, or there would be more than `MAX_EXAMPLES` examples.
    """
    places, seed = check_places(request)
    limit = DRAWN_PER_POSITION if request.limit is None else request.limit
    return places, check_count("the limit of examples", limit, most=MAX_EXAMPLES // len(places) or 1), seed


def check_places(request: DataRequest) -> tuple[tuple[float, ...], int]:
    """Check the positions, the seed and the split of a request.

    Args:
        request: The request.

    Returns:
        The positions as floats, and the seed as a plain integer.

    Raises:
        TaskError: There is no position, one is not a number from 0 to 1 or is given twice, the seed is not an integer,
            or the split is unknown.
    """
    positions: Any = request.positions
    if not isinstance(positions, Iterable) or isinstance(positions, str):
        raise TaskError(
            f"Expected positions to be a list of numbers from 0 to 1, but got {positions!r:.80}. "
            "Give a single position as [0.5]."
        )

    # Adding 0.0 turns -0.0 into 0.0, whose representation is part of the ids.
    checked = tuple(_position(position) + 0.0 for position in positions)
    if not checked or len(set(checked)) < len(checked):
        raise TaskError(f"Expected at least one position and none of them twice, but got {list(checked)}.")

    if request.split not in get_args(Split):
        raise TaskError(
            f"Expected the split to be one of {', '.join(get_args(Split))}, but got {request.split!r}."
        )
    return checked, check_count("seed", request.seed, least=-SEED_LIMIT, most=SEED_LIMIT)


def _position(value: object) -> float:
    """Return a position as a float.

    Raises:
        TaskError: The value is no position.
    """
    if not is_position(value):
        raise TaskError(
            f"Expected every position to lie between 0 and 1, but got {value!r:.80}. "
            "0 puts the gold fact at the beginning of the input, 1 at its end."
        )
    return float(value)  # type: ignore[arg-type]


def slot_of(position: float, n_slots: int) -> int:
    """Return the index, from 0 to ``n_slots - 1``, of the slot nearest to a position between 0 and 1."""
    return math.floor(position * (n_slots - 1) + 0.5)
