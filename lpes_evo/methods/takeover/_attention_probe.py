# ruff: noqa: TID253
"""`find_rotations`: the rotation of each attention layer of a model, from a forward pass over a few tokens."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch

from lpes_evo.accelerators import input_device
from lpes_evo.errors import UnsupportedModelError
from lpes_evo.methods.takeover._attention_interface import intercepted_attention
from lpes_evo.methods.takeover._rotation import Rotation, find_rotation, n_probes, probe_tables
from lpes_evo.rope import find_structure, without_compiled_code

__all__ = ["find_rotations"]

_rotations: WeakKeyDictionary[torch.nn.Module, dict[str, tuple[int, Rotation]]] = WeakKeyDictionary()
"""The rotations of decoders that were probed before, by the path of each rotating attention module."""


def find_rotations(model: torch.nn.Module) -> dict[str, tuple[int, Rotation]]:
    """Return the rotation of each attention layer of a model, by running the decoder once over a few tokens.

    Args:
        model: The model.

    Returns:
        Layer index and rotation by the path of the attention module inside the decoder, without the layers that do not
        rotate.

    Raises:
        UnsupportedModelError: The layers do not call the attention interface of transformers, or rotate in another way.
    """
    structure = find_structure(model)
    decoder = structure.decoder
    if decoder not in _rotations:
        if structure.own or not structure.shared:
            raise UnsupportedModelError(
                f"Expected one rotary module for all layers, but those of {type(decoder).__name__} have their own. "
                "This method does not go with the architecture; use lpes or pi."
            )
        _rotations[decoder] = _probe(decoder, structure.layers, structure.shared)
    return _rotations[decoder]


def _probe(
    decoder: Any, layers: tuple[torch.nn.Module, ...], rotary_modules: tuple[torch.nn.Module, ...]
) -> dict[str, tuple[int, Rotation]]:
    width = _table_width(decoder, rotary_modules)
    seen: dict[torch.nn.Module, tuple[torch.Tensor, torch.Tensor]] = {}

    def give(_module: Any, _args: Any, output: Any) -> Any:
        return probe_tables(output[0])

    def watch(
        module: Any, _underlying: Any, query: Any, key: Any, value: Any, _mask: Any, **_kwargs: Any
    ) -> Any:
        seen[module] = query, key
        batch, heads, length, _ = query.shape
        # With zeros as attention output all rows stay equal, so that in later layers they differ by the tables alone.
        return value.new_zeros(batch, length, heads, value.shape[-1]), None

    layer_of = {module: number for number, layer in enumerate(layers) for module in layer.modules()}
    handles = [module.register_forward_hook(give) for module in rotary_modules]
    try:
        with intercepted_attention(decoder, dict.fromkeys(layer_of, watch)):
            _run(decoder, n_probes(width))
    finally:
        for hook in handles:
            hook.remove()

    if not seen:
        raise UnsupportedModelError(
            f"Expected layers that call the attention interface of transformers, but those of {type(decoder).__name__} "
            "compute attention themselves. This method does not go with the architecture; use lpes or pi."
        )

    found = {}
    for path, module in decoder.named_modules():
        if module in seen:
            rotation = find_rotation(*seen[module], width, type(module).__name__)
            if rotation is not None:
                found[path] = layer_of[module], rotation

    return found


def _table_width(decoder: Any, rotary_modules: tuple[torch.nn.Module, ...]) -> int:
    """Return the number of columns of the rotary tables, from a forward pass."""
    shapes: list[Any] = []

    def look(_module: Any, _args: Any, output: Any) -> None:
        shapes.append(
            [tuple(table.shape) for table in output if not table.is_complex()]
            if type(output) is tuple
            else output
        )

    handles = [module.register_forward_hook(look) for module in rotary_modules]
    try:
        _run(decoder, 1)
    finally:
        for hook in handles:
            hook.remove()

    widths = {shape[0][-1] if isinstance(shape, list) and len(shape) == 2 else None for shape in shapes}
    width = widths.pop() if len(widths) == 1 else None
    if width is None:
        raise UnsupportedModelError(
            f"Expected the rotary modules of {type(decoder).__name__} to give cosines and sines of one width, but they "
            "do not, or a patch is on the model. This method does not go with it; use lpes or pi."
        )

    return int(width)


def _run(decoder: Any, batch: int) -> None:
    """Run a decoder over eight tokens in evaluation mode."""
    ids = (
        torch.arange(1, 9, device=input_device(decoder))[None].expand(batch, -1)
        % decoder.config.get_text_config().vocab_size
    )
    training = decoder.training
    decoder.eval()

    try:
        with without_compiled_code(), torch.no_grad():
            decoder(input_ids=ids, use_cache=False)
    finally:
        decoder.train(training)
