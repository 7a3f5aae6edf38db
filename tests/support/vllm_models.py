"""Tiny random models that vLLM can run on a CPU, and the answers of transformers under `patch_rope` to compare with."""

from pathlib import Path

import torch

from lpes_evo.rope import patch_rope
from samples import build_tokenizer

N_LAYERS = 4
SCALES = [1.3, 0.8, 1.7, 0.6]
OTHER_SCALES = [0.9, 2.0, 0.7, 1.2]

ROPES = {
    "linear": {"rope_type": "linear", "factor": 2.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 128,
    },
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
}

FAMILIES = {
    "llama": ("llama", {}),
    "qwen2": ("qwen2", {}),
    "mistral": ("mistral", {"sliding_window": None}),
    "gemma3": (
        "gemma3_text",
        {
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "sliding_window": 64,
            "query_pre_attn_scalar": 32,
        },
    ),
    **{name: ("llama", {"rope_parameters": {**rope, "rope_theta": 10000.0}}) for name, rope in ROPES.items()},
}
"""Model type and settings by name; the Llamas differ in their rotary type."""


def build(name, folder):
    """Return a random model, and write it to a folder with a tokenizer of 258 tokens."""
    from transformers import AutoConfig, AutoModelForCausalLM

    model_type, settings = FAMILIES[name]
    config = AutoConfig.for_model(
        model_type,
        vocab_size=258,
        hidden_size=128,
        intermediate_size=128,
        num_hidden_layers=N_LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,  # the smallest that vLLM has code for on a CPU
        max_position_embeddings=512,
        initializer_range=0.2,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=2,
        tie_word_embeddings=False,
        **settings,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config).eval()
    model.save_pretrained(folder)
    build_tokenizer().save_pretrained(folder)
    return model, Path(folder)


def prompts():
    """Return prompts of several lengths; two are equal, and two begin alike."""
    draws = torch.Generator().manual_seed(1)
    short, *others = [torch.randint(3, 250, (n,), generator=draws).tolist() for n in (5, 40, 200, 333)]
    return [short, others[0], *others, others[-1][:300] + [7] * 20]


@torch.inference_mode()
def greedy(model, scales, asked, n_tokens):
    """Return the greedy tokens of transformers under scales, and their log-probabilities."""
    found = []
    with patch_rope(model, scales):
        for prompt in asked:
            said = model.generate(
                torch.tensor([prompt]),
                do_sample=False,
                max_new_tokens=n_tokens,
                min_new_tokens=n_tokens,
                eos_token_id=None,
                pad_token_id=0,
            )
            logits = model(said).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
            ids = said[0, len(prompt) :]
            found.append((ids.tolist(), logits.gather(1, ids[:, None])[:, 0].tolist()))
    return found
