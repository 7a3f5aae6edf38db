"""Small samples of what the product works on: settings of a short run, journals, tokenizers and models."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from lpes_evo.storage import Journal, read_journal

SMALL_RUN = {
    "task.options": {"n_pairs": 16},
    "examples.n_per_position": 4,
    "search.n_constants": 3,
    "report.positions": [0.0, 1.0],
    "report.n_per_position": 4,
}
"""Overrides of the preset ``demo`` for a run of seconds; a test adds what it is about."""


CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<{{ message['role'] }}>\n{{ message['content'] }}\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<assistant>\n{% endif %}"
)


def rewrite_journal(
    path: Path,
    change: Callable[[list[dict[str, Any]]], list[dict[str, Any]] | None] = lambda records: None,
    **header: Any,
) -> None:
    """Write a journal anew with other records or entries of the header, and with checksums that fit them."""
    found = read_journal(path)
    records = list(found.records.values())
    records = change(records) or records
    path.unlink()
    with Journal(path, found.header | header) as journal:
        for record in records:
            journal.append(record.pop("key"), record)


def without_checksums(path: Path) -> None:
    """Make a journal one of version 1, in which an edit is found by what it says alone."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        line.pop("check", None)
    lines[0]["version"] = 1
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def build_tokenizer(chat_template: str | None = None) -> Any:
    """Build a byte-level tokenizer that puts a BOS in front and keeps every text intact."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<s>": 0, "</s>": 1} | {letter: index for index, letter in enumerate(alphabet, start=2)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    wrapped.bos_token, wrapped.eos_token = "<s>", "</s>"
    wrapped.chat_template = chat_template
    return wrapped


def build_llama(n_layers: int = 3, n_vocabulary: int = 258, max_length: int = 1024) -> Any:
    """Build a small Llama with random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=n_vocabulary,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=n_layers,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=max_length,
            initializer_range=0.3,
            bos_token_id=0,
            eos_token_id=1,
        )
        return LlamaForCausalLM(config).eval().requires_grad_(False)
