"""Rotary modules of vLLM, one for each layer, with a table of cosines and sines at scaled positions."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lpes_evo.errors import UnsupportedModelError

__all__ = ["ScaledRotary", "ScalingWorker", "known_kinds", "refuse_rotary_modules", "scale_layers"]

_ATTRIBUTE = "_lpes_scaled_rotary"
_TOLERANCE = 0.02
"""Largest difference between two tables of one kind: a rounding to bfloat16, and one of float32 angles far out."""


@dataclass(frozen=True)
class _Ingredients:
    """What the table of a rotary module is made of: ``amplitude * cos(position / divisor * frequency)``, and the sine.

    Attributes:
        frequencies: Angle of one position for each pair of dimensions, in radians, ``(width / 2,)``.
        divisor: What the module itself divides positions by.
        amplitude: Factor of cosines and sines.
    """

    frequencies: Any
    divisor: float = 1.0
    amplitude: float = 1.0


@dataclass(frozen=True)
class ScaledRotary:
    """The rotary module of one layer.

    Attributes:
        layer: Index of the layer.
        original: The module that vLLM shares between layers and models; it is left as it is.
        module: The copy that the layer uses, with a table of its own.
    """

    layer: int
    original: Any
    module: Any

    def set(self, scale: float) -> None:
        """Put other scaled positions into the table; compiled code and captured graphs read them from then on.

        Args:
            scale: What positions are divided by.
        """
        table = _scaled_table(self.original, scale)
        self.module.cos_sin_cache.copy_(table)
        if getattr(self.module, "cos_sin_cache_bf16", None) is not None:
            self.module.cos_sin_cache_bf16.copy_(table)


class ScalingWorker:
    """Extension of vLLM's workers (``worker_extension_cls``): other scales for a model that was loaded with some."""

    def set_lpes_scales(self, scales: Sequence[float]) -> None:
        """Put other scales in force; the prefix cache, which holds keys under the old ones, must be emptied too.

        Args:
            scales: Position divisors, ``(n_layers,)``, checked by the caller.
        """
        model: Any = self.get_model()  # type: ignore[attr-defined]
        for rotary in getattr(model, _ATTRIBUTE):
            rotary.set(scales[rotary.layer])


def known_kinds() -> dict[type, Callable[[Any], _Ingredients]]:
    """Return the rotary modules whose tables are known, with what their tables are made of.

    A class that derives from one of them is another kind.

    Raises:
        ImportError: This vLLM has them elsewhere.
    """
    from vllm.model_executor.layers.rotary_embedding import (
        LinearScalingRotaryEmbedding,
        Llama3RotaryEmbedding,
        RotaryEmbedding,
        YaRNScalingRotaryEmbedding,
    )

    return {
        RotaryEmbedding: lambda module: _Ingredients(module._compute_inv_freq(module.base)),
        Llama3RotaryEmbedding: lambda module: _Ingredients(module._compute_inv_freq(module.base)),
        LinearScalingRotaryEmbedding: lambda module: _Ingredients(
            module._compute_inv_freq(module.base), divisor=_only_factor(module)
        ),
        YaRNScalingRotaryEmbedding: lambda module: _Ingredients(
            module._compute_inv_freq(module.scaling_factor), amplitude=module.mscale
        ),
    }


def scale_layers(model: Any, scales: Sequence[float]) -> list[ScaledRotary]:
    """Give every decoder layer of a model of vLLM a rotary module of its own, with positions divided by its scale.

    Args:
        model: The model, before it is compiled.
        scales: Position divisors, ``(n_layers,)``.

    Returns:
        The modules. The model keeps them too, for `ScalingWorker`.

    Raises:
        UnsupportedModelError: A rotary module is of an unknown kind, or outside of the decoder layers, or a table is
            not what its kind says; or the model has no rotary module.
    """
    kinds = known_kinds()
    found: dict[tuple[int, int], ScaledRotary] = {}
    for name, module in _rotary_modules(model):
        if type(module) not in kinds:
            raise UnsupportedModelError(
                f"Expected rotary modules of the kinds {', '.join(kind.__name__ for kind in kinds)}, but {name} is a "
                f"{type(module).__name__}. Serve this model through transformers: export it with its scales."
            )
        layer = _layer_of(name)
        if layer is None or layer >= len(scales):
            raise UnsupportedModelError(
                f"Expected every rotary module inside one of {len(scales)} decoder layers, but one is at {name}. Its "
                "layers cannot be scaled one by one."
            )
        key = layer, id(module)
        if key not in found:
            _check_table(name, module)
            found[key] = ScaledRotary(layer, module, _own_copy(module))
            found[key].set(scales[layer])
        parent, _, attribute = name.rpartition(".")
        setattr(model.get_submodule(parent), attribute, found[key].module)
    if not found:
        raise UnsupportedModelError(
            f"Expected a model with rotary position embeddings, but {type(model).__name__} has no rotary module of "
            "vLLM. Only models that rotate queries and keys by position can be scaled."
        )

    made = list(found.values())
    setattr(model, _ATTRIBUTE, made)
    return made


def refuse_rotary_modules(model: Any) -> None:
    """Refuse an exported model that vLLM runs by its own code, which does not read the scales of the folder.

    Raises:
        UnsupportedModelError: It has a rotary module of vLLM.
    """
    names = [name for name, module in _rotary_modules(model) if type(module).__module__.startswith("vllm.")]
    if names:
        raise UnsupportedModelError(
            f"Expected an exported model to run by the code in its folder, but vLLM has made {names[0]} by its own. "
            "Start it with --trust-remote-code and --model-impl transformers."
        )


def _rotary_modules(model: Any) -> list[tuple[str, Any]]:
    """Return every place of a rotary module, by the naming that vLLM and transformers keep to."""
    return [
        (name, module)
        for name, module in model.named_modules(remove_duplicate=False)
        if "RotaryEmbedding" in type(module).__name__
    ]


def _layer_of(name: str) -> int | None:
    """Return the index of the layer that a module is inside of, ``None`` where its name has not one number in it."""
    numbers = [int(part) for part in name.split(".") if part.isdecimal()]
    return numbers[0] if len(numbers) == 1 else None


def _only_factor(module: Any) -> float:
    """Return the factor of linear scaling.

    Raises:
        UnsupportedModelError: There are several, as for several adapters.
    """
    if len(module.scaling_factors) != 1:
        raise UnsupportedModelError(
            f"Expected one factor of linear scaling, but got {len(module.scaling_factors)}: {module.scaling_factors}. "
            "Leave one."
        )
    return float(module.scaling_factors[0])


def _own_copy(module: Any) -> Any:
    """Return a copy of a rotary module that shares no table with it.

    Raises:
        UnsupportedModelError: The copy would still run the original.
    """
    own = copy.deepcopy(module)
    # vLLM chooses the method that runs when it makes a module, and keeps it; a compiled one cannot be copied.
    is_bound = getattr(own._forward_method, "__self__", None) is own
    if not is_bound:
        raise UnsupportedModelError(
            f"Expected a {type(module).__name__} whose copy runs by itself, but this vLLM has bound it to the one that "
            "all layers share. Install the version that lpes-evo names in its extra [vllm], or export the model."
        )
    for name in ("cos_sin_cache", "cos_sin_cache_bf16"):
        if getattr(module, name, None) is not None:
            own.register_buffer(name, getattr(module, name).clone(), persistent=False)
    return own


def _scaled_table(module: Any, scale: float) -> Any:
    """Return the table of a rotary module at positions divided by a scale, ``(n_positions, width)``.

    Under a scale of 1 it is the table that vLLM made, bit for bit.
    """
    return module.cos_sin_cache if scale == 1 else _table(module, scale)


def _table(module: Any, scale: float) -> Any:
    """Return the cosines and sines of scaled positions, in the dtype and on the device of the module's own."""
    import torch

    own = module.cos_sin_cache
    parts = known_kinds()[type(module)](module)
    # As patch_rope does: the division is the only rounding of a position before angles are taken in float32.
    positions = torch.arange(len(own), dtype=torch.float64, device="cpu") / (scale * parts.divisor)
    angles = torch.outer(positions.float().to(own.device), parts.frequencies.float().to(own.device))
    return (torch.cat((angles.cos(), angles.sin()), dim=-1) * parts.amplitude).to(own.dtype)


def _check_table(name: str, module: Any) -> None:
    """Check that the table of a rotary module is made as its kind says.

    Raises:
        UnsupportedModelError: It is not, so its scaled positions would be wrong.
    """
    own, computed = module.cos_sin_cache, _table(module, 1.0)
    if own.shape != computed.shape or (own.float() - computed.float()).abs().max() > _TOLERANCE:
        raise UnsupportedModelError(
            f"Expected the table of {name} to be that of a {type(module).__name__}, but this vLLM makes another one. "
            "Install the version that lpes-evo names in its extra [vllm], or export the model."
        )
