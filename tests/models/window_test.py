"""The window of published configs, each by the definition of its rotary type."""

from types import SimpleNamespace

import pytest
from transformers import AutoConfig, PreTrainedConfig

from lpes_evo.errors import ModelError
from lpes_evo.models import window

TWO = [1.0, 1.0]
LLAMA3 = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
SMALL = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 2, "head_dim": 4}

# Name, fields of the config, limit of the tokenizer, window.
CONFIGS = [
    ("Llama 2", "llama", {"max_position_embeddings": 4096}, None, 4096),
    ("Mistral 7B v0.1", "mistral", {"max_position_embeddings": 32768, "sliding_window": 4096}, None, 32768),
    (
        "Vicuna 7B v1.5 16k",
        "llama",
        {
            "max_position_embeddings": 4096,
            "max_sequence_length": 16384,
            "rope_scaling": {"type": "linear", "factor": 4.0},
        },
        None,
        16384,
    ),
    (
        "linear without another statement",
        "llama",
        {"max_position_embeddings": 4096, "rope_scaling": {"type": "linear", "factor": 4.0}},
        10**30,
        16384,
    ),
    (
        "DeepSeek Coder 6.7B, which states the window after extension",
        "llama",
        {"max_position_embeddings": 16384, "rope_scaling": {"type": "linear", "factor": 4.0}},
        16384,
        16384,
    ),
    (
        "linear whose tokenizer has an older limit than its config",
        "llama",
        {
            "max_position_embeddings": 4096,
            "max_sequence_length": 16384,
            "rope_scaling": {"type": "linear", "factor": 4.0},
        },
        2048,
        16384,
    ),
    (
        "a longer sequence length without a rotary type for it",
        "llama",
        {"max_position_embeddings": 2048, "max_sequence_length": 16384},
        16384,
        2048,
    ),
    (
        "InternLM 2, dynamic",
        "llama",
        {"max_position_embeddings": 32768, "rope_scaling": {"type": "dynamic", "factor": 2.0}},
        10**30,
        65536,
    ),
    (
        "dynamic with the original window",
        "llama",
        {
            "max_position_embeddings": 64,
            "rope_parameters": {
                "rope_type": "dynamic",
                "factor": 4.0,
                "original_max_position_embeddings": 64,
            },
        },
        64,
        256,
    ),
    (
        "Llama 3.1 8B",
        "llama",
        {
            "max_position_embeddings": 131072,
            "rope_scaling": LLAMA3 | {"factor": 8.0, "original_max_position_embeddings": 8192},
        },
        131072,
        131072,
    ),
    (
        "Llama 3.2 1B, whose product is larger than its window",
        "llama",
        {
            "max_position_embeddings": 131072,
            "rope_scaling": LLAMA3 | {"factor": 32.0, "original_max_position_embeddings": 8192},
        },
        131072,
        131072,
    ),
    ("Qwen2.5 7B", "qwen2", {"max_position_embeddings": 32768}, 131072, 32768),
    (
        "Qwen2.5 7B with yarn as in its README",
        "qwen2",
        {
            "max_position_embeddings": 32768,
            "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
        },
        131072,
        131072,
    ),
    (
        "Qwen3 8B with yarn as in its README",
        "qwen3",
        {
            "max_position_embeddings": 40960,
            "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
        },
        131072,
        131072,
    ),
    (
        "DeepSeek V3",
        "deepseek_v3",
        {
            "max_position_embeddings": 163840,
            "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096},
        },
        131072,
        163840,
    ),
    (
        "gpt-oss 20b",
        "gpt_oss",
        {
            "max_position_embeddings": 131072,
            "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096},
        },
        None,
        131072,
    ),
    (
        "Phi 3 mini 128k",
        "phi3",
        {
            "max_position_embeddings": 131072,
            "original_max_position_embeddings": 4096,
            "rope_scaling": {"type": "longrope", "short_factor": TWO, "long_factor": TWO},
        },
        131072,
        131072,
    ),
    (
        "longrope with a factor, which is for attention alone",
        "llama",
        {
            "max_position_embeddings": 4096,
            "rope_scaling": {
                "type": "longrope",
                "short_factor": TWO,
                "long_factor": TWO,
                "factor": 32.0,
                "original_max_position_embeddings": 4096,
            },
        },
        None,
        4096,
    ),
    (
        "Gemma 3 4B, parameters by layer type",
        "gemma3_text",
        {"max_position_embeddings": 131072, "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
        10**30,
        131072,
    ),
    ("Gemma 3 4B, whole", "gemma3", {"text_config": {"max_position_embeddings": 131072}}, None, 131072),
    ("GPT-J, by another name", "gptj", {"n_positions": 2048, "n_head": 2, "n_embd": 8}, None, 2048),
    ("DBRX, by another name", "dbrx", {"max_seq_len": 32768}, None, 32768),
]


@pytest.mark.parametrize(
    ("kind", "fields", "limit", "expected"),
    [entry[1:] for entry in CONFIGS],
    ids=[entry[0] for entry in CONFIGS],
)
def test_the_window_is_that_of_the_rotary_type(kind, fields, limit, expected):
    sizes = {} if kind in ("gptj", "dbrx", "gemma3", "deepseek_v3", "gpt_oss") else SMALL
    config = AutoConfig.for_model(kind, **sizes, **fields)
    tokenizer = None if limit is None else SimpleNamespace(model_max_length=limit)
    assert window(config, tokenizer) == expected


@pytest.mark.parametrize("name", ["seq_length", "max_sequence_length"])
def test_a_window_under_another_name_is_found(name):
    # As the code that comes with a model has it.
    assert window(PreTrainedConfig(**{name: 8192})) == 8192


@pytest.mark.parametrize("stated", [0, "many", None, 1.5, True])
def test_a_config_without_a_window_is_refused(stated):
    config = AutoConfig.for_model("llama")
    object.__setattr__(config, "max_position_embeddings", stated)
    with pytest.raises(ModelError, match="max_position_embeddings, the window in tokens, but got"):
        window(config)


@pytest.mark.parametrize("factor", [None, "four", float("nan"), 0.5])
def test_a_factor_that_extends_nothing_leaves_the_stated_window(factor):
    config = AutoConfig.for_model("llama", max_position_embeddings=64)
    config.rope_parameters = {"rope_type": "linear", "rope_theta": 10000.0, "factor": factor}
    assert window(config) == 64
