"""`forget_lengths`: rotary types that follow the length of the input, held to the length of each forward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from lpes_evo.errors import UnsupportedModelError
from lpes_evo.rope._structure import is_dynamic, is_rotary, rope_types
from lpes_evo.rope._tables import measures_length

__all__ = ["forget_lengths"]

_MARK = "_lpes_forgets_lengths"


def forget_lengths(model: torch.nn.Module) -> Callable[[int], tuple[int, ...]] | None:
    """Make a model whose frequencies follow the length of its input forget the inputs before.

    The type ``dynamic`` of transformers keeps the base of the longest input so far, so a prompt has other logits after
    a longer one. After this call, every forward pass begins with the frequencies of a fresh model and follows the
    largest position of that pass alone, as one ``generate`` call on a fresh model does. The type ``longrope`` and the
    rotary module of PhiMoE remember no lengths, but they too choose frequencies by the longest row of a batch.

    The hooks stay on the model. A second call does nothing, and neither does a call on a model of another type.

    Args:
        model: A causal language model of transformers, patched or not.

    Returns:
        ``None`` if the frequencies do not follow the length. Otherwise a function that maps two lengths, in tokens, to
        the same value if texts of these lengths are rotated alike. Only such texts may share a forward pass.

    Raises:
        UnsupportedModelError: A rotary module that is not from transformers remembers lengths in an unknown way.
    """
    followers = []
    for module in model.modules():
        if not is_rotary(module) or not _follows_length(module):
            continue
        followers.append(module)

        # A type that remembers no lengths needs no hook, and neither does a module that has the hook already.
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

    if not followers:
        return None
    return lambda length: tuple(_length_that_counts(module, length) for module in followers)


def _length_that_counts(module: Any, length: int) -> int:
    """Return a number that is equal for lengths under which a rotary module has the same frequencies."""
    window = _original_window(module.config)
    if "longrope" in rope_types(module):
        # The type has one set of frequencies for lengths up to the original window, and one for longer inputs.
        return int(length > window)
    # Dynamic NTK leaves the frequencies unchanged up to the original window. Nothing is known of other modules.
    return max(length, window) if _dynamic_prefixes(module) else length


def _original_window(config: Any) -> int:
    """Return the length up to which a dynamic rotary type leaves the frequencies as they were trained."""
    parameters = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    # Each layer type may have its own parameters.
    found = [parameters, *(entry for entry in parameters.values() if isinstance(entry, dict))]
    stated = [entry.get("original_max_position_embeddings") for entry in found]
    stated.append(getattr(config, "original_max_position_embeddings", None))
    return min(filter(None, stated), default=getattr(config, "max_position_embeddings", 0))


def _follows_length(module: torch.nn.Module) -> bool:
    """Return whether the frequencies, or the size of the tables, depend on the largest position of an input."""
    measures = rope_types(module) != {"default"} and measures_length(module)
    return bool(_dynamic_prefixes(module)) or is_dynamic(module) or measures


def _dynamic_prefixes(module: torch.nn.Module) -> tuple[str, ...]:
    """Return the prefixes in the names of the frequencies that remember lengths, one for each layer type."""
    kind: Any = getattr(module, "rope_type", None)
    if isinstance(kind, dict):
        return tuple(f"{layer_type}_" for layer_type, name in kind.items() if "dynamic" in name)
    # Code that is shipped with a model names the type in its class instead.
    name = type(module).__name__.lower() if kind is None else kind
    return ("",) if "dynamic" in name else ()


def _forget(module: Any, _args: Any) -> None:
    """Restore the frequencies of a fresh model before a forward pass."""
    for prefix in _dynamic_prefixes(module):
        longest = getattr(module, f"{prefix}max_seq_len_cached", module.max_seq_len_cached)
        if isinstance(longest, int) and longest == module.original_max_seq_len:
            # A length that has grown is a tensor, and reading its value would wait for the device.
            continue

        original = getattr(module, f"{prefix}original_inv_freq")
        device = getattr(module, f"{prefix}inv_freq").device
        module.register_buffer(f"{prefix}inv_freq", original.to(device), persistent=False)
        setattr(module, f"{prefix}max_seq_len_cached", module.original_max_seq_len)
