"""What an evaluation task is: examples, what the model is asked, and how its output is scored."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Kind = Literal["generate", "likelihood"]
"""How a task is answered: by greedy generation, or by the log-probability of a known text."""


@dataclass(frozen=True)
class EvalExample:
    """One question to a model.

    Attributes:
        id: Unique within a task, stable over runs and platforms.
        prompt: Text of the user's turn, without chat template.
        answers: Accepted answers or references; for a likelihood task, the one text whose log-probability is taken.
        position: Place of the gold fact in the input from 0 (beginning) to 1 (end); ``None`` where a task has none.
        source: Identity of the material the example is made of; examples of one source are not independent, and
            search and report data are disjoint when their sources are.
        cut: Start and end, in characters of the prompt, of the part that may lose its middle when the prompt is too
            long: the document. Instruction and question stand outside. ``None`` where nothing may be cut.
        gold: Start and end, in characters of the prompt, of the fact that is needed, so that a cut that loses it is
            reported; ``None`` where there is none.
        answer_prefix: Words the model's turn is begun with.
        max_new_tokens: Most tokens the model may answer with.
        details: What the metric needs besides, such as the kind of question.
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
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class DataRequest:
    """Which examples are wanted.

    Attributes:
        folder: Folder with the data files; ``None`` for tasks that draw their data.
        positions: Gold positions from 0 to 1, for tasks that can place the gold fact.
        limit: Most examples (at each position, where a task has positions); ``None`` for all there are.
        seed: Seed of every draw.
    """

    folder: Path | None = None
    positions: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0)
    limit: int | None = None
    seed: int = 0


class EvalTask(ABC):
    """An evaluation task; a user adds one by subclassing and registering it, see `register_task`.

    Attributes:
        name: The name the command line knows the task by, such as ``kv`` or ``leval:tpo``.
        metric: What the headline score is called, such as ``accuracy`` or ``ROUGE geometric mean``.
        kind: Whether outputs are generated, or a known text is scored.
        parts: Names of the numbers that `score` gives for an output.
        larger_is_better: Whether a larger headline is a better one; false for a perplexity.
        teacher_forcing: Whether any output that begins with the first of an example's answers has the full score. Then
            one forward pass can stand for generation where the user asks for it; it misses answers that come later in
            an output.
        reads_data: Whether the task reads files of the data folder.
    """

    name: str
    metric: str
    kind: Kind = "generate"
    parts: tuple[str, ...] = ("score",)
    larger_is_better: bool = True
    teacher_forcing: bool = False
    reads_data: bool = True

    @abstractmethod
    def examples(self, request: DataRequest) -> list[EvalExample]:
        """Make or read the examples.

        Args:
            request: Which examples are wanted.

        Returns:
            The examples; equal requests give equal examples on every platform.

        Raises:
            TaskError: The request is not valid, or a file is missing or malformed.
        """

    @abstractmethod
    def score(self, output: str, example: EvalExample) -> tuple[float, ...]:
        """Score one output.

        Args:
            output: What the model said.
            example: What it was asked.

        Returns:
            One number for each of `parts`. A likelihood task is not asked: its parts are nats and tokens.
        """

    def headline(self, scores: npt.NDArray[np.float64]) -> float:
        """Condense the scores of several examples to the number that is reported.

        Args:
            scores: What `score` gave, ``(n_examples, n_parts)``.

        Returns:
            The mean of the first part; a task whose number is no mean of its examples overrides this.
        """
        return float(np.mean(scores[:, 0]))

    def check(self, examples: Sequence[EvalExample]) -> list[str]:  # noqa: ARG002
        """Return warnings about examples whose scores would mislead, one line each."""
        return []
