"""PositionInterpolation: every position is divided by one factor."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from lpes_evo.methods._lpes import ScaledMethod
from lpes_evo.methods.takeover import MethodHandle

if TYPE_CHECKING:
    import torch


class PositionInterpolation(ScaledMethod):
    """Position ``m`` is rotated by ``m / s * theta_j`` at every length (arXiv 2306.15595).

    On a model of the default rotary type this is the type ``linear`` of transformers. On other models (the config
    extends positions in another way, the model keeps a fixed table, or the family lacks the type) positions are divided
    before they reach the model's own rotary modules.

    Attributes:
        factor: The divisor s, from 1e-6 to 1e6; above 1 it moves positions closer together.
    """

    name: ClassVar[str] = "pi"
    leading: ClassVar[str | None] = "factor"

    factor: float = Field(ge=1e-6, le=1e6, allow_inf_nan=False)

    def departures(self, model: "torch.nn.Module") -> tuple[str, ...]:
        """Return where the computation departs, on a model, from the type ``linear`` of transformers."""
        from lpes_evo.methods.takeover import interpolated_rotary

        if interpolated_rotary(model, self.factor) is not None:
            return ()
        return (
            "positions are divided in front of the model's own rotary modules, since these cannot be of the type "
            "linear of transformers",
        )

    @contextmanager
    def change_rotation(
        self,
        model: "torch.nn.Module",
        handle: MethodHandle,  # noqa: ARG002
        scales: npt.NDArray[np.float64] | None,
    ) -> Iterator[None]:
        """Return a context in which positions are divided by the factor and by the scale of the layer."""
        from lpes_evo.methods.takeover import interpolated_rotary, replaced_rotary
        from lpes_evo.rope import count_layers, patch_rope

        stand_ins = interpolated_rotary(model, self.factor)
        if stand_ins is None:
            divisors = np.ones(count_layers(model)) if scales is None else scales
            with patch_rope(model, self.factor * divisors):
                yield
            return

        with (
            replaced_rotary(model, stand_ins.__getitem__),
            patch_rope(model, scales) if scales is not None else nullcontext(),
        ):
            yield
