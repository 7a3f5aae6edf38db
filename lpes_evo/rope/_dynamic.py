"""Rotary types that follow the length of the input, held to the length of each forward pass alone."""

from __future__ import annotations

from typing import Any

import torch

from lpes_evo.errors import UnsupportedModelError
from lpes_evo.rope._structure import is_dynamic, is_rotary, rope_types
from lpes_evo.rope._tables import measures_length

__all__ = ["forget_lengths"]

_MARK = "_lpes_forgets_lengths"


def forget_lengths(model: torch.nn.Module) -> bool:
    """Make a model whose frequencies follow the length of its input forget the inputs before.

    The type ``dynamic`` of transformers keeps the base of the longest input so far, so the same prompt has other
    logits after a longer one. From this call on, every forward pass begins with the frequencies of a fresh model and
    follows the largest position of that pass alone, as a lone ``generate`` of the prompt on a fresh model does. The
    type ``longrope``, and the rotary module of PhiMoE, remember nothing, but choose by the longest row of a batch as
    well.

    The hooks stay on the model. A second call does nothing, and neither does a call on a model of another type.

    Args:
        model: A causal language model of transformers, patched or not.

    Returns:
        Whether frequencies follow the length: only rows of one length may then share a forward pass, without padding.

    Raises:
        UnsupportedModelError: A rotary module of a family's own code remembers lengths in a way that is not known.
    """
    follows = False
    for module in model.modules():
        if not is_rotary(module) or not _follows_length(module):
            continue
        follows = True
        if not _dynamic_prefixes(module) or getattr(module, _MARK, False):
            continue
        if not all(hasattr(module, f"{prefix}original_inv_freq") for prefix in _dynamic_prefixes(module)):
            raise UnsupportedModelError(
                f"Expected a rotary module of a type that transformers has, but {type(module).__name__} changes its "
                "frequencies with the longest input so far in a way of its own, so that scores would depend on what "
                "ran before. Set another rotary type in the model's config.json."
            )
        module.register_forward_pre_hook(_forget)
        setattr(module, _MARK, True)
    return follows


def _follows_length(module: torch.nn.Module) -> bool:
    """Return whether the frequencies, or the size of the tables, depend on the largest position of an input."""
    measures = rope_types(module) != {"default"} and measures_length(module)
    return bool(_dynamic_prefixes(module)) or is_dynamic(module) or measures


def _dynamic_prefixes(module: torch.nn.Module) -> tuple[str, ...]:
    """Return what stands before the names of the frequencies that remember lengths, one for each layer type."""
    kind: Any = getattr(module, "rope_type", None)
    if isinstance(kind, dict):
        return tuple(f"{layer_type}_" for layer_type, name in kind.items() if "dynamic" in name)
    # Code that comes with a model names the type in its class instead.
    name = type(module).__name__.lower() if kind is None else kind
    return ("",) if "dynamic" in name else ()


def _forget(module: Any, _args: Any) -> None:
    """Put the frequencies of a fresh model back before a forward pass."""
    for prefix in _dynamic_prefixes(module):
        longest = getattr(module, f"{prefix}max_seq_len_cached", module.max_seq_len_cached)
        if isinstance(longest, int) and longest == module.original_max_seq_len:
            # A length that has grown is a tensor; asking it for its value would wait for the device.
            continue
        original = getattr(module, f"{prefix}original_inv_freq")
        device = getattr(module, f"{prefix}inv_freq").device
        module.register_buffer(f"{prefix}inv_freq", original.to(device), persistent=False)
        setattr(module, f"{prefix}max_seq_len_cached", module.original_max_seq_len)
