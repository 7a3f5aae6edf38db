"""Golden values of Position Interpolation, dynamic NTK and YaRN, and the cases that other programs get wrong."""

import copy
from typing import Any

import pytest
import torch
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from lpes_evo.errors import ConfigError, LpesError, ModelError, UnsupportedModelError
from lpes_evo.methods import DynamicNtk, PositionInterpolation, Yarn, make_method
from lpes_evo.rope import count_layers, find_structure, patch_rope, repair_frequencies
from method_promises import IDS, SCALES, SHORT, close, decoded, enter, logits
from rope_families import tiny_model

# In transformers 4 the rotary module of PhiMoE is not told its positions, so no layer can be scaled.
WITHOUT_TYPES = ["recurrent_gemma", *([] if transformers.__version__.startswith("4.") else ["phimoe"])]


@pytest.fixture(scope="module")
def llama() -> Any:
    return tiny_model("llama", max_position_embeddings=64)


def rotary_module(model: Any) -> Any:
    return find_structure(model).rotary_modules[0]


def extended(rope_type: str, **settings: Any) -> Any:
    """Return a model whose config extends positions eightfold already."""
    parameters = {"rope_type": rope_type, "factor": 8.0, **settings}
    model = tiny_model("llama")
    config = copy.deepcopy(model.config)
    if isinstance(getattr(config, "rope_parameters", None), dict):
        config.rope_parameters |= parameters
    else:
        config.rope_scaling = parameters
    changed = type(model)(config).eval()
    changed.load_state_dict(model.state_dict())
    return changed


def wide(**changes: Any) -> Any:
    """Return a model with heads of 128."""
    return tiny_model("llama", num_hidden_layers=1, head_dim=128, **changes)


def test_interpolated_frequencies_are_the_golden_ones(llama: Any) -> None:
    with PositionInterpolation(factor=2).apply(llama):
        found = rotary_module(llama).inv_freq
    assert torch.allclose(found, torch.tensor([0.5, 0.05, 0.005, 0.0005]), rtol=1e-6)


def test_interpolation_is_the_uniform_scale(llama: Any) -> None:
    with patch_rope(llama, [1.5] * 3):
        scaled = logits(llama)
    with PositionInterpolation(factor=1.5).apply(llama):
        assert close(logits(llama), scaled, 1e-6)


def test_interpolation_multiplies_with_scales_on_top(llama: Any) -> None:
    with patch_rope(llama, [1.5 * scale for scale in SCALES.scales]):
        product = logits(llama)
    with PositionInterpolation(factor=1.5, scales=SCALES).apply(llama):
        assert close(logits(llama), product, 1e-6)


def test_interpolation_divides_positions_in_front_of_an_extended_rotary_type() -> None:
    llama3 = extended(
        "llama3", low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16
    )
    divided = copy.deepcopy(llama3)
    rotary_module(divided).inv_freq.div_(1.5)
    with PositionInterpolation(factor=1.5).apply(llama3):
        assert close(logits(llama3), logits(divided), 1e-6)
    wanted = "default rotary type for the method yarn.*llama3"
    with pytest.raises(UnsupportedModelError, match=wanted), Yarn(factor=2).apply(llama3):
        pass


@pytest.mark.parametrize("model_type", WITHOUT_TYPES)
def test_interpolation_divides_positions_in_front_of_a_family_without_the_type(model_type: str) -> None:
    model = tiny_model(model_type)
    plain = logits(model)
    with patch_rope(model, [1.5] * 3):
        scaled = logits(model)
    assert not close(scaled, plain, 1e-6)
    with PositionInterpolation(factor=1.5).apply(model):
        assert torch.equal(logits(model), scaled)
    with PositionInterpolation(factor=1).apply(model):
        assert torch.equal(logits(model), plain)


@pytest.mark.parametrize("model_type", WITHOUT_TYPES)
def test_a_family_without_the_type_is_refused_in_one_line(model_type: str) -> None:
    wanted = (
        "^Expected rotary modules that (can be of the type yarn|keep frequencies)[^\n]* Use lpes or pi[^\n]*$"
    )
    with pytest.raises(UnsupportedModelError, match=wanted):
        enter(Yarn(factor=4), tiny_model(model_type))


def test_interpolation_divides_the_frequencies_that_the_model_has(llama: Any) -> None:
    model = copy.deepcopy(llama)
    # Sound, but not what the config gives.
    rotary_module(model).inv_freq[-1] *= 0.5
    with patch_rope(model, [1.5] * 3):
        scaled = logits(model)
    with PositionInterpolation(factor=1.5).apply(model):
        assert torch.equal(logits(model), scaled)


@pytest.mark.parametrize("spec", ["pi:1.5", "ntk:2", "yarn:4", "attention-buckets", "lpes"])
def test_frequencies_rounded_by_a_cast_are_refused_by_every_method(llama: Any, spec: str) -> None:
    coarse = copy.deepcopy(llama).to(torch.bfloat16)
    with pytest.raises(ModelError, match=r"in float32, but they are in torch\.bfloat16"):
        enter(make_method(spec, scales=SCALES), coarse)
    repair_frequencies(coarse)
    enter(make_method(spec, scales=SCALES), coarse)


@pytest.mark.parametrize("spec", ["lpes", "pi:1.5", "ntk:2", "yarn:4", "attention-buckets", "ms-poe"])
def test_falcon_with_alibi_is_refused_by_every_method(spec: str) -> None:
    with pytest.raises(UnsupportedModelError, match="^[^\n]*alibi in its config[^\n]*$"):
        enter(make_method(spec, scales=SCALES), tiny_model("falcon", alibi=True))


@pytest.mark.parametrize(
    "spec",
    [
        "pi:1e-300",
        "pi:1e7",
        "yarn:4:attention_factor=1e300",
        "yarn:4:attention_factor=1e-300",
        "yarn:4:beta_fast=1e300",
        "yarn:4:beta_slow=1e-300",
        f"yarn:4:original={10**400}",
        f"ntk:2:length={10**400}",
        f"ntk:2:original={10**400}",
    ],
)
def test_values_beyond_the_bounds_are_refused(spec: str) -> None:
    with pytest.raises(ConfigError, match="input should be (less|greater) than or equal to"):
        make_method(spec)


@pytest.mark.parametrize("betas", ["beta_fast=1:beta_slow=32", "beta_fast=2:beta_slow=2", "beta_slow=40"])
def test_a_ramp_that_does_not_fall_is_refused(betas: str) -> None:
    with pytest.raises(ConfigError, match="Expected beta_fast above beta_slow"):
        make_method(f"yarn:4:{betas}")


@pytest.mark.parametrize(
    "spec",
    [
        "pi:1e-6",
        "pi:1e6",
        "yarn:1e6:attention_factor=1e6:beta_fast=1e6:beta_slow=1e-6:original=1000000000",
        "yarn:4:attention_factor=1e-6:original=1",
        "ntk:1e6:original=1:length=1000000000",
    ],
)
def test_values_at_the_bounds_give_finite_logits(llama: Any, spec: str) -> None:
    with make_method(spec).apply(llama):
        assert logits(llama).isfinite().all()


@pytest.mark.parametrize(("factor", "base"), [(2, 30527.74), (4, 51293.79)])
def test_dynamic_base_is_the_golden_one(factor: float, base: float) -> None:
    assert 10000 * DynamicNtk(factor=factor).base_ratio(8192, 4096, 128) == pytest.approx(base, rel=1e-6)


def test_dynamic_frequencies_are_the_golden_ones_and_those_of_transformers(llama: Any) -> None:
    ids = torch.arange(128)[None] % 64
    with DynamicNtk(factor=2).apply(llama):
        logits(llama, ids)
        found = rotary_module(llama).variants[0].inv_freq
    assert torch.allclose(found, torch.tensor([1, 0.0693361, 0.00480750, 0.000333333]), rtol=1e-5)
    config = copy.deepcopy(llama.config)
    if isinstance(getattr(config, "rope_parameters", None), dict):
        config.rope_parameters |= {"rope_type": "dynamic", "factor": 2.0}
    else:
        config.rope_scaling = {"rope_type": "dynamic", "factor": 2.0}
    assert torch.allclose(found, ROPE_INIT_FUNCTIONS["dynamic"](config, "cpu", seq_len=128)[0], rtol=1e-5)


def test_a_prompt_within_the_window_runs_as_on_the_untouched_model_to_the_end(llama: Any) -> None:
    plain = decoded(llama)
    with DynamicNtk(factor=4, original=SHORT).apply(llama) as handle:
        assert torch.equal(decoded(llama), plain)
        # Full recomputation of what crossed the window while decoding.
        with handle.prompts([SHORT, SHORT]):
            assert close(logits(llama)[:, SHORT:], plain)
        assert not close(logits(llama), plain[:, -1:], 1e-6)


def test_a_prompt_beyond_the_window_keeps_its_base_while_decoding(llama: Any) -> None:
    with DynamicNtk(factor=4, original=4).apply(llama):
        steps = decoded(llama)
    with DynamicNtk(factor=4, original=4, length=SHORT).apply(llama):
        assert close(steps, logits(llama)[:, SHORT:])


def test_the_original_window_counts_and_not_the_extended_one() -> None:
    model = tiny_model("phi3", original_max_position_embeddings=8, max_position_embeddings=128)
    plain = logits(model)
    with DynamicNtk(factor=2).apply(model):
        by_config = logits(model)
    with DynamicNtk(factor=2, original=8).apply(model):
        assert torch.equal(logits(model), by_config)
    assert not close(by_config, plain, 1e-6)


@pytest.mark.parametrize("spec", ["ntk:4", "yarn:4", "attention-buckets"])
def test_a_model_that_is_of_the_dynamic_type_already_is_refused(spec: str) -> None:
    # Raising max_position_embeddings would switch that type off without a word.
    model = extended("dynamic")
    with pytest.raises(
        UnsupportedModelError, match="rotary type .* but LlamaRotaryEmbedding is of type dynamic"
    ):
        enter(make_method(spec), model)


def test_rows_of_one_batch_have_their_own_bases(llama: Any) -> None:
    mask = torch.ones_like(IDS)
    mask[0, :-SHORT] = 0
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    plain = logits(llama, attention_mask=mask, position_ids=positions)
    with DynamicNtk(factor=4, original=10).apply(llama):
        both = logits(llama, attention_mask=mask, position_ids=positions)
    assert torch.equal(both[0, -SHORT:], plain[0, -SHORT:])
    assert not close(both[1], plain[1], 1e-6)


def test_yarn_frequencies_are_the_golden_ones(llama: Any) -> None:
    with Yarn(factor=4).apply(llama):
        module = rotary_module(llama)
        assert torch.allclose(module.inv_freq, torch.tensor([1, 0.0625, 0.0025, 0.00025]), rtol=1e-6)
        assert module.attention_scaling == pytest.approx(1.1386294)
        cosines, _ = module(torch.zeros(1, 1, 32), torch.tensor([[0]]))
        assert torch.allclose(cosines, torch.tensor(1.1386294))
    with Yarn(factor=2).apply(llama):
        assert rotary_module(llama).attention_scaling == pytest.approx(1.0693147)


def test_yarn_frequencies_of_wide_heads_are_the_golden_ones() -> None:
    model = wide(max_position_embeddings=4096)
    with Yarn(factor=4).apply(model):
        found = rotary_module(model).inv_freq[[0, 20, 33, 46, 63]]
    golden = torch.tensor([1, 0.0562341, 0.00541228, 3.33380e-4, 2.88695e-5])
    assert torch.allclose(found, golden, rtol=1e-5)


def test_yarn_ramp_of_a_large_base_is_the_golden_one() -> None:
    model = wide(max_position_embeddings=32768, rope_theta=1e6)
    plain = rotary_module(model).inv_freq.clone()
    with Yarn(factor=4).apply(model):
        ratios = rotary_module(model).inv_freq / plain
    assert torch.allclose(ratios[:24], torch.ones(24))
    assert ratios[24] < 1 - 1e-3
    assert ratios[39] > 0.25 + 1e-3
    assert torch.allclose(ratios[40:], torch.full((24,), 0.25))


def test_yarn_honours_the_factors_that_are_given(llama: Any) -> None:
    with Yarn(factor=4, attention_factor=1.0, original=16).apply(llama):
        module = rotary_module(llama)
        assert module.attention_scaling == 1.0
        # Neither 64 / 16 nor anything else takes the place of the factor.
        assert float(module.inv_freq[-1]) == pytest.approx(0.001 / 4)
    with Yarn(factor=8, original=16).apply(llama):
        assert float(rotary_module(llama).inv_freq[-1]) == pytest.approx(0.001 / 8)


@pytest.mark.parametrize("spec", ["ntk:2", "yarn:2", "attention-buckets"])
def test_families_with_a_fixed_table_are_refused_in_one_line(spec: str) -> None:
    # In transformers 4 the table is not even in a module of its own.
    wanted = "^[^\n]*(keeps a fixed table. Use lpes or pi|has no rotary module)[^\n]*$"
    with pytest.raises(UnsupportedModelError, match=wanted):
        enter(make_method(spec), tiny_model("gptj"))


@pytest.mark.parametrize("spec", ["pi:2", "ntk:2", "yarn:2", "attention-buckets", "ms-poe"])
def test_models_without_rotary_embedding_are_refused(spec: str) -> None:
    with pytest.raises(LpesError, match="rotary"), make_method(spec).apply(tiny_model("gpt2")):
        pass


def test_layers_are_scaled_on_top_of_yarn(llama: Any) -> None:
    with Yarn(factor=4).apply(llama):
        plain = logits(llama)
        with patch_rope(llama, [1.0] * count_layers(llama)):
            assert torch.equal(logits(llama), plain)
        with patch_rope(llama, SCALES.scales):
            nested = logits(llama)
    with Yarn(factor=4, scales=SCALES).apply(llama):
        assert torch.equal(logits(llama), nested)
