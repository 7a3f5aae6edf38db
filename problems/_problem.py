"""The contract between a search and whatever it optimises."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


class Problem(ABC):
    """Turns per-layer scales (or the samples of any curve) into one score per example.

    Scores belong to example ids, so that candidates can be compared pair by pair. Higher is better.

    Attributes:
        n_layers: Number of values that `score` expects, one per layer.
        example_ids: Identity of each example, ``(n_examples,)``.
        groups: Name of the set each example belongs to (``"begin"``, ``"middle"``, ``"end"`` for the
            retrieval tasks), ``(n_examples,)``.
    """

    n_layers: int
    example_ids: tuple[str, ...]
    groups: tuple[str, ...]

    @abstractmethod
    def score(
        self, scales: npt.NDArray[np.float64], example_ids: Sequence[str] | None = None
    ) -> npt.NDArray[np.float64]:
        """Score the examples under the given scales.

        Args:
            scales: Position divisor of each layer, ``(n_layers,)``; 1.0 leaves a layer untouched.
            example_ids: The examples to score, in this order; all of them when ``None``.

        Returns:
            One score per example, ``(n_examples,)``.

        Raises:
            ScalesError: The scales have the wrong shape or a value that is not finite and positive.
        """
