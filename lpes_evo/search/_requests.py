"""Requests: what an algorithm asks its search to evaluate, a candidate or the gradient at some scales."""

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from lpes_evo.errors import CurveError
from lpes_evo.operators import BezierGenome


@dataclass(frozen=True)
class Candidate:
    """A genome that an algorithm wants to have evaluated.

    Attributes:
        genome: The genome, feasible in the space of the search.
        reference: Scores that the candidate is raced against, ``(n_examples,)``, usually those of
            `lpes_evo.search.Progress`; ``None`` for an evaluation on all examples.
    """

    genome: BezierGenome
    reference: tuple[float, ...] | None = None


class GradientProbe:
    """Scales at which a search wants the gradient of the fitness on one sample of the examples.

    Its evaluation has the status ``"sampled"``. Two probes are equal when their keys are.

    Args:
        scales: Position divisors, ``(n_layers,)``.
        sample: Number of the sample of examples on which the gradient is taken.

    Attributes:
        sample: Number of the sample.

    Raises:
        CurveError: There are fewer than two layers, a scale is not a finite number, or the sample is not a whole
            number from 0.
    """

    KEY_PREFIX: ClassVar[str] = "gradient "
    """The beginning of the key of every probe; no key of a genome begins so."""

    def __init__(self, scales: npt.ArrayLike, sample: int) -> None:
        try:
            points = list(enumerate(np.asarray(scales, dtype=np.float64).tolist()))
        except (TypeError, ValueError, OverflowError) as error:
            raise CurveError(
                f"Expected one number for each layer, but got {scales!r:.80}. Give scales (n_layers,)."
            ) from error
        if not isinstance(sample, int) or sample < 0:
            raise CurveError(
                f"Expected the number of a sample to be a whole number from 0, but got {sample!r:.80}."
            )

        # The straight pieces through the scales are checked, and written to journals, as those of any curve.
        self._curve = BezierGenome(points)
        self.sample = sample

    @property
    def scales(self) -> npt.NDArray[np.float64]:
        """The scales, ``(n_layers,)``."""
        return np.array([scale for _, scale in self._curve])

    @property
    def control_points(self) -> tuple[tuple[float, float], ...]:
        """The corners (layer, scale) of the straight pieces through the scales, ``(n_layers, 2)``."""
        return tuple(self._curve)

    @property
    def key(self) -> str:
        """Scales and sample as text, for caches and journals: other examples give another gradient."""
        return f"{self.KEY_PREFIX}{self.sample}: {self._curve.key}"

    def __eq__(self, other: object) -> bool:
        """Return whether the other is a probe of the same scales and sample."""
        return isinstance(other, GradientProbe) and self.key == other.key

    def __hash__(self) -> int:
        """Return the hash of the key."""
        return hash(self.key)

    def __repr__(self) -> str:
        """Return scales and sample as text."""
        return f"GradientProbe({self.scales.tolist()}, {self.sample})"


Request: TypeAlias = Candidate | GradientProbe
"""What an algorithm proposes."""
