"""Position Interpolation: every position divided by one factor."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from lpes_evo.methods._lpes import ScaledMethod
from lpes_evo.methods._method import Applied

if TYPE_CHECKING:
    import torch


class PositionInterpolation(ScaledMethod):
    """Position ``m`` is rotated by ``m / s * theta_j`` at every length (arXiv 2306.15595).

    On a model of the default rotary type it is the type ``linear`` of transformers. A model whose config extends
    positions in another way, or keeps a fixed table, has its positions divided in front of that.

    Attributes:
        factor: The divisor s; above 1 positions move together.
    """

    name: ClassVar[str] = "pi"
    leading: ClassVar[str | None] = "factor"

    factor: float = Field(gt=0, le=1e6, allow_inf_nan=False)

    @contextmanager
    def change_rotation(
        self,
        model: "torch.nn.Module",
        applied: Applied,  # noqa: ARG002
        scales: npt.NDArray[np.float64] | None,
    ) -> Iterator[None]:
        """Return a context in which positions are divided by the factor and by the scale of the layer."""
        from lpes_evo.methods._variants import has_default_types, replaced_rotary, rotary_variant
        from lpes_evo.rope import count_layers, patch_rope

        if not has_default_types(model):
            divisors = np.ones(count_layers(model)) if scales is None else scales
            with patch_rope(model, self.factor * divisors):
                yield
            return
        parameters = {"rope_type": "linear", "factor": self.factor}
        with (
            replaced_rotary(model, lambda module: rotary_variant(module, parameters=parameters)),
            patch_rope(model, scales) if scales is not None else nullcontext(),
        ):
            yield
