"""The promises of the patch, each as a function that any tiny model is put to.

A promise function returns nothing when the promise holds, fails by ``assert``, and raises `InheritedError` when
the untouched model breaks the same promise, so that the patch is compared like with like.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import pytest
import torch

from lpes_evo.errors import LpesError, UnsupportedModelError
from lpes_evo.rope import (
    LayerTables,
    count_layers,
    find_structure,
    indexes_table,
    patch_rope,
    repair_frequencies,
    rotary_layers,
    sincos_table,
)
from rope_families import NOT_BUILT, mentions_rotary, tiny_model

IDS = torch.tensor(
    [[5, 9, 33, 12, 60, 7, 21, 48, 3, 17, 40, 28], [11, 4, 50, 31, 8, 62, 19, 25, 44, 6, 37, 14]]
)
SHORT = 7
"""Tokens of the shorter row of a padded batch."""


class InheritedError(Exception):
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
        if hasattr(module, "rope_init_fn"):
            # PhiMoE computes its frequencies anew at every forward.
            module.rope_init_fn = divided(module.rope_init_fn)
    with patch_rope(model, [1.5] * count_layers(model)):
        assert close(logits(model), logits(reference))


def divided(rope_init: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of transformers that computes frequencies, with these divided."""

    def compute(*args: Any, **kwargs: Any) -> Any:
        frequencies, scaling = rope_init(*args, **kwargs)
        return frequencies / 1.5, scaling

    return compute


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
        layer.register_forward_hook(
            lambda _m, _a, out: outputs.append(out if torch.is_tensor(out) else out[0])
        )
        for layer in layers
    ]
    logits(model)
    for handle in handles:
        handle.remove()
    return outputs


def compare_with_untouched(model: Any, holds: Callable[[], bool], fault: str) -> None:
    """Check a promise on the patched model, unless the untouched one breaks it."""
    try:
        untouched = holds()
    except Exception as error:
        raise InheritedError(f"{fault} ({type(error).__name__})") from error
    if not untouched:
        raise InheritedError(fault)
    with patch_rope(model, profile(model)):
        assert holds()


def cached_decoding_equals_full_recomputation(model: Any) -> None:
    def holds() -> bool:
        return close(decoded(model), logits(model)[:, SHORT:])

    compare_with_untouched(model, holds, "its cached decoding differs from full recomputation")


@torch.no_grad()
def decoded(model: Any) -> torch.Tensor:
    """Return the logits from token ``SHORT`` on, decoded token by token with a cache."""
    output = model(input_ids=IDS[:, :SHORT], use_cache=True)
    key = "cache" if output.get("cache") is not None else "past_key_values"
    steps = []
    for token in range(SHORT, IDS.shape[1]):
        output = model(input_ids=IDS[:, token : token + 1], use_cache=True, **{key: output[key]})
        steps.append(output.logits)
    return torch.cat(steps, dim=1)


def shifted_positions_leave_logits_unchanged(model: Any) -> None:
    positions = torch.arange(IDS.shape[1])[None].expand_as(IDS)

    def holds() -> bool:
        return close(logits(model, position_ids=positions + 9), logits(model, position_ids=positions), 3e-5)

    compare_with_untouched(model, holds, "its logits change when all position ids are shifted")


def left_padded_rows_equal_single_rows(model: Any) -> None:
    compare_with_untouched(
        model, lambda: padded_forward_holds(model), "its left-padded rows differ from single rows"
    )


def left_padded_rows_are_generated_as_single_rows(model: Any) -> None:
    fault = "it generates left-padded rows differently"
    compare_with_untouched(model, lambda: padded_generate_holds(model), fault)


def padded_batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Return the two rows with the first left-padded, and their mask."""
    ids, mask = IDS.clone(), torch.ones_like(IDS)
    ids[0, :-SHORT], mask[0, :-SHORT] = 0, 0
    return ids, mask


def padded_forward_holds(model: Any) -> bool:
    ids, mask = padded_batch()
    both = logits(model, ids, attention_mask=mask, position_ids=(mask.cumsum(-1) - 1).clamp(min=0))
    first = logits(model, ids[:1, -SHORT:], attention_mask=mask[:1, -SHORT:])
    return close(both[0, -SHORT:], first[0]) and close(
        both[1], logits(model, ids[1:], attention_mask=mask[1:])[0]
    )


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
        # GPT-J and CodeGen build a coarse table in a half-precision model; the patch refuses it until
        # repaired.
        repair_frequencies(coarse)
        with patch_rope(coarse, [1.37] * count_layers(coarse)):
            for module in find_structure(coarse).rotary_modules:
                for position, tolerance in ((8191, 2e-3), (32767, 5e-3)):
                    table_is_exact(module, position, tolerance)


def table_is_exact(module: Any, position: int, tolerance: float) -> None:
    """Check the first column of a patched rotary module's tables, before the cast, against float64."""
    if indexes_table(module):
        position = len(module.embed_positions) - 1
        column_is_exact(module, position, tolerance, 1.0, 1.0, ())
    for name, buffer in list(module.named_buffers(recurse=False)):
        if name.endswith("inv_freq") and "original" not in name:
            # Where layer types have tables of their own, their name comes first in the names of the buffers.
            prefix = name.removesuffix("inv_freq")
            scaling = getattr(module, f"{prefix}attention_scaling", 1.0)
            column_is_exact(
                module, position, tolerance, float(buffer[0]), scaling, (prefix[:-1],) if prefix else ()
            )


def column_is_exact(
    module: Any,
    position: int,
    tolerance: float,
    frequency: float,
    scaling: float,
    layer_type: tuple[str, ...],
) -> None:
    """Check one pair of cosine and sine, and that default dtype and autocast do not change it."""
    angle = torch.tensor(position / 1.37 * frequency, dtype=torch.float64)
    expected = torch.stack((angle.cos(), angle.sin())) * scaling

    def column() -> torch.Tensor:
        tables = module(torch.zeros(1, 1, 1, dtype=torch.float32), torch.tensor([[position]]), *layer_type)
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
        left_padded_rows_are_generated_as_single_rows,
        leaving_restores_bit_equal_logits,
        patching_twice_is_patching_once,
        rows_under_own_curves_equal_single_curves,
        patched_model_can_be_copied,
        angles_are_float32_whatever_the_dtype,
    )
}


def table_row(model_type: str) -> str:
    """Return a family's line of docs/models.md."""
    kind, reason = state(model_type)
    if kind == "supported":
        inherited = {found for name in PROMISES if (found := outcome(model_type, name)) != "holds"}
        reason = "; ".join(sorted(found.removeprefix("inherited: ") for found in inherited))
    return f"| {model_type} | {kind} | {reason.replace('|', '/')} |"


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


@cache
def state(model_type: str) -> tuple[str, str]:
    """Return what the patch makes of a family: its state and, unless it is supported, the reason."""
    if model_type in NOT_BUILT:
        return "not built", NOT_BUILT[model_type]
    if not mentions_rotary(model_type):
        return "no rope", "its code has no rotary embedding"
    model = built(model_type)
    if isinstance(model, Exception):
        return (
            "not built",
            f"{type(model).__name__}: {str(model).splitlines()[0] if str(model) else 'no message'}",
        )
    try:
        with patch_rope(model, profile(model)):
            logits(model)
    except UnsupportedModelError as error:
        return ("no rope" if "has no rotary module" in str(error) else "refused"), str(error)
    except LpesError as error:
        return "refused", str(error)
    return "supported", ""


@cache
def outcome(model_type: str, promise: str) -> str:
    """Return ``holds``, ``inherited: REASON`` or ``broken: REASON`` for a promise on a supported family."""
    try:
        PROMISES[promise](built(model_type))
    except InheritedError as reason:
        return f"inherited: {reason}"
    except Exception as error:
        return f"broken: {type(error).__name__}: {error}"
    return "holds"


def generated_together(model: Any, ids: torch.Tensor, settings: Any) -> list[Any]:
    """Return what ``generate_batch`` makes of some rows; skip where this transformers has none."""
    if not hasattr(model, "generate_batch"):
        pytest.skip("this transformers has no generate_batch")
    from transformers import ContinuousBatchingConfig

    # Without limits the cache takes nine tenths of the free memory, which other processes need.
    limits = ContinuousBatchingConfig(num_blocks=4, max_batch_tokens=64)
    found = model.generate_batch(
        inputs=ids.tolist(), generation_config=settings, continuous_batching_config=limits, progress_bar=False
    )
    return list(found.values())
