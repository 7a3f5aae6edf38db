"""`rotary_layers`: the layers of a model that rotate by position, found by a forward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from lpes_evo.accelerators import input_device
from lpes_evo.rope._compiled import without_compiled_code
from lpes_evo.rope._patch import RopePatch, patch_rope
from lpes_evo.rope._structure import count_layers, unwrapped_model

__all__ = ["rotary_layers"]


def rotary_layers(model: torch.nn.Module) -> tuple[int, ...]:
    """Return the layers whose scale has an effect.

    Hybrid models mix attention with recurrent layers, and some families (SmolLM3, Llama 4, EXAONE 4) exempt attention
    layers from rotation. Configs state this in many ways, so the answer comes from a forward pass over four tokens.
    The pass records the rotary tables that reach each layer. A layer rotates if the output was computed from its
    tables. Only the autograd graph decides, so weights that are zero or not finite do not change the answer.

    Args:
        model: A causal language model of transformers with rotary position embeddings.

    Returns:
        The indices of the rotary layers, ascending; every other entry of a vector of scales has no effect.

    Raises:
        UnsupportedModelError: The architecture has no rotary embedding that can be scaled layer by layer.
        ModelError: The model's rotary frequencies are not sound.
    """
    model = unwrapped_model(model)
    scales = torch.ones(count_layers(model), requires_grad=True)
    ids = torch.arange(1, 5, device=input_device(model))[None]
    taken: list[tuple[int, torch.Tensor]] = []

    def record(layer: int, tables: Any) -> None:
        for table in tables if isinstance(tables, (tuple, list)) else (tables,):
            taken.append((layer, table))

    with (
        without_compiled_code(),
        torch.enable_grad(),
        patch_rope(model, scales) as patch,
        _listening(patch, record),
    ):
        score = model(input_ids=ids, use_cache=False).logits.float().logsumexp(-1).sum()

    # For a table that the score was not computed from, autograd gives None instead of a gradient.
    if not taken:
        return ()

    slopes = torch.autograd.grad(score, [table for _, table in taken], allow_unused=True)
    return tuple(
        sorted({layer for (layer, _), slope in zip(taken, slopes, strict=True) if slope is not None})
    )


@contextmanager
def _listening(patch: RopePatch, record: Callable[[int, Any], None]) -> Iterator[None]:
    """Call a function with the tables of every layer for the length of a block."""
    patch._hooks.on_tables = record
    try:
        yield
    finally:
        patch._hooks.on_tables = None
