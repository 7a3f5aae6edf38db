"""Tiny random configs of every causal-LM family: one generic config, and what a family needs beside it.

A family joins the conformance suite by being in transformers' mapping; a line in ``OVERRIDES`` makes it
buildable.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING, model_type_to_module_name
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

transformers.logging.set_verbosity_error()
warnings.filterwarnings("ignore", module="transformers")

ABSENT = object()
"""Marks a generic entry that a family's config must not be given."""

GENERIC: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "moe_intermediate_size": 16,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "shared_expert_intermediate_size": 16,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
}

MLA: dict[str, Any] = {"head_dim": ABSENT, "num_key_value_heads": 4}
"""Multi-head latent attention derives its head size."""

LINEAR: dict[str, Any] = {
    "layer_types": ["full_attention", "linear_attention", "full_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
"""Layers with and without attention, both outer ones with rotary embedding."""

VISION: dict[str, Any] = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}

OVERRIDES: dict[str, dict[str, Any]] = {
    "axk1": MLA,
    "axk2": MLA,
    "deepseek_v2": MLA,
    "deepseek_v3": MLA,
    "deepseek_v32": MLA,
    "glm4_moe_lite": MLA,
    "glm_moe_dsa": MLA,
    "minicpm3": MLA,
    "sarvam_mla": MLA,
    "youtu": MLA,
    "qwen3_5_text": LINEAR,
    "qwen3_5_moe_text": LINEAR,
    "qwen3_next": LINEAR,
    "bailing_hybrid": {**MLA, **LINEAR},
    "bamba": {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 8, "attn_layer_indices": [0, 2]},
    "codegen": {"rotary_dim": 8},
    "gptj": {"rotary_dim": 8},
    "falcon": {"head_dim": ABSENT},
    "granitemoehybrid": {
        "layer_types": ["full_attention", "linear_attention", "full_attention"],
        "position_embedding_type": "rope",
        "mamba_n_heads": 4,
        "mamba_d_head": 16,
        "mamba_d_state": 8,
    },
    "lfm2_moe": {"layer_types": ["full_attention", "conv", "full_attention"]},
    "zaya": {"num_experts_per_tok": 1},
    "granite_swa": {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
    "granitemoe_swa": {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
    "lara_mini": {**LINEAR, "layer_types": ["sliding_attention", "linear_attention", "sliding_attention"]},
    "cohere_compass_text": {
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1]}
        }
    },
    "dbrx": {
        "d_model": 32,
        "n_heads": 4,
        "n_layers": 3,
        "attn_config": {"clip_qkv": 8.0, "kv_n_heads": 2, "rope_theta": 10000.0},
        "ffn_config": {"ffn_hidden_size": 16, "hidden_size": 32, "moe_num_experts": 2, "moe_top_k": 1},
    },
    "falcon_h1": {
        "mamba_d_ssm": 32,
        "mamba_n_heads": 4,
        "mamba_d_head": 8,
        "mamba_d_state": 8,
        "mamba_chunk_size": 8,
    },
    "gemma3n_text": {
        "num_kv_shared_layers": 0,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "hidden_size_per_layer_input": 8,
        "vocab_size_per_layer_input": 64,
        "laurel_rank": 4,
        "activation_sparsity_pattern": [0.0, 0.0, 0.0],
    },
    "longcat_flash": {
        **MLA,
        "head_dim": 8,
        "num_hidden_layers": 6,
        "ffn_hidden_size": 48,
        "expert_ffn_hidden_size": 16,
        "moe_topk": 2,
        "zero_expert_num": 2,
    },
    "phi4_multimodal": {
        "vision_config": {
            "hidden_size": 16,
            "intermediate_size": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": 28,
            "crop_size": 28,
        },
        "audio_config": {
            "hidden_size": 16,
            "intermediate_size": 16,
            "num_blocks": 1,
            "num_attention_heads": 2,
            "nemo_conv_channels": 16,
            "ext_pw_out_channel": 16,
            "depthwise_separable_out_channel": 16,
        },
    },
    "zamba2": {
        "head_dim": ABSENT,
        "layers_block_type": ["hybrid", "linear_attention", "hybrid"],
        "use_mem_rope": True,
        "n_mamba_heads": 4,
        "mamba_d_state": 8,
        "chunk_size": 8,
        "adapter_rank": 4,
        "num_key_value_heads": 4,
    },
    "gemma4_text": {"vocab_size_per_layer_input": 64, "hidden_size_per_layer_input": 8, "global_head_dim": 8},
    "gemma4_unified_text": {"global_head_dim": 8},
    "dots3_note_text": {**MLA, "index_head_dim": 8, "index_n_heads": 2, "index_topk": 64},
    "moshi": {"num_codebooks": 1},
    "fuyu": {"text_config": {"model_type": "persimmon"}},
    "got_ocr2": {"text_config": {"model_type": "qwen2"}},
    "moss_transcribe_diarize": {
        "text_config": {"model_type": "qwen3"},
        "audio_config": {
            "d_model": 16,
            "encoder_layers": 1,
            "encoder_attention_heads": 2,
            "encoder_ffn_dim": 16,
        },
    },
    "qwen4_exp_text": {
        **LINEAR,
        "hc_lowrank": 8,
        "indexer_n_heads": 2,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 8,
        "indexer_budget": 64,
        "indexer_compress_ratio": 4,
    },
    "flint": {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
}


NOT_BUILT: dict[str, str] = {
    "blt": "bytes in patches, four transformers in a row; no tiny config",
    "gemma3n": "needs the package timm; its text model is gemma3n_text",
    "gemma4_assistant": "drafts from the states of another model; cannot run alone",
    "gemma4_unified_assistant": "drafts from the states of another model; cannot run alone",
    "dots3_note": "its config names layers 25 to 41; its text model is dots3_note_text",
}
"""Families that use rotary embeddings and cannot be tried on a tiny model, and why."""


def model_types() -> list[str]:
    """Return every model type that transformers maps to a causal language model."""
    return list(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def mentions_rotary(model_type: str) -> bool:
    """Return whether the code of a family, or of the text model inside it, speaks of rotary embeddings."""
    config_class = CONFIG_MAPPING[model_type]
    if "text_config" in getattr(config_class, "sub_configs", {}):
        return True
    folder = Path(transformers.__file__).parent / "models" / model_type_to_module_name(model_type)
    sources = [path.read_text(encoding="utf-8") for path in folder.glob("modeling_*.py")]
    # A family without code of its own borrows that of another, such as Llama.
    return not sources or any("rotary" in source.lower() for source in sources)


def tiny_config(model_type: str, **changes: Any) -> Any:
    """Return the tiny config of a family."""
    config_class = CONFIG_MAPPING[model_type]
    overrides = OVERRIDES.get(model_type, {})
    entries = {**GENERIC, **overrides, **changes}
    subs = getattr(config_class, "sub_configs", {})
    if "text_config" in subs:
        text_type = overrides.get("text_config", {}).get("model_type") or subs["text_config"].model_type
        text = {**GENERIC, **OVERRIDES.get(text_type, {}), **overrides.get("text_config", {}), **changes}
        entries = {name: value for name, value in overrides.items() if name != "text_config"}
        entries["text_config"] = {name: value for name, value in text.items() if value is not ABSENT}
        for sub in subs:
            if "vision" in sub:
                entries.setdefault(sub, VISION)
    return config_class(**{name: value for name, value in entries.items() if value is not ABSENT})


def tiny_model(model_type: str, dtype: torch.dtype = torch.float32, **changes: Any) -> Any:
    """Return a tiny random model of a family in evaluation mode."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(tiny_config(model_type, **changes), dtype=dtype).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                # Some families start with weights of zero that would hide every effect.
                parameter.add_(torch.randn(parameter.shape).to(parameter.dtype) * 0.05)
    return model
