"""What a search asks for where it wants to know in which direction the fitness grows."""

from typing import ClassVar

import numpy as np
import numpy.typing as npt

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
        CurveError: There are fewer than two layers, or a scale is not finite.
    """

    KEY_PREFIX: ClassVar[str] = "gradient "
    """What the keys of all probes begin with, and no key of a genome does."""

    sample: int

    def __init__(self, scales: npt.ArrayLike, sample: int) -> None:
        super().__init__(enumerate(np.asarray(scales, dtype=np.float64).tolist()))
        self.sample = sample

    @property
    def scales(self) -> npt.NDArray[np.float64]:
        """The scales, ``(n_layers,)``."""
        return np.array([scale for _, scale in self])

    @property
    def key(self) -> str:
        """The content as text, for caches and journals."""
        return f"{self.KEY_PREFIX}{self.sample}: {super().key}"
