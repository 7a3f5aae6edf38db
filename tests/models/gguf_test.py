"""Rotary parameters of GGUF files: all of them are in force, or the file is refused."""

import json

import numpy as np
import pytest
import torch
from transformers import AutoConfig

from lpes_evo.errors import ModelError
from lpes_evo.methods import make_method
from lpes_evo.models import load_model, read_rope, take_rope, weights_hash
from samples import build_llama, build_tokenizer

gguf = pytest.importorskip("gguf", reason="the extra [gguf] is not installed")
pytest.importorskip("accelerate", reason="the extra [gguf] is not installed")

IDS = torch.randint(2, 250, (1, 60), generator=torch.Generator().manual_seed(0))
FREE_FACTORS = [1.0, 1.0, 1.5, 2.0, 3.0, 4.0, 8.0, 8.0]


def writer(path, arch="llama", context=1024, **rope):
    """Begin a file that states rotary parameters, each a key after ``ARCHITECTURE.rope.``."""
    out = gguf.GGUFWriter(path, arch)
    out.add_context_length(context)
    out.add_embedding_length(32)
    out.add_block_count(3)
    out.add_feed_forward_length(48)
    out.add_head_count(2)
    out.add_head_count_kv(1)
    out.add_layer_norm_rms_eps(1e-6)
    out.add_vocab_size(258)
    for name, value in {"freq_base": 10000.0, "dimension_count": 16, **rope}.items():
        key = f"{arch}.rope.{name}"
        if isinstance(value, str):
            out.add_string(key, value)
        elif isinstance(value, bool):
            out.add_bool(key, value)
        elif isinstance(value, list):
            out.add_array(key, value)
        elif isinstance(value, int):
            out.add_uint32(key, value)
        elif value is not None:
            out.add_float32(key, value)
    return out


def finish(out, factors=None):
    for name, values in (factors or {}).items():
        out.add_tensor(f"{name}.weight", np.asarray(values, dtype=np.float32))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def write_llama(path, factors=None, **rope):
    """Write the small Llama of the other tests as llama.cpp's converter does."""
    out = writer(path, **rope)
    words = [word for word, _ in sorted(build_tokenizer().get_vocab().items(), key=lambda entry: entry[1])]
    # The format wants a merge at least.
    words[-1] = "ab"
    out.add_tokenizer_model("gpt2")
    out.add_token_list(words)
    out.add_token_types([1] * len(words))
    out.add_token_merges(["a b"])
    out.add_bos_token_id(0)
    out.add_eos_token_id(1)
    names = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    parts = {
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    }
    for layer in range(3):
        for theirs, ours in parts.items():
            names[f"model.layers.{layer}.{theirs}.weight"] = f"blk.{layer}.{ours}.weight"
    for name, values in build_llama().state_dict().items():
        array = values.numpy()
        if "q_proj" in name or "k_proj" in name:
            # The format has the two dimensions of a pair side by side.
            heads = 2 if "q_proj" in name else 1
            array = array.reshape(heads, 2, -1, array.shape[1]).swapaxes(1, 2).reshape(array.shape)
        out.add_tensor(names[name], np.ascontiguousarray(array))
    finish(out, factors)
    return path


def expected_logits(frequencies, attention=1.0):
    model = build_llama()
    model.model.rotary_emb.inv_freq.copy_(torch.as_tensor(frequencies, dtype=torch.float32))
    model.model.rotary_emb.attention_scaling = attention
    return model(IDS).logits


def plain(base=10000.0):
    return base ** -(np.arange(0, 16, 2) / 16)


def load(path):
    return load_model(path, device="cpu", dtype="float32")


def test_a_file_without_anything_special_loads_as_before(tmp_path):
    loaded = load(write_llama(tmp_path / "m.gguf"))
    assert loaded.notes == ()
    torch.testing.assert_close(loaded.model(IDS).logits, build_llama()(IDS).logits, rtol=0, atol=1e-4)


def test_factors_of_frequencies_are_in_force_and_said(tmp_path):
    path = write_llama(tmp_path / "m.gguf", {"rope_freqs": FREE_FACTORS})
    loaded = load(path)
    expected = expected_logits(plain() / FREE_FACTORS)
    torch.testing.assert_close(loaded.model(IDS).logits, expected, rtol=0, atol=1e-4)
    assert (expected - build_llama()(IDS).logits).abs().max() > 0.1
    (note,) = loaded.notes
    assert note.startswith(
        "m.gguf states rotary parameters that transformers leaves unread, and they are in force"
    )
    assert "short_factor of 8 frequencies from 1 to 8" in note
    untouched = load(write_llama(tmp_path / "plain.gguf"))
    assert weights_hash(loaded.model) != weights_hash(untouched.model)


def test_factors_of_one_change_nothing(tmp_path):
    assert load(write_llama(tmp_path / "m.gguf", {"rope_freqs": [1.0] * 8})).notes == ()


def test_the_factors_of_llama_3_become_its_own_type(tmp_path):
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    config = build_llama().config
    config.rope_parameters = {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    frequencies = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")[0]
    factors = plain(500000.0) / frequencies.numpy()
    assert len({round(float(factor), 3) for factor in factors}) > 1
    loaded = load(write_llama(tmp_path / "m.gguf", {"rope_freqs": factors}, freq_base=500000.0))
    assert loaded.model.config.rope_parameters == config.rope_parameters
    torch.testing.assert_close(loaded.model(IDS).logits, expected_logits(frequencies), rtol=0, atol=1e-4)
    assert loaded.max_length == 1024
    # A fixed type, unlike one that follows the length, goes with every method that takes those.
    with make_method("attention-buckets").apply(loaded.model):
        loaded.model(IDS)


def test_linear_scaling_is_in_force(tmp_path):
    for name, stated in (
        ("typed", {"scaling.type": "linear", "scaling.factor": 4.0}),
        ("untyped", {"scaling.factor": 4.0}),
        ("old", {"scale_linear": 4.0}),
    ):
        loaded = load(write_llama(tmp_path / f"{name}.gguf", **stated))
        torch.testing.assert_close(loaded.model(IDS).logits, expected_logits(plain() / 4), rtol=0, atol=1e-4)
        assert "rope_type linear, factor 4" in loaded.notes[0]


def test_yarn_is_in_force(tmp_path):
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    loaded = load(
        write_llama(
            tmp_path / "m.gguf",
            context=256,
            **{"scaling.type": "yarn", "scaling.factor": 4.0, "scaling.original_context_length": 64},
        )
    )
    config = build_llama(max_length=256).config
    config.rope_parameters |= {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
    frequencies, attention = ROPE_INIT_FUNCTIONS["yarn"](config, "cpu")
    assert attention > 1
    torch.testing.assert_close(
        loaded.model(IDS).logits, expected_logits(frequencies, attention), rtol=0, atol=1e-4
    )
    assert loaded.max_length == 256


def test_short_and_long_factors_are_in_force_by_length(tmp_path):
    short, long = np.linspace(1, 1.5, 8), np.linspace(2, 9, 8)
    loaded = load(
        write_llama(
            tmp_path / "m.gguf",
            {"rope_factors_short": short, "rope_factors_long": long},
            **{"scaling.original_context_length": 100, "scaling.attn_factor": 1.19},
        )
    )
    torch.testing.assert_close(
        loaded.model(IDS).logits, expected_logits(plain() / short, 1.19), rtol=0, atol=1e-4
    )
    twice = torch.cat([IDS, IDS], dim=1)
    model = build_llama()
    model.model.rotary_emb.inv_freq.copy_(torch.as_tensor(plain() / long, dtype=torch.float32))
    model.model.rotary_emb.attention_scaling = 1.19
    torch.testing.assert_close(loaded.model(twice).logits, model(twice).logits, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("stated", "factors", "message"),
    [
        ({"scaling.type": "magic"}, {}, "scaling.type = 'magic', which is unknown here"),
        ({"of_tomorrow": 2}, {}, "of_tomorrow = 2, which is unknown here"),
        ({"scaling.attn_factor": 1.2}, {}, "scaling.attn_factor = 1.2"),
        ({"scaling.alpha": 1000.0}, {}, "scaling.alpha = 1000"),
        ({"scaling.yarn_log_multiplier": 0.1}, {}, "scaling.yarn_log_multiplier = 0.1"),
        ({"scaling.factor": "4"}, {}, "scaling.factor = '4', which is no number"),
        ({"scaling.factor": -4.0}, {}, "scaling.factor = -4"),
        ({"scaling.type": "longrope"}, {}, "scaling.type = 'longrope' with factors"),
        ({}, {"rope_factors_long": [2.0] * 8}, "only one of rope_factors_short and rope_factors_long"),
        ({}, {"rope_freqs": [2.0] * 5}, "5 factors in rope_freqs.weight for 8 frequencies"),
        (
            {},
            {"rope_freqs": [1.0] * 4 + [1e30] * 4},
            "factors in rope_freqs.weight that switch frequencies off",
        ),
        ({}, {"rope_freqs": [0.0] * 8}, "positive factors of frequencies in rope_freqs.weight"),
        (
            {"scaling.type": "yarn", "scaling.factor": 4.0},
            {"rope_freqs": [2.0] * 8},
            "'yarn' beside the factors",
        ),
        ({"dimension_sections": [2, 3, 3, 0]}, {}, r"dimension_sections = \[2, 3, 3\]"),
        ({"freq_base_swa": 500.0}, {}, "freq_base_swa = 500"),
        ({"freq_base": None}, {}, None),
    ],
)
def test_what_no_config_can_say_is_refused(tmp_path, stated, factors, message):
    path = write_llama(tmp_path / "m.gguf", factors, **stated)
    if message is None:
        # Without a base, the format and the architecture agree on 10000.
        assert load(path).notes == ()
        return
    with pytest.raises(ModelError, match=message) as caught:
        load(path)
    assert "\n" not in str(caught.value)


def test_a_width_that_the_family_cannot_rotate_is_refused(tmp_path):
    out = writer(tmp_path / "m.gguf", arch="qwen2", dimension_count=8)
    finish(out)
    rope = read_rope(tmp_path / "m.gguf")
    config = AutoConfig.from_pretrained(tmp_path, gguf_file="m.gguf")
    take_rope(config, rope)
    from transformers import AutoModelForCausalLM

    from lpes_evo.models import check_rope

    model = AutoModelForCausalLM.from_config(config)
    with pytest.raises(ModelError, match="8 rotated dimensions, where the model has 16"):
        check_rope(model, rope)


@pytest.mark.parametrize(
    ("arch", "stated", "expected"),
    [
        ("starcoder2", {"freq_base": 999999.0}, {"rope_theta": 999999.0, "rope_type": "default"}),
        ("phi3", {"dimension_count": 12}, {"partial_rotary_factor": 0.75, "rope_type": "default"}),
        ("stablelm", {"dimension_count": 8}, {"partial_rotary_factor": 0.5}),
        (
            "qwen2",
            {"scaling.type": "yarn", "scaling.factor": 4.0, "scaling.original_context_length": 256},
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256},
        ),
    ],
)
def test_other_architectures_take_over_what_they_lack(tmp_path, arch, stated, expected):
    finish(writer(tmp_path / "m.gguf", arch=arch, **stated))
    config = AutoConfig.from_pretrained(tmp_path, gguf_file="m.gguf")
    assert take_rope(config, read_rope(tmp_path / "m.gguf")) is not None
    assert {name: config.rope_parameters.get(name) for name in expected} == expected
    json.dumps(config.to_dict())


def test_scaling_of_gemma_3_is_for_layers_without_a_sliding_window(tmp_path):
    out = writer(
        tmp_path / "m.gguf",
        arch="gemma3",
        freq_base=1000000.0,
        freq_base_swa=20000.0,
        **{"scaling.type": "linear", "scaling.factor": 8.0},
    )
    out.add_key_length(16)
    out.add_value_length(16)
    out.add_sliding_window(512)
    finish(out)
    config = AutoConfig.from_pretrained(tmp_path, gguf_file="m.gguf")
    assert take_rope(config, read_rope(tmp_path / "m.gguf")) is not None
    assert config.rope_parameters == {
        "full_attention": {"rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 20000.0},
    }
