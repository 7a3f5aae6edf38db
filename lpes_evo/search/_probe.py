"""What a search asks for where it wants to know in which direction the fitness grows."""

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from lpes_evo.errors import CurveError
from lpes_evo.operators import BezierGenome


class GradientProbe(BezierGenome):
    """Scales at which a search wants the gradient of the fitness, as the curve of straight pieces through them.

    It is told as an evaluation of status ``"sampled"``. Its key is that of its points and its sample, because the same
    scales have other gradients on other examples.

    Args:
        scales: Position divisors, ``(n_layers,)``.
        sample: Number of the sample of examples that the gradient is taken of.

    Attributes:
        sample: Number of the sample.

    Raises:
        CurveError: There are fewer than two layers, a scale is not a finite number, or the sample no whole number
            from 0.
    """

    KEY_PREFIX: ClassVar[str] = "gradient "
    """What the keys of all probes begin with, and no key of a genome does."""

    sample: int

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
        super().__init__(points)
        self.sample = sample

    @property
    def scales(self) -> npt.NDArray[np.float64]:
        """The scales, ``(n_layers,)``."""
        return np.array([scale for _, scale in self])

    @property
    def key(self) -> str:
        """The content as text, for caches and journals."""
        return f"{self.KEY_PREFIX}{self.sample}: {super().key}"
