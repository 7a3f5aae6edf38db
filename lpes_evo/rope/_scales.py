"""LayerScales: checked scales, as tensors on the device that the hooks divide positions on."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from lpes_evo.errors import ScalesError
from lpes_evo.scales import check_scales

__all__ = ["CheckedScales", "LayerScales"]


class LayerScales:
    """Checked scales of a model, available on any device.

    A tensor that requires gradients is live: it is read anew at every forward pass, so that an optimiser may change it
    in place. Any other value is copied once.

    Attributes:
        live: Whether the scales are a tensor that requires gradients.
    """

    def __init__(self, scales: npt.ArrayLike | torch.Tensor, n_layers: int) -> None:
        """Check the scales.

        Raises:
            ScalesError: The scales are not readable real numbers, have a wrong shape, or hold a value that is not
                finite or lies outside 1e-6 to 1e6.
        """
        is_checked = isinstance(scales, CheckedScales) and scales.n_layers == n_layers
        checked = scales if is_checked else CheckedScales(scales, n_layers)
        values = torch.from_numpy(np.array(checked))
        self.live = isinstance(scales, torch.Tensor) and scales.requires_grad
        self._scales: torch.Tensor = scales if self.live and isinstance(scales, torch.Tensor) else values
        self._ready: dict[torch.device, torch.Tensor] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> LayerScales:
        """Return a copy that is cut off from the autograd graph, which cannot be copied."""
        return LayerScales(self._scales.detach(), self._scales.shape[-1])

    @property
    def identity(self) -> Hashable:
        """A key that is equal for equal scales; live scales keep their key until they are changed in place."""
        if self.live:
            return self, self._scales._version
        return tuple(self._scales.shape), self._scales.numpy().tobytes()

    def on(self, device: torch.device) -> torch.Tensor:
        """Return the scales as divisors ``(n_layers, rows, 1)``, with one row for a single curve.

        The divisors are float64 where the device supports it. The division is then the only rounding of ``m / s``
        before angles are computed in float32.
        """
        if self.live:
            return self._arrange(device)
        ready = self._ready.get(device)
        if ready is None:
            ready = self._ready[device] = self._arrange(device)
        return ready

    def _arrange(self, device: torch.device) -> torch.Tensor:
        dtype = torch.float32 if device.type == "mps" else torch.float64
        rows = self._scales if self._scales.dim() == 2 else self._scales[None]
        return rows.to(dtype).to(device).T.unsqueeze(-1)


def _readable(scales: npt.ArrayLike | torch.Tensor) -> npt.ArrayLike:
    """Return scales as an array without gradients.

    Raises:
        ScalesError: Values would be lost silently: the scales are masked, complex, sparse or without values.
    """
    if isinstance(scales, np.ma.MaskedArray):
        raise ScalesError(
            "Expected scales without a mask, but got a masked array, whose mask would be ignored. Fill it first."
        )

    if not isinstance(scales, torch.Tensor):
        return scales

    if scales.is_meta or scales.layout != torch.strided or scales.is_nested or scales.is_quantized:
        kind = "a tensor on the meta device" if scales.is_meta else f"a tensor of layout {scales.layout}"
        raise ScalesError(
            f"Expected scales as a dense tensor with values, but got {kind}. Pass a list or an array."
        )

    if scales.is_complex():
        raise ScalesError(
            f"Expected scales to be real numbers, but got {scales.dtype}. Pass their real part."
        )

    return scales.detach().cpu().double().numpy()


class CheckedScales:
    """Scales that were checked once, so that their rows are put into force without another check.

    It is array-like, and `patch_rope` and `RopePatch.set` take it as they take any scales.

    Args:
        scales: Position divisors, ``(n_layers,)`` or ``(batch, n_layers)``.
        n_layers: Number of layers of the model.

    Raises:
        ScalesError: The scales are not readable real numbers, have a wrong shape, or hold a value that is not finite
            or lies outside 1e-6 to 1e6.
    """

    def __init__(self, scales: npt.ArrayLike | torch.Tensor, n_layers: int) -> None:
        self._values: npt.NDArray[np.float64] = check_scales(_readable(scales), n_layers).copy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[np.float64]:
        """Return a copy of the scales as an array."""
        values: npt.NDArray[np.float64] = self._values.astype(dtype or np.float64)
        return values

    @property
    def n_layers(self) -> int:
        """Number of layers of the model."""
        return int(self._values.shape[-1])

    def rows(self, numbers: Sequence[int]) -> CheckedScales:
        """Return some rows of scales of shape ``(batch, n_layers)``, in the given order.

        Args:
            numbers: Numbers of the rows; a row may come several times.
        """
        chosen = CheckedScales.__new__(CheckedScales)
        chosen._values = self._values[list(numbers)]
        return chosen
