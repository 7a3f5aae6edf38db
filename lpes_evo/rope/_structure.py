"""Where a model keeps its decoder layers and its rotary modules."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch

from lpes_evo.errors import UnsupportedModelError

__all__ = ["RopeStructure", "count_layers", "find_structure", "is_rotary", "rope_types"]


@dataclass(frozen=True)
class RopeStructure:
    """The parts of a model that the patch hooks.

    Attributes:
        decoder: The module that owns the decoder layers.
        layers: The decoder layers in order; layer ``h`` takes ``scales[h]``.
        shared: Rotary modules that compute the tables of all layers.
        own: Rotary modules inside one layer, each with the index of that layer.
    """

    decoder: torch.nn.Module
    layers: tuple[torch.nn.Module, ...]
    shared: tuple[torch.nn.Module, ...]
    own: tuple[tuple[torch.nn.Module, int], ...]


def is_rotary(module: torch.nn.Module) -> bool:
    """Return whether a module computes rotary tables, by the naming that transformers keeps to."""
    return "RotaryEmbedding" in type(module).__name__


def rope_types(module: torch.nn.Module) -> set[str]:
    """Return the rotary types of a rotary module, such as ``default`` or ``yarn``; layer types may differ."""
    kind = getattr(module, "rope_type", "default")
    return set(kind.values()) if isinstance(kind, dict) else {kind}


def count_layers(model: torch.nn.Module) -> int:
    """Return the number of decoder layers, which is the number of scales that the model takes.

    Layers without rotary embedding (recurrent layers, or attention layers that a config exempts) are counted,
    so that a curve over the depth of the model keeps its meaning; their scales have no effect.

    Args:
        model: A causal language model of transformers.

    Returns:
        The number of decoder layers.

    Raises:
        UnsupportedModelError: The model has no decoder layers that could be found, or no rotary embedding.
    """
    return len(find_structure(model).layers)


def find_structure(model: torch.nn.Module) -> RopeStructure:
    """Return the decoder layers and rotary modules of a model.

    Args:
        model: A causal language model of transformers, or its decoder.

    Returns:
        The structure of the text decoder; vision and audio towers are left alone.

    Raises:
        UnsupportedModelError: The model has no decoder layers that could be found, or no rotary embedding.
    """
    config = _text_config(model)
    n_layers = getattr(config, "num_hidden_layers", None)
    if not isinstance(n_layers, int):
        raise UnsupportedModelError(
            f"Expected a causal language model of transformers with config.num_hidden_layers, but "
            f"{type(model).__name__} has none. Pass a decoder whose config states its number of layers."
        )
    found = []
    for name, owner in model.named_modules():
        for child in owner.children():
            if isinstance(child, torch.nn.ModuleList) and len(child) == n_layers:
                # The config tells the text decoder from a tower of equal depth; the shallower module is the
                # better.
                rank = (getattr(owner, "config", None) is not config, name.count("."))
                structure = _structure(owner, child)
                if structure.shared or structure.own:
                    found.append((rank, structure))
    if not found:
        raise UnsupportedModelError(
            f"Expected a model with rotary position embeddings, but {type(model).__name__} has no rotary module "
            f"beside or inside its {n_layers} decoder layers. Only models that rotate queries and keys by position "
            "(Llama, Qwen, Mistral, Gemma and the like) can be scaled."
        )
    return min(found, key=lambda entry: entry[0])[1]


def _text_config(model: torch.nn.Module) -> Any:
    """Return the config of the text decoder."""
    config: Any = getattr(model, "config", None)
    if config is None or not hasattr(config, "get_text_config"):
        return config
    if "decoder" in inspect.signature(config.get_text_config).parameters:
        return config.get_text_config(decoder=True)
    return config.get_text_config()


def _structure(decoder: torch.nn.Module, layers: torch.nn.ModuleList) -> RopeStructure:
    """Return the structure of one decoder: every rotary module is inside a layer, or shared by the layers."""
    own = [
        (module, index)
        for index, layer in enumerate(layers)
        for module in layer.modules()
        if is_rotary(module)
    ]
    inside = {id(module) for module, _ in own}
    shared = [module for module in decoder.children() if is_rotary(module) and id(module) not in inside]
    return RopeStructure(decoder, tuple(layers), tuple(shared), tuple(own))
