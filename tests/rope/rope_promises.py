"""The promises of the patch, each as a function that any tiny model is put to.

A promise function returns nothing when the promise holds, fails by ``assert``, and raises `Inherited` when the
untouched model breaks the same promise, so that the patch is compared like with like.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pytest
import torch
from rope_families import tiny_model

from lpes_evo.errors import LpesError, UnsupportedModelError
from lpes_evo.rope import count_layers, patch_rope, repair_frequencies, rotary_layers
from lpes_evo.rope._structure import find_structure
from lpes_evo.rope._tables import LayerTables, indexes_table, sincos_table

IDS = torch.tensor([[5, 9, 33, 12, 60, 7, 21, 48, 3, 17, 40, 28], [11, 4, 50, 31, 8, 62, 19, 25, 44, 6, 37, 14]])
SHORT = 7
"""Tokens of the shorter row of a padded batch."""


class Inherited(Exception):
    """The untouched model breaks the promise too."""


def profile(model: Any) -> list[float]:
    """Return scales that differ from layer to layer, below and above 1."""
    return torch.linspace(0.8, 1.6, count_layers(model), dtype=torch.float64).tolist()


@torch.no_grad()
def logits(model: Any, ids: torch.Tensor = IDS, **inputs: Any) -> torch.Tensor:
    """Return the logits of one forward without a cache."""
    return model(input_ids=ids, use_cache=False, **inputs).logits


def close(one: torch.Tensor, other: torch.Tensor, tolerance: float = 1e-5) -> bool:
    """Return whether two tensors agree, relative to the larger of 1 and their largest entry."""
    return bool((one - other).abs().max() <= tolerance * max(1.0, float(other.abs().max())))


def all_ones_leave_logits_bit_equal(model: Any) -> None:
    plain = logits(model)
    with patch_rope(model, [1.0] * count_layers(model)):
        assert torch.equal(logits(model), plain)
    with patch_rope(model, [[1.0] * count_layers(model)] * 2):
        assert torch.equal(logits(model), plain)


def uniform_scale_equals_linear_scaling(model: Any) -> None:
    reference = copy.deepcopy(model)
    for module in find_structure(reference).rotary_modules:
        for name, buffer in module.named_buffers(recurse=False):
            if indexes_table(module):
                buffer.copy_(sincos_table(torch.arange(len(buffer)) / 1.5, buffer.shape[-1]))
            elif name.endswith("inv_freq"):
                buffer.div_(1.5)
    with patch_rope(model, [1.5] * count_layers(model)):
        assert close(logits(model), logits(reference))


def change_in_one_layer_leaves_earlier_layers_bit_equal(model: Any) -> None:
    structure = find_structure(model)
    plain = layer_outputs(model, structure.layers)
    for layer in rotary_layers(model):
        scales = [1.0] * len(structure.layers)
        scales[layer] = 1.5
        with patch_rope(model, scales):
            patched = layer_outputs(model, structure.layers)
        same = [torch.equal(one, other) for one, other in zip(patched, plain, strict=True)]
        assert all(same[:layer])
        assert not same[layer]


def layer_outputs(model: Any, layers: Any) -> list[torch.Tensor]:
    """Return what every decoder layer puts out."""
    outputs = []
    handles = [
        layer.register_forward_hook(lambda _m, _a, out: outputs.append(out if torch.is_tensor(out) else out[0]))
        for layer in layers
    ]
    logits(model)
    for handle in handles:
        handle.remove()
    return outputs


def cached_decoding_equals_full_recomputation(model: Any) -> None:
    if not close(decoded(model), logits(model)[:, SHORT:]):
        raise Inherited("its cached decoding differs from full recomputation")
    with patch_rope(model, profile(model)):
        assert close(decoded(model), logits(model)[:, SHORT:])


@torch.no_grad()
def decoded(model: Any) -> torch.Tensor:
    """Return the logits from token ``SHORT`` on, decoded token by token with a cache."""
    output = model(input_ids=IDS[:, :SHORT], use_cache=True)
    key = "past_key_values" if output.get("past_key_values") is not None else "cache"
    steps = []
    for token in range(SHORT, IDS.shape[1]):
        output = model(input_ids=IDS[:, token : token + 1], use_cache=True, **{key: output[key]})
        steps.append(output.logits)
    return torch.cat(steps, dim=1)


def shifted_positions_leave_logits_unchanged(model: Any) -> None:
    positions = torch.arange(IDS.shape[1])[None].expand_as(IDS)

    def holds() -> bool:
        return close(logits(model, position_ids=positions + 9), logits(model, position_ids=positions), 3e-5)

    if not holds():
        raise Inherited("its logits change when all position ids are shifted")
    with patch_rope(model, profile(model)):
        assert holds()


def left_padded_rows_equal_single_rows(model: Any) -> None:
    if not padded_forward_holds(model):
        raise Inherited("its left-padded rows differ from single rows")
    if not padded_generate_holds(model):
        raise Inherited("its left-padded rows differ from single rows in generate")
    with patch_rope(model, profile(model)):
        assert padded_forward_holds(model)
        assert padded_generate_holds(model)


def padded_batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Return the two rows with the first left-padded, and their mask."""
    ids, mask = IDS.clone(), torch.ones_like(IDS)
    ids[0, :-SHORT], mask[0, :-SHORT] = 0, 0
    return ids, mask


def padded_forward_holds(model: Any) -> bool:
    ids, mask = padded_batch()
    both = logits(model, ids, attention_mask=mask, position_ids=(mask.cumsum(-1) - 1).clamp(min=0))
    first = logits(model, ids[:1, -SHORT:], attention_mask=mask[:1, -SHORT:])
    return close(both[0, -SHORT:], first[0]) and close(both[1], logits(model, ids[1:], attention_mask=mask[1:])[0])


def padded_generate_holds(model: Any) -> bool:
    ids, mask = padded_batch()
    both = generated(model, ids, mask)
    first = generated(model, ids[:1, -SHORT:], mask[:1, -SHORT:])
    return close(both[:, 0], first[:, 0]) and close(both[:, 1], generated(model, ids[1:], mask[1:])[:, 0])


def generated(model: Any, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the logits of three greedy steps, ``(3, rows, n_tokens)``."""
    output = model.generate(
        input_ids=ids,
        attention_mask=mask,
        max_new_tokens=3,
        min_new_tokens=3,
        do_sample=False,
        return_dict_in_generate=True,
        output_logits=True,
    )
    return torch.stack(output.logits)


def leaving_restores_bit_equal_logits(model: Any) -> None:
    plain = logits(model)
    with patch_rope(model, profile(model)):
        patched = logits(model)
    assert not torch.equal(patched, plain)
    assert torch.equal(logits(model), plain)
    with pytest.raises(KeyError, match="planned"), patch_rope(model, profile(model)):
        raise KeyError("planned")
    assert torch.equal(logits(model), plain)
    assert not any(module._forward_pre_hooks for module in model.modules())


def patching_twice_is_patching_once(model: Any) -> None:
    plain = logits(model)
    with patch_rope(model, profile(model)):
        once = logits(model)
        with patch_rope(model, profile(model)):
            assert torch.equal(logits(model), once)
        assert torch.equal(logits(model), once)
        patch_rope(model, [1.0] * count_layers(model))
        assert torch.equal(logits(model), plain)
    assert torch.equal(logits(model), plain)


def rows_under_own_curves_equal_single_curves(model: Any) -> None:
    curves = [profile(model), profile(model)[::-1]]

    def single(scales: list[float], row: int) -> torch.Tensor:
        with patch_rope(model, scales):
            return logits(model)[row]

    with patch_rope(model, curves):
        both = logits(model)
    assert close(both[0], single(curves[0], 0))
    assert close(both[1], single(curves[1], 1))


def patched_model_can_be_copied(model: Any) -> None:
    plain = logits(model)
    with patch_rope(model, profile(model)) as patch:
        patched = logits(model)
        twin = copy.deepcopy(model)
        patch.set([1.0] * count_layers(model))
        assert torch.equal(logits(twin), patched)
    assert torch.equal(logits(twin), patched)
    assert torch.equal(logits(model), plain)


def angles_are_float32_whatever_the_dtype(model: Any) -> None:
    for dtype in (torch.bfloat16, torch.float16):
        coarse = tiny_model(model.lpes_type, dtype)
        # GPT-J and CodeGen build a coarse table in a half-precision model; the patch refuses it until repaired.
        repair_frequencies(coarse)
        with patch_rope(coarse, [1.37] * count_layers(coarse)):
            for module in find_structure(coarse).rotary_modules:
                for position, tolerance in ((8191, 2e-3), (32767, 5e-3)):
                    table_is_exact(module, position, tolerance)


def table_is_exact(module: Any, position: int, tolerance: float) -> None:
    """Check the first column of a patched rotary module's table, before the cast, against float64."""
    if indexes_table(module):
        position = len(module.embed_positions) - 1
    layer_types = getattr(module, "layer_types", None)
    for layer_type in layer_types if layer_types and isinstance(module.rope_type, dict) else [None]:
        extra = () if layer_type is None else (layer_type,)
        prefix = "" if layer_type is None else f"{layer_type}_"
        scaling = getattr(module, f"{prefix}attention_scaling", 1.0)
        buffers = dict(module.named_buffers(recurse=False))
        frequency = float(buffers[f"{prefix}inv_freq"][0]) if not indexes_table(module) else 1.0
        angle = torch.tensor(position / 1.37 * frequency, dtype=torch.float64)
        expected = torch.stack((angle.cos(), angle.sin())) * scaling

        def column(extra: Any = extra) -> torch.Tensor:
            tables = module(torch.zeros(1, 1, 1), torch.tensor([[position]]), *extra)
            tables = tables.take(0) if isinstance(tables, LayerTables) else tables
            if isinstance(tables, torch.Tensor):
                tables = (tables.real, tables.imag)
            pair = torch.stack([table.flatten()[0] for table in tables]).double()
            return pair.flip(0) if indexes_table(module) else pair

        found = column()
        assert (found - expected).abs().max() <= tolerance
        torch.set_default_dtype(torch.float16)
        try:
            assert torch.equal(column(), found)
        finally:
            torch.set_default_dtype(torch.float32)
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(column(), found)


PROMISES: dict[str, Callable[[Any], None]] = {
    promise.__name__: promise
    for promise in (
        all_ones_leave_logits_bit_equal,
        uniform_scale_equals_linear_scaling,
        change_in_one_layer_leaves_earlier_layers_bit_equal,
        cached_decoding_equals_full_recomputation,
        shifted_positions_leave_logits_unchanged,
        left_padded_rows_equal_single_rows,
        leaving_restores_bit_equal_logits,
        patching_twice_is_patching_once,
        rows_under_own_curves_equal_single_curves,
        patched_model_can_be_copied,
        angles_are_float32_whatever_the_dtype,
    )
}


@lru_cache(maxsize=2)
def built(model_type: str) -> Any:
    """Return the tiny model of a family, or the error that kept it from being built or run."""
    try:
        model = tiny_model(model_type)
        logits(model)
    except Exception as error:
        return error
    model.lpes_type = model_type
    return model


@lru_cache(maxsize=None)
def state(model_type: str) -> tuple[str, str]:
    """Return what the patch makes of a family: its state and, unless it is supported, the reason."""
    model = built(model_type)
    if isinstance(model, Exception):
        return "not built", f"{type(model).__name__}: {str(model).splitlines()[0] if str(model) else 'no message'}"
    try:
        with patch_rope(model, profile(model)):
            logits(model)
    except UnsupportedModelError as error:
        return ("no rope" if "no rotary module" in str(error) else "refused"), str(error)
    except LpesError as error:
        return "refused", str(error)
    return "supported", ""


@lru_cache(maxsize=None)
def outcome(model_type: str, promise: str) -> str:
    """Return ``holds``, ``inherited: REASON`` or ``broken: REASON`` for a promise on a supported family."""
    try:
        PROMISES[promise](built(model_type))
    except Inherited as reason:
        return f"inherited: {reason}"
    except Exception as error:
        return f"broken: {type(error).__name__}: {error}"
    return "holds"
