"""The handle, its errors, and the cases that real loading and training bring."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers import GPT2Config, GPT2LMHeadModel

from lpes_evo.errors import LpesError, ModelError, ScalesError, UnsupportedModelError
from lpes_evo.rope import (
    CheckedScales,
    check_frequencies,
    count_layers,
    patch_rope,
    repair_frequencies,
    rotary_layers,
    unpatch_rope,
)
from rope_families import tiny_model
from rope_promises import IDS, close, logits, profile


@pytest.fixture
def model() -> Any:
    return tiny_model("llama")


def rope(kind: str, **entries: Any) -> Any:
    theta = entries.pop("rope_theta", 10000.0)
    if transformers.__version__.startswith("4."):
        # Version 4 keeps the type in a field of another name, and the base outside of it.
        return tiny_model("llama", rope_theta=theta, rope_scaling={"rope_type": kind, **entries})
    return tiny_model("llama", rope_parameters={"rope_type": kind, "rope_theta": theta, **entries})


SCALED_TYPES = {
    "linear": {"factor": 2.0},
    "dynamic": {"factor": 2.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 32},
    "llama3": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
    "longrope": {
        "short_factor": [1.0, 1.1, 1.2, 1.3],
        "long_factor": [1.5, 2.0, 3.0, 4.0],
        "factor": 4.0,
        "original_max_position_embeddings": 32,
    },
}


@pytest.mark.parametrize("kind", SCALED_TYPES)
def test_every_rotary_type_composes_with_scales(kind: str) -> None:
    model = rope(kind, **SCALED_TYPES[kind])
    plain = logits(model)
    with patch_rope(model, [1.0] * 3):
        assert torch.equal(logits(model), plain)
    with patch_rope(model, profile(model)):
        assert not torch.equal(logits(model), plain)
    assert torch.equal(logits(model), plain)


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_dynamic_type_takes_its_length_from_true_positions(kind: str) -> None:
    model = rope(kind, **SCALED_TYPES[kind])
    ids = torch.randint(3, 64, (1, 160))
    plain = logits(model, ids)
    with patch_rope(model, [1.0] * 3):
        assert torch.equal(logits(model, ids), plain)
    with patch_rope(model, [8.0] * 3):
        logits(model, ids)
    frequencies = model.model.rotary_emb.inv_freq.clone()
    logits(model, ids)
    assert torch.equal(model.model.rotary_emb.inv_freq, frequencies)
    assert not torch.equal(frequencies, model.model.rotary_emb.original_inv_freq)


def test_scales_may_be_a_list_an_array_or_a_tensor(model: Any) -> None:
    found = []
    for scales in (
        [0.9, 1.2, 1.4],
        np.array([0.9, 1.2, 1.4]),
        torch.tensor([0.9, 1.2, 1.4], dtype=torch.float64),
    ):
        with patch_rope(model, scales):
            found.append(logits(model))
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_set_replaces_the_scales(model: Any) -> None:
    with patch_rope(model, profile(model)) as patch:
        expected = logits(model)
        patch.set([1.0, 1.0, 1.0])
        assert not torch.equal(logits(model), expected)
        patch.set(profile(model))
        assert torch.equal(logits(model), expected)


def test_scales_that_were_checked_are_not_checked_again_at_every_set(model: Any, monkeypatch: Any) -> None:
    checked = CheckedScales([profile(model), [1.0, 1.0, 1.0]], count_layers(model))
    with patch_rope(model, profile(model)) as patch:
        expected = logits(model)
        monkeypatch.setattr("lpes_evo.rope._scales.check_scales", None)
        patch.set(checked.rows([1]))
        assert not torch.equal(logits(model), expected)
        patch.set(checked.rows([0]))
        assert torch.equal(logits(model), expected)


def test_scales_that_were_checked_for_another_model_are_refused(model: Any) -> None:
    with pytest.raises(ScalesError, match=r"shape \(n_layers,\) = \(3,\).* but got \(4,\)"):
        patch_rope(model, CheckedScales([1.0] * 4, 4))


def test_removed_patch_refuses_new_scales(model: Any) -> None:
    patch = patch_rope(model, profile(model))
    patch.remove()
    patch.remove()
    assert not patch.active
    with pytest.raises(ModelError, match="it was removed"):
        patch.set(profile(model))


def test_inner_patch_gives_way_to_the_outer_one(model: Any) -> None:
    outer = patch_rope(model, [1.5, 1.5, 1.5])
    expected = logits(model)
    with patch_rope(model.model, [0.8, 0.8, 0.8]):
        assert not torch.equal(logits(model), expected)
    assert torch.equal(logits(model), expected)
    outer.remove()


def test_unpatch_takes_every_patch_off(model: Any) -> None:
    plain = logits(model)
    patch_rope(model, [1.5, 1.5, 1.5])
    twin = copy.deepcopy(model)
    unpatch_rope(model)
    unpatch_rope(twin)
    unpatch_rope(twin)
    assert torch.equal(logits(model), plain)
    assert torch.equal(logits(twin), plain)


@pytest.mark.parametrize(
    ("scales", "message"),
    [
        ([1.0, 1.0], r"\(n_layers,\) = \(3,\)"),
        ([1.0, float("nan"), 1.0], "finite and positive"),
        ([1.0, 0.0, 1.0], "finite and positive"),
        ([1.0, -1.0, 1.0], "finite and positive"),
        (["one"], "to be numbers"),
        ([1.0, 1e-300, 1.0], "between 1e-06 and 1e[+]06, but got 1e-300 at layer 1"),
        ([1.0, 1.0, 1e300], "between 1e-06 and 1e[+]06, but got 1e[+]300 at layer 2"),
        (np.ma.masked_array([1.0, 1.0, 1.0], mask=[0, 1, 0]), "without a mask"),
        (torch.ones(3, device="meta"), "on the meta device"),
        (torch.ones(3).to_sparse(), r"layout torch\.sparse_coo"),
        (torch.ones(3, dtype=torch.complex64), "real numbers, but got torch.complex64"),
    ],
)
def test_wrong_scales_are_refused_and_leave_nothing_behind(model: Any, scales: Any, message: str) -> None:
    with pytest.raises(ScalesError, match=message):
        patch_rope(model, scales)
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_rows_must_match_the_batch_also_in_generate(model: Any) -> None:
    with patch_rope(model, [[1.1] * 3] * 3), pytest.raises(ScalesError, match=r"batch = 2 .* but got 3 rows"):
        logits(model)
    with patch_rope(model, [[1.1] * 3] * 2), pytest.raises(ScalesError, match=r"batch = 4 .* but got 2 rows"):
        model.generate(input_ids=IDS, num_beams=2, max_new_tokens=2)


def test_model_without_rotary_embedding_is_refused() -> None:
    gpt2 = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4))
    with pytest.raises(UnsupportedModelError, match="GPT2LMHeadModel has no rotary module"):
        patch_rope(gpt2, [1.0, 1.0])


def test_falcon_with_alibi_is_refused_though_it_has_a_rotary_module() -> None:
    falcon = tiny_model("falcon", alibi=True)
    wanted = "^Expected a model with rotary position embeddings, but FalconForCausalLM .*alibi[^\n]*$"
    with pytest.raises(UnsupportedModelError, match=wanted):
        patch_rope(falcon, [1.2] * 3)


def test_module_without_config_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="Linear states none"):
        count_layers(torch.nn.Linear(2, 2))


def test_model_whose_layers_are_never_reached_is_refused(model: Any) -> None:
    model.model.forward = lambda input_ids: input_ids
    with patch_rope(model, [1.2] * 3), pytest.raises(UnsupportedModelError, match="reached none"):
        model.model(input_ids=IDS)


def test_model_that_makes_its_own_tables_is_refused(model: Any) -> None:
    layer = model.model.layers[1]
    own = (torch.ones(1, 12, 8), torch.zeros(1, 12, 8))
    layer.register_forward_pre_hook(
        lambda _module, args, kwargs: (args, {**kwargs, "position_embeddings": own}), with_kwargs=True
    )
    with patch_rope(model, [1.2] * 3), pytest.raises(UnsupportedModelError, match="reach layer 1"):
        logits(model)


def test_layers_without_rotation_are_told_apart() -> None:
    assert rotary_layers(tiny_model("llama")) == (0, 1, 2)
    assert rotary_layers(tiny_model("smollm3", no_rope_layers=[1, 0, 1])) == (0, 2)
    assert rotary_layers(tiny_model("qwen3_next")) == (0, 2)


@pytest.mark.parametrize("value", [float("nan"), 0.0])
@pytest.mark.parametrize("model_type", ["smollm3", "llama4_text", "falcon"])
def test_layers_that_rotate_are_recorded_and_not_told_by_values(model_type: str, value: float) -> None:
    changes = {"no_rope_layers": [1, 0, 1]} if model_type != "falcon" else {}
    model = tiny_model(model_type, **changes)
    expected = rotary_layers(model)
    attention = [
        module for name, module in model.named_modules() if name.endswith(("self_attn", "attention"))
    ]
    with torch.no_grad():
        for parameter in attention[0].parameters():
            parameter.fill_(value)
    assert rotary_layers(model) == expected
    assert 0 in expected


@pytest.mark.parametrize("value", [0.0, float("nan"), float("inf"), -1.0])
def test_corrupted_frequencies_are_refused(model: Any, value: float) -> None:
    model.model.rotary_emb.inv_freq.fill_(value)
    with pytest.raises(ModelError, match="rotary frequencies .* finite, positive and decreasing from 1"):
        patch_rope(model, [1.0] * 3)
    repair_frequencies(model)
    check_frequencies(model)


@pytest.mark.parametrize("theta", [0.0, -10000.0, 1e-3, float("inf"), float("nan")])
def test_frequencies_that_the_config_itself_makes_unsound_are_refused(theta: float) -> None:
    with pytest.raises(ModelError, match=r"those that the model's config gives .* Correct rope_theta"):
        check_frequencies(rope("default", rope_theta=theta))


def test_first_frequency_must_be_one(model: Any) -> None:
    model.model.rotary_emb.inv_freq.div_(2)
    with pytest.raises(ModelError, match=r"the first is 0\.5"):
        check_frequencies(model)


def test_frequencies_lost_on_the_meta_device_are_refused_until_repaired(model: Any) -> None:
    with torch.device("meta"):
        empty = type(model)(model.config)
    with pytest.raises(ModelError, match="meta device"):
        check_frequencies(empty)
    empty = empty.to_empty(device="cpu").eval()
    empty.load_state_dict(model.state_dict())
    empty.model.rotary_emb.inv_freq.zero_()
    with pytest.raises(ModelError, match="not positive"):
        patch_rope(empty, [1.0] * 3)
    repair_frequencies(empty)
    with patch_rope(model, profile(model)), patch_rope(empty, profile(model)):
        assert torch.equal(logits(empty), logits(model))


def test_frequencies_rounded_by_a_cast_are_refused_until_repaired(model: Any) -> None:
    model.to(torch.bfloat16)
    with pytest.raises(ModelError, match=r"in float32, but they are in torch\.bfloat16"):
        patch_rope(model, [1.0] * 3)
    repair_frequencies(model)
    with patch_rope(model, [1.0] * 3):
        assert logits(model).dtype == torch.bfloat16


def test_dispatched_model_can_be_patched_copied_and_restored(model: Any, tmp_path: Any) -> None:
    accelerate = pytest.importorskip("accelerate")
    devices = {"model.embed_tokens": "cpu", "model.norm": "cpu", "model.rotary_emb": "cpu", "lm_head": "cpu"}
    devices |= {f"model.layers.{layer}": "disk" if layer == 1 else "cpu" for layer in range(3)}
    with patch_rope(model, profile(model)):
        expected = logits(model)
    model = accelerate.dispatch_model(
        model, devices, offload_dir=tmp_path, main_device="cpu", force_hooks=True
    )
    plain = logits(model)
    forwards = [module.forward for module in model.modules()]
    with patch_rope(model, profile(model)), patch_rope(model, profile(model)):
        assert torch.equal(logits(model), expected)
        twin = copy.deepcopy(model)
        assert torch.equal(logits(twin), expected)
    assert torch.equal(logits(model), plain)
    assert [module.forward for module in model.modules()] == forwards
    with pytest.raises(KeyError, match="planned"), patch_rope(model, profile(model)):
        raise KeyError("planned")
    assert torch.equal(logits(model), plain)


def score(model: Any, scales: torch.Tensor) -> torch.Tensor:
    with patch_rope(model, scales):
        return model(input_ids=IDS, use_cache=False).logits.double().log_softmax(-1)[..., 7].sum()


@pytest.mark.parametrize("model_type", ["llama", "gemma3_text", "gptj", "moshi", "deepseek_v2", "gpt_neox"])
def test_gradient_of_scales_matches_central_differences(
    model_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if model_type == "gptj" and transformers.__version__.startswith("4."):
        pytest.skip("GPT-J has no rotary module in transformers 4")
    model = tiny_model(model_type, first_k_dense_replace=3).requires_grad_(False).double()
    repair_frequencies(model)
    # Models take angles and norms in float32, which is too coarse for differences; here they take float64.
    cast = torch.Tensor.to
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    monkeypatch.setattr(
        torch.Tensor,
        "to",
        lambda tensor, *args, **kwargs: cast(
            tensor, *(torch.float64 if arg is torch.float32 else arg for arg in args), **kwargs
        ),
    )
    scales = torch.tensor(profile(model), dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(score(model, scales), scales)
    for layer in range(3):
        step = torch.zeros(3, dtype=torch.float64)
        step[layer] = 1e-5
        with torch.no_grad():
            slope = (score(model, scales + step) - score(model, scales - step)) / 2e-5
        assert gradient[layer] == pytest.approx(float(slope), rel=1e-4, abs=1e-7)
    assert all(parameter.grad is None for parameter in model.parameters())


def gradient_inside(model: Any, scales: torch.Tensor) -> torch.Tensor:
    """Return the gradient, with the backward inside the patch, as checkpointing runs layers again in it."""
    with patch_rope(model, scales):
        return torch.autograd.grad(score(model, scales), scales)[0]


@pytest.mark.parametrize("model_type", ["llama", "gemma3_text", "moshi"])
def test_gradient_is_the_same_with_checkpointing(model_type: str) -> None:
    model = tiny_model(model_type).requires_grad_(False)
    scales = torch.tensor(profile(model), requires_grad=True)
    model.train()
    plain = gradient_inside(model, scales)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.enable_input_require_grads()
    checkpointed = gradient_inside(model, scales)
    assert close(checkpointed, plain)
    assert plain.abs().min() > 0


def test_reentrant_checkpointing_is_refused_for_gradients(model: Any) -> None:
    model.train().gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
    scales = torch.ones(3, requires_grad=True)
    with patch_rope(model, scales), pytest.raises(ModelError, match="use_reentrant"):
        model(input_ids=IDS)


def test_optimiser_may_change_scales_in_place(model: Any) -> None:
    scales = torch.ones(3, requires_grad=True)
    with patch_rope(model, scales):
        plain = logits(model)
        with torch.no_grad():
            scales.mul_(1.5)
        assert not torch.equal(logits(model), plain)


def test_every_error_is_an_error_of_the_project() -> None:
    assert issubclass(UnsupportedModelError, LpesError)
