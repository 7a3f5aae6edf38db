"""RopeStructure: the decoder layers and the rotary modules of a model, and the functions that find them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import torch

from lpes_evo.errors import UnsupportedModelError

__all__ = [
    "RopeStructure",
    "count_layers",
    "decoder_layers",
    "find_structure",
    "is_dynamic",
    "is_rotary",
    "rope_types",
    "unwrapped_model",
]


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

    @property
    def rotary_modules(self) -> tuple[torch.nn.Module, ...]:
        """Every rotary module of the decoder."""
        return (*self.shared, *(module for module, _ in self.own))


def is_rotary(module: torch.nn.Module) -> bool:
    """Return whether a module computes rotary tables, by the class names that transformers uses."""
    return "RotaryEmbedding" in type(module).__name__


def rope_types(module: torch.nn.Module) -> set[str]:
    """Return the rotary types of a module, such as ``default`` or ``yarn``; layer types may differ in it."""
    kind = getattr(module, "rope_type", "default")
    return set(kind.values()) if isinstance(kind, dict) else {kind}


def is_dynamic(module: torch.nn.Module) -> bool:
    """Return whether a rotary module derives its frequencies from the largest position it sees."""
    return any("dynamic" in kind or kind == "longrope" for kind in rope_types(module))


def count_layers(model: torch.nn.Module) -> int:
    """Return the number of decoder layers, which is the number of scales that the model takes.

    Layers without rotary embedding (recurrent layers, or attention layers that a config exempts) are counted, so that
    a curve over the depth of the model keeps its meaning. Their scales have no effect.

    Args:
        model: A causal language model of transformers.

    Returns:
        The number of decoder layers.

    Raises:
        UnsupportedModelError: The model has no layers, none that could be found, or no rotary embedding.
    """
    return len(decoder_layers(model))


def decoder_layers(model: torch.nn.Module) -> tuple[torch.nn.Module, ...]:
    """Return the decoder layers in order; layer ``h`` takes ``scales[h]``.

    Args:
        model: A causal language model of transformers, patched or not.

    Raises:
        UnsupportedModelError: The model has no layers, none that could be found, or no rotary embedding.
    """
    return find_structure(model).layers


def find_structure(model: torch.nn.Module) -> RopeStructure:
    """Return the decoder layers and rotary modules of a model.

    Args:
        model: A causal language model of transformers, or its decoder; it may be wrapped, see `unwrapped_model`.

    Returns:
        The structure of the text decoder, without vision and audio towers.

    Raises:
        UnsupportedModelError: The model has no layers, none that could be found, or no rotary embedding, or a wrapper
            around it does more than run it.
    """
    model = unwrapped_model(model)
    config = _text_config(model)
    name = type(model).__name__

    # Where a config has num_layers beside num_hidden_layers, the latter counts the slots of its cache.
    n_layers = getattr(config, "num_layers", None) or getattr(config, "num_hidden_layers", None)
    if not isinstance(n_layers, int):
        raise UnsupportedModelError(
            f"Expected a causal language model of transformers whose config states num_hidden_layers, but {name} "
            "states none. Pass a decoder with one list of layers."
        )

    if n_layers < 1:
        raise UnsupportedModelError(
            f"Expected a model of at least one layer, but the config of {name} states num_hidden_layers = {n_layers}. "
            "Correct its config.json."
        )

    if getattr(config, "alibi", None):
        # Falcon builds its rotary module even with alibi, and passes the tables to layers that ignore them.
        raise UnsupportedModelError(
            f"Expected a model with rotary position embeddings, but {name} biases attention by distance instead (alibi "
            "in its config). Only models that rotate queries and keys by position (Llama, Qwen, Mistral, Gemma and the "
            "like) can be scaled."
        )

    found = []
    for path, owner in model.named_modules():
        for child in owner.children():
            if isinstance(child, torch.nn.ModuleList) and len(child) == n_layers:
                structure = _structure(owner, child)
                if structure.rotary_modules:
                    # The config distinguishes the text decoder from a tower of equal depth. Among owners with the
                    # same config, the one nearest to the root is the decoder.
                    rank = (getattr(owner, "config", None) is not config, path.count("."))
                    found.append((rank, structure))

    if found:
        return min(found, key=lambda entry: entry[0])[1]

    if any(is_rotary(module) for module in model.modules()):
        raise UnsupportedModelError(
            f"Expected one list of {n_layers} decoder layers (config.num_hidden_layers) with its rotary module, but "
            f"{name} runs its rotary attention outside of such a list. Its layers cannot be scaled one by one."
        )

    raise UnsupportedModelError(
        f"Expected a model with rotary position embeddings, but {name} has no rotary module. Only models that rotate "
        "queries and keys by position (Llama, Qwen, Mistral, Gemma and the like) can be scaled."
    )


def unwrapped_model(model: torch.nn.Module) -> torch.nn.Module:
    """Return the model of transformers that a wrapper runs; a model without a wrapper is returned as it is.

    Known wrappers are those of ``torch.compile``, ``DataParallel`` and ``DistributedDataParallel`` of torch, and the
    models and tuners of peft. Hooks on the model inside are in force however the model is called. Hooks on the wrapper
    would not be: its ``generate``, for example, runs the model inside and bypasses the forward of the wrapper.

    Args:
        model: A causal language model of transformers, in any number of wrappers.

    Raises:
        UnsupportedModelError: A wrapper runs copies of the model, or puts virtual tokens in front of every prompt.
    """
    inner = _inside(model)
    while inner is not None:
        model = inner
        inner = _inside(model)
    return model


def _inside(model: torch.nn.Module) -> torch.nn.Module | None:
    """Return the model inside a wrapper, or ``None`` for a module that is no wrapper."""
    if isinstance(model, torch.nn.DataParallel) and len(model.device_ids) > 1:
        raise UnsupportedModelError(
            f"Expected a model that runs itself, but DataParallel runs {len(model.device_ids)} copies of it in "
            "threads, which hooks on the model do not follow. Pass the model inside, model.module, and give each "
            "device a process of its own."
        )

    if isinstance(model, (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)):
        module: torch.nn.Module = model.module
        return module

    if "_orig_mod" in model._modules:
        return model._modules["_orig_mod"]
    return _inside_adapter(model)


def _inside_adapter(model: Any) -> torch.nn.Module | None:
    """Return the model inside a model or a tuner of peft, or ``None`` for any other module."""
    # A model of peft can only exist if peft was imported.
    peft = sys.modules.get("peft")
    if peft is None:
        return None

    if isinstance(model, (peft.PeftModel, peft.PeftMixedModel)):
        kinds = [config.peft_type.value for config in model.peft_config.values() if config.is_prompt_learning]
        if kinds:
            raise UnsupportedModelError(
                f"Expected an adapter that changes weights alone, but {kinds[0]} puts virtual tokens in front of every "
                "prompt, which shifts the positions of the text. Use an adapter such as LoRA."
            )
        inner: torch.nn.Module = model.base_model
        return inner

    if isinstance(model, peft.tuners.tuners_utils.BaseTuner):
        tuned: torch.nn.Module = model.model
        return tuned

    return None


def _text_config(model: torch.nn.Module) -> Any:
    """Return the config of the text decoder."""
    config: Any = getattr(model, "config", None)
    return config.get_text_config(decoder=True) if hasattr(config, "get_text_config") else config


def _structure(decoder: torch.nn.Module, layers: torch.nn.ModuleList) -> RopeStructure:
    """Return the structure of one decoder, whose rotary modules are each inside a layer or shared by the layers."""
    own = {
        module: index for index, layer in enumerate(layers) for module in layer.modules() if is_rotary(module)
    }
    shared = tuple(module for module in decoder.modules() if is_rotary(module) and module not in own)
    return RopeStructure(decoder, tuple(layers), shared, tuple(own.items()))
