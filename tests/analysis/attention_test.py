import numpy as np
import pytest
import torch

from lpes_evo.analysis import AnalysisInput, AttentionMass, measure_attention, summarise_attention
from lpes_evo.errors import EvaluationError, TaskError, UnsupportedModelError
from lpes_evo.rope import patch_rope

FAMILIES = ["llama", "gemma2", "gpt_neox", "mistral", "qwen3", "deepseek_v3", "gptj"]
SCALES = [0.7, 1.2, 1.9]


def family_model(family, **changes):
    from rope_families import tiny_model

    return tiny_model(family, **changes)


def eager_weights(model, entry, scales):
    """Weights of the last token of every layer as transformers gives them, ``(n_layers, n_tokens)``."""
    model.set_attn_implementation("eager")
    with torch.no_grad(), patch_rope(model, scales):
        found = model(input_ids=torch.tensor([entry.token_ids]), use_cache=False, output_attentions=True)
    return np.stack([weights[0, :, -1].double().mean(dim=0).numpy() for weights in found.attentions])


@pytest.mark.parametrize("family", FAMILIES)
def test_shares_are_sums_of_the_eager_weights_of_transformers_and_sum_to_one(family, short_inputs):
    model = family_model(family)
    found = measure_attention(model, short_inputs, SCALES)
    for number, entry in enumerate(short_inputs):
        n = entry.n_tokens
        for values, scales in ((found.untouched, [1.0] * 3), (found.scaled, SCALES)):
            weights = eager_weights(model, entry, scales)
            expected = [
                weights[:, : n // 3].sum(axis=1),
                weights[:, n // 3 : 2 * n // 3].sum(axis=1),
                weights[:, 2 * n // 3 :].sum(axis=1),
                weights[:, 0],
            ]
            assert values[number, :, :4] == pytest.approx(np.stack(expected, axis=1), abs=1e-5)
            assert values[number, :, :3].sum(axis=1) == pytest.approx(1, abs=1e-5)
            if entry.gold is None:
                assert np.isnan(values[number, :, 4]).all()
            else:
                assert values[number, :, 4] == pytest.approx(
                    weights[:, slice(*entry.gold)].sum(axis=1), abs=1e-5
                )
    assert np.abs(found.scaled - found.untouched)[..., :3].max() > 1e-4
    assert found.gold_tokens == (2, 3, 0)


def test_a_sliding_window_hides_what_lies_before_it(short_inputs):
    model = family_model("mistral", sliding_window=4)
    found = measure_attention(model, short_inputs[:1], SCALES)
    assert found.untouched[0, :, [0, 1, 3]] == pytest.approx(0, abs=1e-6)
    assert found.untouched[0, :, 2] == pytest.approx(1, abs=1e-5)


def test_layers_without_attention_have_no_shares(short_inputs):
    found = measure_attention(family_model("qwen3_next"), short_inputs[:2], SCALES)
    assert np.isnan(found.untouched[:, 1]).all()
    assert not np.isnan(found.untouched[:, [0, 2]]).any()
    assert found.attending_layers == (0, 2)
    summary = summarise_attention(found)
    assert summary["layers"][1] is None
    assert summary["layers"][0]["beginning"] is not None


def test_any_backend_gives_the_shares_of_eager_and_is_given_back(short_inputs):
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    AttentionInterface.register("strange", sdpa_attention_forward)
    AttentionMaskInterface.register("strange", lambda *_args, **_kwargs: None)
    model = family_model("mistral", sliding_window=6)
    found = {}
    for backend in ("eager", "sdpa", "strange"):
        model.set_attn_implementation(backend)
        found[backend] = measure_attention(model, short_inputs, SCALES)
        assert model.config._attn_implementation == backend
    for backend in ("sdpa", "strange"):
        assert found[backend].scaled == pytest.approx(found["eager"].scaled, abs=1e-5, nan_ok=True)
    assert "layers run sdpa as before" in found["sdpa"].note
    assert "switched from strange to sdpa" in found["strange"].note


def test_the_weights_of_one_query_alone_are_computed(short_inputs, monkeypatch):
    from transformers.models.llama import modeling_llama

    model = family_model("llama")
    shapes = []
    original = modeling_llama.eager_attention_forward

    def watch(module, query, *args, **kwargs):
        output, weights = original(module, query, *args, **kwargs)
        shapes.append(tuple(weights.shape))
        return output, weights

    monkeypatch.setattr(modeling_llama, "eager_attention_forward", watch)
    measure_attention(model, short_inputs[:1], SCALES)
    assert shapes == [(1, 4, 1, 13)] * 6


def test_the_model_is_untouched_afterwards(short_inputs):
    model = family_model("llama")
    ids = torch.tensor([short_inputs[0].token_ids])
    with torch.no_grad():
        before = model(input_ids=ids).logits
        measure_attention(model, short_inputs, SCALES)
        assert torch.equal(model(input_ids=ids).logits, before)
    assert not any(module._forward_pre_hooks for module in model.modules())
    assert not any("_lpes_attention" in module.__dict__ for module in model.modules())


def test_layers_that_compute_attention_themselves_are_refused(short_inputs):
    with pytest.raises(UnsupportedModelError, match="compute attention themselves"):
        measure_attention(family_model("falcon"), short_inputs, SCALES)


def test_weights_that_are_not_finite_are_named(short_inputs):
    model = family_model("llama")
    with torch.no_grad():
        model.model.layers[0].self_attn.q_proj.weight.fill_(torch.nan)
    with pytest.raises(EvaluationError, match="input '0' has others"):
        measure_attention(model, short_inputs, SCALES)
    with pytest.raises(TaskError, match="at least one input"):
        measure_attention(model, [], SCALES)


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_the_layer_whose_weights_are_not_finite_is_named(short_inputs, layer, monkeypatch):
    from transformers.models.llama import modeling_llama

    model = family_model("llama")
    original = modeling_llama.eager_attention_forward

    def broken(module, *args, **kwargs):
        output, weights = original(module, *args, **kwargs)
        return output, torch.full_like(weights, torch.nan) if module.layer_idx == layer else weights

    # Kernels differ in what they make of weights that are not finite, so the attention itself gives them here.
    monkeypatch.setattr(modeling_llama, "eager_attention_forward", broken)
    with pytest.raises(
        EvaluationError, match=f"layer {layer} of input '0' has others: those of 13 of 13 tokens"
    ):
        measure_attention(model, short_inputs, SCALES)


def test_a_single_weight_that_is_not_finite_is_refused_outside_of_the_parts_too(short_inputs, monkeypatch):
    from transformers.models.llama import modeling_llama

    model = family_model("llama")
    original = modeling_llama.eager_attention_forward

    def broken(module, *args, **kwargs):
        output, weights = original(module, *args, **kwargs)
        weights = weights.clone()
        weights[..., 5] = torch.inf
        return output, weights

    monkeypatch.setattr(modeling_llama, "eager_attention_forward", broken)
    with pytest.raises(EvaluationError, match="layer 0 of input '0' has others: those of 1 of 13 tokens"):
        measure_attention(model, short_inputs, SCALES)


def test_a_layer_without_attention_is_known_by_the_record_and_not_by_its_shares():
    found = made_up(0.2)
    summary = summarise_attention(AttentionMass(**{**vars(found), "attending_layers": (1, 2)}))
    assert [row is None for row in summary["layers"]] == [True, False, False]


def made_up(change):
    """Twelve inputs, three layers; the gold span gains ``change`` in layer 1 under the scales."""
    generator = np.random.default_rng(0)
    untouched = 0.2 + 0.01 * generator.standard_normal((12, 3, 5))
    scaled = untouched + 0.001 * generator.standard_normal((12, 3, 5))
    untouched[:, 1, 4] += 0.3
    scaled[:, 1, 4] += 0.3 + change
    untouched[0, :, 4] = scaled[0, :, 4] = np.nan
    ids = tuple(map(str, range(12)))
    return AttentionMass(
        untouched=untouched,
        scaled=scaled,
        input_ids=ids,
        sources=ids,
        positions=(0.0, 1.0) * 6,
        gold_tokens=(0,) + (1,) * 11,
        n_tokens=(9,) * 12,
        note="",
        attending_layers=(0, 1, 2),
    )


def test_a_shift_of_attention_is_found_where_it_is_and_nowhere_else():
    summary = summarise_attention(made_up(0.2))
    assert summary["gold_layer"] == 1
    assert summary["n_with_gold"] == 11
    gold = [row["gold span"] for row in summary["layers"]]
    assert gold[1]["difference"]["value"] == pytest.approx(0.2, abs=0.01)
    assert gold[1]["difference"]["low"] > 0.19
    assert gold[1]["p_corrected"] == pytest.approx(3 * gold[1]["p_value"])
    assert gold[1]["p_corrected"] < 0.01
    assert min(gold[0]["p_corrected"], gold[2]["p_corrected"]) > 0.05
    assert [(row["position"], row["n"]) for row in summary["positions"]] == [(0.0, 5), (1.0, 6)]


def test_inputs_without_gold_spans_have_thirds_alone():
    found = made_up(0.2)
    summary = summarise_attention(
        AttentionMass(**{**vars(found), "gold_tokens": (0,) * 12, "positions": (None,) * 12})
    )
    assert summary["gold_layer"] is None
    assert summary["positions"] == []
    assert summary["layers"][0]["gold span"] is None
    assert summary["layers"][0]["middle"]["untouched"]["value"] == pytest.approx(0.2, abs=0.01)


def test_an_input_of_three_tokens_is_too_short():
    with pytest.raises(TaskError, match="at least 4 tokens"):
        measure_attention(family_model("llama"), [AnalysisInput("x", "x", (1, 2, 3))], SCALES)
