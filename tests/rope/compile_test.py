"""Compiled models: the patch and the methods are in force whatever came first, and values alone make no new graph."""

from collections.abc import Callable, Iterator
from inspect import signature
from typing import Any

import pytest
import torch
from transformers import LlamaModel

from lpes_evo.errors import ModelError
from lpes_evo.methods import make_method
from lpes_evo.rope import patch_rope, rotary_layers
from rope_families import tiny_model
from rope_promises import IDS, close, logits

dynamo = pytest.importorskip("torch._dynamo")

KEY = next(name for name in ("cache", "past_key_values") if name in signature(LlamaModel.forward).parameters)
SCALES, OTHERS = [0.8, 1.3, 1.7], [1.1, 0.9, 1.4]


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.fixture
def model() -> Any:
    return tiny_model("llama")


def by_function(model: Any) -> Callable[..., Any]:
    return torch.compile(model, backend="eager", fullgraph=True)


def in_place(model: Any) -> Callable[..., Any]:
    model.compile(backend="eager", fullgraph=True)
    return model


WAYS = pytest.mark.parametrize("compiled", [by_function, in_place])


def step(run: Any, ids: torch.Tensor, cache: Any) -> torch.Tensor:
    return run(input_ids=ids, use_cache=True, **{KEY: cache}).logits


def n_graphs() -> int:
    return int(dynamo.utils.counters["stats"]["unique_graphs"])


def expected(*curves: Any) -> list[torch.Tensor]:
    """Return the logits under each curve, ``None`` for the untouched model, of a model that nobody compiles."""
    model, found = tiny_model("llama"), []
    for scales in curves:
        if scales is None:
            found.append(logits(model))
        else:
            with patch_rope(model, scales):
                found.append(logits(model))
    return found


@WAYS
def test_a_patch_after_compilation_is_in_force_and_so_is_its_end(model: Any, compiled: Any) -> None:
    plain, scaled, other = expected(None, SCALES, OTHERS)
    run = compiled(model)
    assert close(logits(run), plain)
    with patch_rope(model, SCALES):
        assert close(logits(run), scaled)
    assert close(logits(run), plain)
    with patch_rope(model, OTHERS):
        assert close(logits(run), other)
    assert close(logits(run), plain)


@WAYS
def test_a_patched_model_may_be_compiled_and_other_scales_make_no_new_graph(
    model: Any, compiled: Any
) -> None:
    curves = [SCALES, OTHERS, [1.5] * 3, SCALES]
    wanted = expected(*curves)
    with patch_rope(model, OTHERS) as patch:
        # No forward pass before this one, so that it is traced with everything that happens once.
        run = compiled(model)
        assert close(logits(run), wanted[1])
        before = n_graphs()
        for scales, right in zip(curves, wanted, strict=True):
            patch.set(scales)
            assert close(logits(run), right)
        with patch_rope(model, [1.5] * 3):
            assert close(logits(run), wanted[2])
        assert n_graphs() == before
    assert close(logits(run), expected(None)[0])


def test_rows_under_own_curves_and_gradients_are_those_of_the_uncompiled_model(model: Any) -> None:
    model.requires_grad_(False)
    live = torch.tensor(SCALES, requires_grad=True)
    slopes = []
    for run in (model, torch.compile(model, backend="aot_eager", fullgraph=True)):
        with patch_rope(model, live):
            score = run(input_ids=IDS, use_cache=False).logits.log_softmax(-1)[..., 7].sum()
            slopes.append(torch.autograd.grad(score, live)[0])
        with patch_rope(model, [SCALES, OTHERS]):
            both = logits(run)
        assert close(both, torch.stack([one[row] for row, one in enumerate(expected(SCALES, OTHERS))]))
    assert close(slopes[0], slopes[1])
    assert slopes[0].abs().min() > 0


def compiled_generation(model: Any, **settings: Any) -> torch.Tensor:
    """Return the logits of greedy steps with a static cache, decoded by compiled code as on a GPU."""
    from transformers import CompileConfig

    options = CompileConfig(backend="eager", fullgraph=True, mode=None)
    options._compile_all_devices = True
    output = model.generate(input_ids=IDS, attention_mask=torch.ones_like(IDS), max_new_tokens=4, min_new_tokens=4,
                            do_sample=False, cache_implementation="static", compile_config=options,
                            output_logits=True, return_dict_in_generate=True, **settings)  # fmt: skip
    return torch.stack(output.logits)


def plain_generation(model: Any) -> torch.Tensor:
    output = model.generate(input_ids=IDS, attention_mask=torch.ones_like(IDS), max_new_tokens=4, min_new_tokens=4,
                            do_sample=False, output_logits=True, return_dict_in_generate=True)  # fmt: skip
    return torch.stack(output.logits)


def test_generation_with_a_static_cache_decodes_under_the_scales_in_force(model: Any) -> None:
    twin = tiny_model("llama")
    plain = plain_generation(twin)
    with patch_rope(twin, SCALES) as patch:
        scaled = plain_generation(twin)
        patch.set(OTHERS)
        other = plain_generation(twin)
    assert close(compiled_generation(model), plain)
    with patch_rope(model, SCALES) as patch:
        assert close(compiled_generation(model), scaled)
        before = n_graphs()
        patch.set(OTHERS)
        assert close(compiled_generation(model), other)
        assert n_graphs() == before
    assert close(compiled_generation(model), plain)


@torch.no_grad()
def test_compiled_code_refuses_caches_that_were_filled_otherwise(model: Any) -> None:
    from transformers import StaticCache

    def cache() -> Any:
        return StaticCache(config=model.config, max_cache_len=16)

    untouched = cache()
    step(model, IDS[:, :7], untouched)
    run = torch.compile(model, backend="eager", fullgraph=True)
    with patch_rope(model, SCALES) as patch:
        own = cache()
        step(model, IDS[:, :7], own)
        right = logits(model)[:, 7:9]
        assert close(step(run, IDS[:, 7:8], own), right[:, :1])
        assert close(step(run, IDS[:, 8:9], own), right[:, 1:])
        # Compiled code cannot raise errors of ours by the length of a cache on the device.
        with pytest.raises(
            RuntimeError, match="filled under these scales, but it was filled on the untouched model"
        ):
            step(run, IDS[:, 7:8], untouched)
        patch.set(OTHERS)
        with pytest.raises(RuntimeError, match="filled under these scales, but it was filled otherwise"):
            step(run, IDS[:, 9:10], own)
        own.reset()
        assert close(step(run, IDS[:, :7], own), logits(model)[:, :7])

        growing = model(input_ids=IDS[:, :7], use_cache=True)[KEY]
        patch.set(SCALES)
        with pytest.raises(ModelError, match="filled under these scales, but it was filled otherwise"):
            step(torch.compile(model, backend="eager"), IDS[:, 7:8], growing)


@pytest.mark.parametrize("scales_first", [True, False])
@pytest.mark.slow
def test_scales_and_an_adapter_go_together_compiled_or_not(model: Any, scales_first: bool) -> None:
    peft = pytest.importorskip("peft")

    def adapted(model: Any) -> Any:
        torch.manual_seed(0)
        config = peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
        return peft.get_peft_model(model, config).eval()

    if scales_first:
        with patch_rope(model, SCALES):
            both = adapted(model)
            scaled = logits(both)
    else:
        both = adapted(model)
        with patch_rope(both, SCALES):
            scaled = logits(both)
    plain = logits(both)
    assert not close(scaled, plain)
    run = torch.compile(both, backend="eager")
    assert close(logits(run), plain)
    with patch_rope(both, SCALES):
        assert close(logits(run), scaled)
    assert close(logits(run), plain)


@pytest.mark.parametrize("spec", ["ntk:4:original=4:length=12", "ms-poe:first_layer=0"])
@pytest.mark.slow
def test_a_method_after_compilation_is_in_force_and_so_is_its_end(model: Any, spec: str) -> None:
    method, twin = make_method(spec), tiny_model("llama")
    with method.apply(twin):
        changed = logits(twin)
    # The decoder itself, which methods hook and ask how it rotates.
    model.model.compile(backend="eager")
    plain = logits(model)
    with method.apply(model):
        assert close(logits(model), changed)
    assert close(logits(model), plain)
    assert not close(changed, plain)


def test_probes_ask_the_model_itself_also_where_it_is_compiled() -> None:
    model = tiny_model("smollm3", no_rope_layers=[1, 0, 1])
    model.compile(backend="eager")
    model.model.compile(backend="eager")
    logits(model)
    assert rotary_layers(model) == (0, 2)
    with patch_rope(model, SCALES):
        logits(model)
        assert rotary_layers(model) == (0, 2)
