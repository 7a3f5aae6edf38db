"""Groups of an evaluator: candidates that share forward passes, and what is known of each of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from lpes_evo.search import Evaluation

Reference = tuple[float, ...]


@dataclass(eq=False)
class Member:
    """A candidate of a group, or the probe whose gradient is wanted.

    Attributes:
        label: What messages call it.
        scales: Its curve, ``(n_layers,)``.
        scores: Its scores so far, block by block.
        seconds: Its share of the time of the workers.
        tokens: Tokens that it has forwarded.
        halvings: How often the batch was halved for want of memory, at most.
        evaluation: The outcome; ``None`` while it is on its way.
    """

    label: str
    scales: npt.NDArray[np.float64]
    scores: list[float] = field(default_factory=list)
    seconds: float = 0.0
    tokens: int = 0
    halvings: int = 0
    evaluation: Evaluation | None = None

    def conclude(
        self,
        status: Literal["ok", "failed", "raced", "sampled"],
        *,
        values: tuple[float, ...] = (),
        scores: Sequence[float] = (),
        scored: Sequence[int] = (),
        gradient: Sequence[float] = (),
        error: str | None = None,
        violation: float = 0.0,
    ) -> None:
        """Make the evaluation out of what came and of what it cost."""
        self.evaluation = Evaluation(
            values=values,
            scores=tuple(scores),
            seconds=self.seconds,
            status=status,
            error=error,
            scored=tuple(scored),
            tokens=self.tokens,
            halvings=self.halvings,
            gradient=tuple(gradient),
            violation=violation,
        )


@dataclass(eq=False)
class Group:
    """Candidates that are scored in the same forward passes, or a single probe.

    Attributes:
        number: Its number.
        members: The candidates, in the order in which they were submitted.
        reference: Scores of the parent they are raced against, or ``None``.
        sample: Number of the sample on which the gradient is wanted; ``None`` for candidates.
        is_baseline: Whether the scores of the untouched model are wanted, in units of their tasks.
    """

    number: int
    members: tuple[Member, ...]
    reference: Reference | None = None
    sample: int | None = None
    is_baseline: bool = False

    @property
    def is_finished(self) -> bool:
        """Whether every member has an evaluation."""
        return all(member.evaluation is not None for member in self.members)


@dataclass(frozen=True)
class Pass:
    """A block of examples on its way for some members of a group.

    Attributes:
        group: The group.
        members: Those of its members that are scored.
        block: Number of the block.
    """

    group: Group
    members: tuple[Member, ...]
    block: int
