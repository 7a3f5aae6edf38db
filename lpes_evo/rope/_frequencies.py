"""Rotary frequencies of a model: `check_frequencies` tests that they are sound, `repair_frequencies` restores them."""

from __future__ import annotations

import torch

from lpes_evo.accelerators import input_device
from lpes_evo.errors import ModelError
from lpes_evo.rope._structure import find_structure, is_dynamic, rope_types
from lpes_evo.rope._tables import indexes_table, sincos_table

__all__ = ["check_frequencies", "repair_frequencies"]

_REMEDY = (
    "The buffer was lost or rounded while loading (meta device, half-precision cast); call "
    "lpes_evo.rope.repair_frequencies(model), or load the model with from_pretrained(dtype=...)."
)


def check_frequencies(model: torch.nn.Module) -> None:
    """Check the rotary frequencies of a model against what its config says.

    The frequencies are a buffer that no checkpoint holds. Loading on the meta device or in half precision can leave
    the buffer uninitialised or rounded, and the model then runs without an error.

    Args:
        model: A causal language model of transformers with rotary position embeddings.

    Raises:
        UnsupportedModelError: The model has no rotary embedding.
        ModelError: The frequencies are not kept in float32. Or those that the config gives are not finite and
            positive. Or the frequencies differ from those of the config, and are not finite, positive and decreasing
            from 1.
    """
    for module in find_structure(model).rotary_modules:
        fresh = _fresh_buffers(module)
        for name, buffer in frequencies_in_use(module).items():
            where = f"Expected rotary frequencies {type(module).__name__}.{name}"
            if buffer.dtype not in (torch.float32, torch.float64):
                raise ModelError(f"{where} in float32, but they are in {buffer.dtype}. {_REMEDY}")
            if buffer.device.type == "meta":
                raise ModelError(f"{where} with values, but they are on the meta device. {_REMEDY}")

            # Frequencies that the config gives are right, unless the config itself is wrong.
            values = buffer.detach().cpu().double()
            if name in fresh and _equal(values, fresh[name].double()):
                config_fault = None if indexes_table(module) else _config_fault(values, rope_types(module))
                if config_fault:
                    raise ModelError(
                        f"{where} that are finite and positive, but of those that the model's config gives "
                        f"{config_fault}. Correct rope_theta and the other rope parameters in its config.json."
                    )
                continue

            fault = (
                "they differ from the config's"
                if indexes_table(module)
                else _fault(values, is_dynamic(module))
            )
            if fault:
                raise ModelError(
                    f"{where} that are finite, positive and decreasing from 1, but {fault}. {_REMEDY}"
                )


def repair_frequencies(model: torch.nn.Module) -> None:
    """Compute the rotary frequencies of a model anew from its config, in float32.

    Args:
        model: A causal language model of transformers with rotary position embeddings.

    Raises:
        UnsupportedModelError: The model has no rotary embedding.
    """
    structure = find_structure(model)
    for module in structure.rotary_modules:
        for name, buffer in _fresh_buffers(module).items():
            # The layers of a model that is spread over several devices may own their rotary modules.
            before = getattr(module, name, None)
            if isinstance(before, torch.Tensor) and not before.is_meta:
                device = before.device
            else:
                device = input_device(structure.decoder)
            # Dynamic types also keep the frequencies of short inputs, in a plain attribute that stays as it is.
            module.register_buffer(name, buffer.to(device), persistent=False)


def _fault(values: torch.Tensor, dynamic: bool) -> str | None:
    """Return the fault of frequencies ``(width,)``, or ``None``; those of dynamic types need not begin with 1."""
    if not torch.isfinite(values).all():
        return "some are not finite"
    if not (values > 0).all():
        return "some are not positive"
    if not (values.diff() < 0).all():
        return "they do not decrease"
    if not dynamic and abs(float(values[0]) - 1) > 1e-4:
        return f"the first is {float(values[0]):.6g}"
    return None


def _equal(values: torch.Tensor, expected: torch.Tensor) -> bool:
    """Return whether frequencies are those of the config, whether or not these are sound."""
    return values.shape == expected.shape and torch.allclose(
        values, expected, rtol=1e-4, atol=1e-9, equal_nan=True
    )


def _config_fault(values: torch.Tensor, kinds: set[str]) -> str | None:
    """Return the fault of frequencies ``(width,)`` that a config gives, or ``None``.

    Outside the default type a config may choose any frequencies, for example zero to leave a part unrotated.
    """
    is_default = kinds == {"default"}
    if not torch.isfinite(values).all():
        return "some are not finite"
    if not (values > 0 if is_default else values >= 0).all() or not values.any():
        return "some are not positive"
    if is_default and (values > 1 + 1e-4).any():
        return "some are above 1"
    return None


def frequencies_in_use(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the frequencies in use by buffer name: one set, one set for each layer type, or the table made of them."""
    return {
        name: buffer
        for name, buffer in module.named_buffers(recurse=False)
        if name == "embed_positions" or (name.endswith("inv_freq") and "original" not in name)
    }


def _fresh_buffers(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the buffers that the config gives, on the CPU; empty for a module without a config or frequencies."""
    if indexes_table(module):
        rows, width = module.get_buffer("embed_positions").shape
        return {"embed_positions": sincos_table(torch.arange(rows), width)}
    config = getattr(module, "config", None)
    # A stand-in for a rotary module has the config of that module, but no frequencies.
    if config is None or not frequencies_in_use(module):
        return {}
    with torch.device("cpu"):
        return dict(type(module)(config).named_buffers(recurse=False))
