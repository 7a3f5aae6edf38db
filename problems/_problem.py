"""Problem: the interface of what a search optimises."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from lpes_evo.errors import ScalesError, TaskError
from lpes_evo.scales import check_scales


class Problem(ABC):
    """Turns per-layer scales (or the samples of any curve) into one score per example.

    Scores belong to example ids, so that candidates can be compared pair by pair. Higher is better.

    Attributes:
        n_layers: Number of values that `score` expects, one per layer.
        example_ids: Identity of each example, ``(n_examples,)``.
        groups: Name of the set each example belongs to (``"begin"``, ``"middle"``, ``"end"`` for the
            retrieval tasks), ``(n_examples,)``.
        is_exact: Whether a score is the same, up to rounding of float32, however candidates and examples are batched.
            If not, candidates are comparable only when calls of `score_many` score equally many candidates and the same
            examples.
        gradient_cost: Cost of `gradient` in forward passes: 3, since a backward pass counts as two.
    """

    n_layers: int
    example_ids: tuple[str, ...]
    groups: tuple[str, ...]
    is_exact: bool = True
    gradient_cost: int = 3

    @property
    def has_gradient(self) -> bool:
        """Whether the problem defines a gradient."""
        return type(self).gradient is not Problem.gradient

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """Material of each example, ``(n_examples,)``; examples of one source are not independent.

        Every example is a source of its own, unless a problem assigns others.
        """
        return self.example_ids

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

    def score_many(
        self, scales: npt.NDArray[np.float64], example_ids: Sequence[str] | None = None
    ) -> npt.NDArray[np.float64]:
        """Score the examples under several curves, one after the other unless a problem has a faster way.

        Args:
            scales: The curves, ``(n_candidates, n_layers)``.
            example_ids: The examples to score, in this order; all of them when ``None``.

        Returns:
            One score per curve and example, ``(n_candidates, n_examples)``.

        Raises:
            ScalesError: The scales have the wrong shape or a value that is not finite and positive.
        """
        if np.ndim(scales) != 2 or not len(scales):
            raise _not_several(np.shape(scales), self.n_layers)
        # No dtype, so that complex scores are refused later instead of losing a part here.
        return np.array([self.score(curve, example_ids) for curve in scales])

    def gradient(
        self,
        scales: npt.NDArray[np.float64],  # noqa: ARG002
        example_ids: Sequence[str] | None = None,  # noqa: ARG002
        weights: npt.NDArray[np.float64] | None = None,  # noqa: ARG002
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Score the examples, and take the gradient of a weighted sum of the scores with respect to the scales.

        Args:
            scales: Position divisor of each layer, ``(n_layers,)``.
            example_ids: The examples to score, in this order; all of them when ``None``.
            weights: Weight of each score, ``(n_examples,)``; ``None`` for equal weights with a sum of 1.

        Returns:
            One score per example, ``(n_examples,)``, and the derivative of their weighted sum with respect to each
            scale, ``(n_layers,)``.

        Raises:
            TaskError: The problem has no gradients, an example id is unknown, or there is not one finite weight for
                each example.
            ScalesError: The scales have the wrong shape or a value that is not finite and positive.
        """
        raise TaskError(
            f"Expected a problem with gradients, but {type(self).__name__} has none. "
            "Use an algorithm without gradients."
        )

    def n_tokens_of(self, example_ids: Sequence[str]) -> int:  # noqa: ARG002
        """Return the tokens, without padding, that a model forwards to score some examples under one curve.

        Args:
            example_ids: The examples.

        Returns:
            The number of tokens; 0 for a problem without a model.

        Raises:
            TaskError: An example id is unknown.
        """
        return 0

    def n_candidates_that_fit(self, example_ids: Sequence[str]) -> int:  # noqa: ARG002
        """Return under how many curves some examples are best scored at once.

        Args:
            example_ids: The examples.

        Returns:
            The number of candidates that `score_many` is best given, at least 1.

        Raises:
            TaskError: An example id is unknown.
        """
        return 1

    def smaller(self) -> "Problem | None":
        """Return the same problem with half the batch, for a device whose memory does not suffice.

        Returns:
            The problem, which shares its data with this one; ``None`` where there is nothing to halve.
        """
        return None


def check_curve(scales: npt.ArrayLike, n_layers: int) -> npt.NDArray[np.float64]:
    """Return one curve as float64 after checking it.

    Args:
        scales: The scales of one candidate, ``(n_layers,)``.
        n_layers: Number of layers.

    Returns:
        The scales, ``(n_layers,)``.

    Raises:
        ScalesError: The scales have the wrong shape or a value that is not finite and positive.
    """
    curve = check_scales(scales, n_layers)
    if curve.ndim != 1:
        raise ScalesError(
            f"Expected scales of shape (n_layers,) = ({n_layers},), but got {curve.shape}. "
            "Score one curve at a time, or several with score_many."
        )
    return curve


def check_curves(scales: npt.ArrayLike, n_layers: int) -> npt.NDArray[np.float64]:
    """Return several curves as float64 after checking them.

    Args:
        scales: The scales of the candidates, ``(n_candidates, n_layers)``.
        n_layers: Number of layers.

    Returns:
        The scales, ``(n_candidates, n_layers)``.

    Raises:
        ScalesError: The scales have the wrong shape or a value that is not finite and positive.
    """
    curves = check_scales(scales, n_layers)
    if curves.ndim != 2:
        raise _not_several(curves.shape, n_layers)
    return curves


def check_weights(weights: npt.ArrayLike | None, n_examples: int) -> npt.NDArray[np.float64]:
    """Return the weights of examples as float64; for ``None``, equal weights with a sum of 1.

    Args:
        weights: Weight of each score, ``(n_examples,)``.
        n_examples: Number of examples.

    Returns:
        The weights, ``(n_examples,)``.

    Raises:
        TaskError: There is not one finite weight for each example.
    """
    if weights is None:
        return np.full(n_examples, 1.0 / max(1, n_examples))
    array = np.asarray(weights, dtype=np.float64)
    if array.shape != (n_examples,) or not np.isfinite(array).all():
        raise TaskError(
            f"Expected finite weights of shape (n_examples,) = ({n_examples},), but got {array.shape} "
            f"with {np.isfinite(array).sum()} finite ones. Give one weight for each example."
        )
    return array


def _not_several(shape: tuple[int, ...], n_layers: int) -> ScalesError:
    """Return the error for scales that are not several curves."""
    return ScalesError(
        f"Expected scales of shape (n_candidates, n_layers) = (n, {n_layers}) with n >= 1, but got {shape}. "
        "Score one curve with score."
    )
