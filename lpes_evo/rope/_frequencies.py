"""Soundness of a model's rotary frequencies."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from lpes_evo.errors import ModelError
from lpes_evo.rope._structure import find_structure

__all__ = ["check_frequencies"]


def check_frequencies(model: torch.nn.Module) -> None:
    """Check the rotary frequencies of a model.

    The frequencies are a buffer that no checkpoint holds. Loading tricks (the meta device, half-precision
    casts) can leave it uninitialised or coarse, and the model runs on without an error.

    Args:
        model: A causal language model of transformers with rotary position embeddings.

    Raises:
        UnsupportedModelError: The model has no rotary embedding.
        ModelError: A frequency is not finite or not positive, they do not decrease, or the first one is not
            1.
    """
    structure = find_structure(model)
    for module in (*structure.shared, *(module for module, _ in structure.own)):
        for name, buffer in _frequencies(module):
            values = buffer.detach().to("cpu", torch.float64)
            if not torch.isfinite(values).all() or not (values > 0).all() or not (values.diff() < 0).all():
                raise ModelError(
                    f"Expected rotary frequencies {name} that are finite, positive and decreasing."
                )


def _frequencies(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the frequencies in use: one set, or one for each layer type."""
    for name, buffer in module.named_buffers(recurse=False):
        if name.endswith("inv_freq") and "original" not in name:
            yield name, buffer
