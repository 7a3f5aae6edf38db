"""Yarn: slow frequencies are interpolated, fast ones are kept, and attention gets a little more contrast."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from lpes_evo.methods._lpes import ScaledMethod
from lpes_evo.methods.takeover import MethodHandle

if TYPE_CHECKING:
    import torch


class Yarn(ScaledMethod):
    """Frequencies between ``theta_j / f`` and ``theta_j`` by a ramp over j (arXiv 2309.00071), at every length.

    This is the type ``yarn`` of transformers. With factor 1 it is the untouched model.

    Attributes:
        factor: The factor f by which the window is extended.
        beta_fast: Turns within the original window above which a frequency is kept.
        beta_slow: Turns below which a frequency is fully interpolated; smaller than ``beta_fast``.
        attention_factor: Factor of cosines and sines; ``None`` for ``0.1 ln f + 1``.
        original: Window in tokens that the model was trained with; ``None`` to take it from the config.
    """

    name: ClassVar[str] = "yarn"
    leading: ClassVar[str | None] = "factor"

    factor: float = Field(ge=1, le=1e6, allow_inf_nan=False)
    beta_fast: float = Field(default=32.0, ge=1e-6, le=1e6, allow_inf_nan=False)
    beta_slow: float = Field(default=1.0, ge=1e-6, le=1e6, allow_inf_nan=False)
    attention_factor: float | None = Field(default=None, ge=1e-6, le=1e6, allow_inf_nan=False)
    original: int | None = Field(default=None, ge=1, le=10**9)

    @model_validator(mode="after")
    def _the_ramp_falls(self) -> "Yarn":
        if self.beta_fast <= self.beta_slow:
            raise ValueError(
                f"expected beta_fast above beta_slow, but got {self.beta_fast:g} and {self.beta_slow:g}"
            )
        return self

    @contextmanager
    def change_rotation(
        self,
        model: "torch.nn.Module",
        handle: MethodHandle,  # noqa: ARG002
        scales: npt.NDArray[np.float64] | None,
    ) -> Iterator[None]:
        """Return a context in which the rotary modules are of the type ``yarn``.

        Raises:
            UnsupportedModelError: The model is not of the default rotary type, or its family does not support ``yarn``.
            ModelError: The model's rotary frequencies are not sound.
        """
        from lpes_evo.methods.takeover import check_describes, replaced_rotary, rotary_variant
        from lpes_evo.rope import patch_rope

        check_describes(model, self.name)
        parameters = self._parameters(model)
        changed = self.factor != 1 or self.attention_factor not in (None, 1)
        with (
            replaced_rotary(model, lambda module: rotary_variant(module, parameters=parameters))
            if changed
            else nullcontext(),
            patch_rope(model, scales) if scales is not None else nullcontext(),
        ):
            yield

    def _parameters(self, model: "torch.nn.Module") -> dict[str, Any]:
        from lpes_evo.methods.takeover import original_length

        given = {} if self.attention_factor is None else {"attention_factor": self.attention_factor}
        return {
            "rope_type": "yarn",
            "factor": self.factor,
            "beta_fast": self.beta_fast,
            "beta_slow": self.beta_slow,
            "original_max_position_embeddings": original_length(model, self.original),
            **given,
        }
