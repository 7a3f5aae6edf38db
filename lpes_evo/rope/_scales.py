"""Scales in the form that the hooks divide by."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
import torch

from lpes_evo.scales import check_scales

__all__ = ["Divisors"]


class Divisors:
    """Checked scales, ready on any device.

    A tensor that requires gradients is read anew at every forward, so an optimiser may change it in place;
    anything else is copied once.
    """

    def __init__(self, scales: npt.ArrayLike | torch.Tensor, n_layers: int) -> None:
        array = (
            scales.detach().to("cpu", torch.float64).numpy() if isinstance(scales, torch.Tensor) else scales
        )
        values = torch.from_numpy(check_scales(array, n_layers).copy())
        self.live = isinstance(scales, torch.Tensor) and scales.requires_grad
        self._scales: torch.Tensor = scales if self.live and isinstance(scales, torch.Tensor) else values
        self._ready: dict[torch.device, torch.Tensor] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> Divisors:
        """Return a copy that is cut off from the autograd graph, which cannot be copied."""
        return Divisors(self._scales.detach(), self._scales.shape[-1])

    def on(self, device: torch.device) -> torch.Tensor:
        """Return the divisors as ``(n_layers, rows, 1)``, with one row for a single curve.

        Divisors are float64 where the device has it: the division is then the only rounding of ``m / s``
        before angles are taken in float32.
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
        return rows.to(device, dtype).T.unsqueeze(-1)
