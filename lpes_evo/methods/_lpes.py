"""Lpes: one scale for each layer. ScaledMethod: a method that can have such scales on top."""

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from lpes_evo.methods._method import Method
from lpes_evo.methods.takeover import MethodHandle
from lpes_evo.scales import Scales

if TYPE_CHECKING:
    import torch


class Lpes(Method):
    """Layer ``h`` rotates position ``m`` as ``m / s_h`` (arXiv 2606.27705).

    Attributes:
        scales: The scales. If they were found at another depth, they are read off their curve for this model.
    """

    name: ClassVar[str] = "lpes"

    scales: Scales

    @contextmanager
    def _apply(self, model: "torch.nn.Module") -> Iterator[MethodHandle]:
        """Return a context in which every layer has its scale.

        Raises:
            ScalesError: The curve cannot be read at the depth of the model.
            UnsupportedModelError: The model cannot be scaled layer by layer.
        """
        from lpes_evo.rope import count_layers, patch_rope

        with patch_rope(model, layer_scales(self.scales, count_layers(model))):
            yield MethodHandle()

    def _settings(self, n_layers: int) -> dict[str, Any]:
        """Return the scales in force, and the model and task that they were found with."""
        return scales_record(self.scales, n_layers)


class ScaledMethod(Method):
    """A method that changes the rotation of all layers alike, and may have per-layer scales on top.

    Attributes:
        scales: Scales on top of the method, ``m / s_h`` in layer ``h``; ``None`` for none.
    """

    scales: Scales | None = None

    @contextmanager
    def _apply(self, model: "torch.nn.Module") -> Iterator[MethodHandle]:
        """Return a context in which the model rotates as the method says, with each layer under its scale.

        Raises:
            ScalesError: The curve of the scales cannot be read at the depth of the model.
            UnsupportedModelError: The method does not support the rotary modules of the model.
            ModelError: The model's rotary frequencies are not sound.
        """
        from lpes_evo.rope import count_layers

        scales = None if self.scales is None else layer_scales(self.scales, count_layers(model))
        handle = MethodHandle()
        with self.change_rotation(model, handle, scales):
            yield handle

    @abstractmethod
    def change_rotation(
        self, model: "torch.nn.Module", handle: MethodHandle, scales: npt.NDArray[np.float64] | None
    ) -> AbstractContextManager[Any]:
        """Return a context in which the model rotates as the method says.

        Args:
            model: The model.
            handle: The handle of the method, which knows where prompts end.
            scales: Scales on top, ``(n_layers,)``, or ``None``.
        """

    def _settings(self, n_layers: int) -> dict[str, Any]:
        """Return the settings, and the scales on top with the model and task that they were found with."""
        settings = self.model_dump(mode="json", exclude={"scales"})
        return settings if self.scales is None else settings | scales_record(self.scales, n_layers)


def layer_scales(scales: Scales, n_layers: int) -> npt.NDArray[np.float64]:
    """Return scales as ``(n_layers,)``, read off their curve if they were found at another depth."""
    return np.asarray(scales.at_depth(n_layers).scales, dtype=np.float64)


def scales_record(scales: Scales, n_layers: int) -> dict[str, Any]:
    """Return the scales in force on a model of ``n_layers`` layers, and the model and task of their search."""
    return {
        "scales": list(scales.at_depth(n_layers).scales),
        "found_on": scales.model,
        "found_with_task": scales.task,
        "found_at_depth": scales.n_layers,
    }
