import numpy as np
import pytest
import torch

from lpes_evo.analysis import decay_curve, layer_frequencies
from lpes_evo.errors import ConfigError, UnsupportedModelError
from lpes_evo.rope import patch_rope


def family_model(family, **changes):
    from rope_families import tiny_model

    return tiny_model(family, **changes)


def test_the_bound_begins_at_one_and_stays_below():
    theta = 10000.0 ** -(np.arange(0, 64, 2) / 64)
    bound = decay_curve(theta, np.arange(0, 2000))
    assert bound[0] == pytest.approx(1)
    assert (bound[1:] < 1).all()
    # It decays with distance, though not step by step (RoFormer, figure 2).
    assert bound[:10].mean() > bound[10:100].mean() > bound[100:1000].mean()


def test_the_bound_is_that_of_the_closed_form():
    distances = np.array([0.0, 1.0, 5.0])
    assert decay_curve([0.7], distances) == pytest.approx(1)
    # Two pairs: |S_1| = 1 and |S_2| = |1 + exp(i d (theta_1 - theta_0))| = 2 |cos(d (theta_1 - theta_0) / 2)|.
    expected = (1 + 2 * np.abs(np.cos(distances * 0.6 / 2))) / 3
    assert decay_curve([1.0, 0.4], distances) == pytest.approx(expected)


def test_the_bound_bounds_real_scores():
    generator = np.random.default_rng(0)
    theta = 10000.0 ** -(np.arange(0, 16, 2) / 16)
    for distance in (0, 3, 40):
        query, key = (generator.standard_normal(8) + 1j * generator.standard_normal(8) for _ in range(2))
        h = np.append(query * key.conj(), 0)
        score = np.abs((h[:-1] * np.exp(1j * distance * theta)).sum())
        # RoFormer, equation 37, with the sum of |S_j| from the curve: mean times the number of pairs.
        total = decay_curve(theta, [distance])[0] * (len(theta) + 1) / 2 * len(theta)
        assert score <= np.abs(np.diff(h)).max() * total


def test_a_scale_stretches_the_curve():
    theta = [1.0, 0.3, 0.05]
    distances = np.array([2.0, 7.0, 31.0])
    assert decay_curve(theta, 1.7 * distances, scale=1.7) == pytest.approx(decay_curve(theta, distances))


def test_wrong_arguments_of_the_curve_are_refused():
    for theta, scale in (([], 1.0), ([1.0], 0.0), ([1.0], np.nan), ([[1.0]], 1.0)):
        with pytest.raises(ConfigError, match="Expected frequencies"):
            decay_curve(theta, [0, 1], scale)


@pytest.mark.parametrize("family", ["llama", "gptj"])
def test_frequencies_are_those_of_the_config(family):
    found = layer_frequencies(family_model(family))
    assert len(found) == 3
    for theta in found:
        assert theta == pytest.approx(10000.0 ** -(np.arange(0, 8, 2) / 8), rel=1e-5)


def test_a_partly_rotated_head_has_the_frequencies_of_its_rotated_part():
    model = family_model("gpt_neox")
    width = model.gpt_neox.rotary_emb.inv_freq.shape[0]
    assert all(len(theta) == width for theta in layer_frequencies(model))


def test_layers_of_several_kinds_have_the_frequencies_of_their_kind():
    model = family_model(
        "gemma3_text", layer_types=["sliding_attention", "full_attention", "sliding_attention"]
    )
    sliding, full, other = layer_frequencies(model)
    assert np.array_equal(sliding, other)
    assert sliding[-1] > 2 * full[-1]


def test_layers_without_rotation_have_none():
    first, middle, last = layer_frequencies(family_model("qwen3_next"))
    assert middle is None
    assert len(first) == len(last) > 0


def test_the_curve_after_scaling_is_that_of_the_tables_a_patched_layer_gets():
    model, scales, seen = family_model("llama"), [0.6, 1.5, 2.5], []
    frequencies = layer_frequencies(model)
    with torch.no_grad(), patch_rope(model, scales):
        for layer in model.model.layers:
            layer.register_forward_pre_hook(
                lambda _module, _args, kwargs: seen.append(kwargs["position_embeddings"]), with_kwargs=True
            )
        model(input_ids=torch.arange(3, 15)[None])
    for (cosines, sines), theta, scale in zip(seen, frequencies, scales, strict=True):
        turns = torch.complex(cosines, sines)[0, :, : len(theta)]
        sums = torch.cumsum(turns / turns[:1], dim=-1).abs().mean(dim=-1) / ((len(theta) + 1) / 2)
        assert decay_curve(theta, np.arange(12), scale) == pytest.approx(sums.numpy(), abs=1e-5)


def test_a_model_without_rotation_is_refused():
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=8, vocab_size=16))
    with pytest.raises(UnsupportedModelError, match="no rotary module"):
        layer_frequencies(model)
