"""What an evaluator has on its way: groups of genomes, and the passes that score them."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lpes_evo.search import Evaluation

Reference = tuple[float, ...]


@dataclass
class Group:
    """Genomes that are scored in the same forward passes, and what is known of them so far.

    Attributes:
        scales: Their curves, ``(n_genomes, n_layers)``.
        reference: Scores of the parent they are raced against, or ``None``.
        evaluations: What each came to; ``None`` while it is on its way.
        scores: Scores of each so far, in the order of the blocks.
        sample: Number of the sample that the gradient is wanted of; ``None`` for genomes to evaluate.
    """

    number: int
    labels: tuple[str, ...]
    scales: npt.NDArray[np.float64]
    reference: Reference | None
    evaluations: list[Evaluation | None]
    scores: list[list[float]]
    seconds: list[float]
    tokens: list[int]
    halvings: list[int]
    sample: int | None = None


@dataclass(frozen=True)
class Pass:
    """A block on its way for some members of a group."""

    group: Group
    members: tuple[int, ...]
    block: int
