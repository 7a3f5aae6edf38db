"""Problems whose guard forbids what their task asks for; tests of guards and mixtures share them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from lpes_evo.problems import MixtureProblem, Problem

N_LAYERS = 8


class Wish(Problem):
    """Texts with questions that want every layer at one value; each score has an offset of its own.

    Args:
        wanted: The value.
        n_texts: Number of texts, each with a question in the sets begin, middle and end.
        steepness: Factor of the squared distance to the value.
        offset: Difference of the offsets of neighbouring questions.
    """

    n_layers = N_LAYERS
    is_exact = True

    def __init__(self, wanted: float, n_texts: int = 4, steepness: float = 1.0, offset: float = 0.1) -> None:
        self.example_ids = tuple(f"{text}/{place}" for text in range(n_texts) for place in ("b", "m", "e"))
        self.groups = ("begin", "middle", "end") * n_texts
        self.sources = tuple(str(text) for text in range(n_texts) for _ in range(3))
        self.targets = wanted + 0.05 * np.sin(np.arange(3 * n_texts)[:, None] + np.arange(N_LAYERS))
        self.steepness = steepness
        self.offsets = offset * np.arange(3 * n_texts)
        self.calls: list[tuple[str, ...]] = []

    def score(self, scales: Any, example_ids: Sequence[str] | None = None) -> Any:
        """Score one curve."""
        names = tuple(example_ids or self.example_ids)
        self.calls.append(names)
        rows = [self.example_ids.index(name) for name in names]
        return self.offsets[rows] - self.steepness * ((self.targets[rows] - scales) ** 2).mean(axis=1)

    def gradient(self, scales: Any, example_ids: Sequence[str] | None = None, weights: Any = None) -> Any:
        """Score one curve, with the gradient of the weighted sum."""
        names = tuple(example_ids or self.example_ids)
        rows = [self.example_ids.index(name) for name in names]
        slopes = -2 * self.steepness * (scales - self.targets[rows]) / N_LAYERS
        return self.score(scales, names), weights @ slopes

    def n_tokens_of(self, example_ids: Sequence[str]) -> int:
        """Return ten tokens for each example."""
        return 10 * len(example_ids)


def guarded(tolerance: float = 0.02) -> MixtureProblem:
    """Return a task that wants every layer at 1.4 with a guard that wants it at 1."""
    return MixtureProblem(
        {"task": Wish(1.4)}, guarded={"text": Wish(1.0, n_texts=3)}, tolerances={"text": tolerance}
    )
