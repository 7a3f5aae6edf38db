"""Train the embedded model from nothing and write its configuration, weights, tokenizer and log.

Run ``python benchmarks/train_tiny.py --output lpes_evo/models/tiny``. It uses one CPU core. Everything is seeded: equal
versions on equal processors give equal weights; on another processor the rounding differs, and so do the weights.

The model learns two things. Local texts, up to `LOCAL_LENGTH` tokens long, hold short blocks that are said twice:
they make it look back one word anywhere in a long input. Recall prompts, the task itself, are at most
``2 * MAX_PAIRS`` words long. So longer recall prompts are words the model can read, in an order it can read, at
distances over which it has never had to find anything.
"""

import argparse
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from lpes_evo.problems import QUESTION, WORDS

SPECIALS = ("<pad>", "<unk>", "<bos>")
PAD, _, BOS = range(len(SPECIALS))
ASK = len(SPECIALS)
FIRST_WORD = ASK + 1
VOCABULARY = (*SPECIALS, QUESTION, *WORDS)
WINDOW = 512
IGNORED = -100

SEED = 0
BATCH = 64
LEARNING_RATE = 3e-3
WARM_UP_STEPS = 100
COPY_STEPS = 350
MIXED_STEPS = 600
MAX_PAIRS = 20
N_QUESTIONS = 4
LOCAL_LENGTH = 160
LOG_EVERY = 50

Batch = tuple[torch.Tensor, torch.Tensor]


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Return the tokenizer: one token for each word between spaces, and ``<bos>`` before a text."""
    vocabulary = {word: index for index, word in enumerate(VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=SPECIALS[1]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{SPECIALS[BOS]} $A", special_tokens=[(SPECIALS[BOS], BOS)]
    )
    names = dict(zip(("pad_token", "unk_token", "bos_token"), SPECIALS, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=WINDOW, **names)


def build_model() -> LlamaForCausalLM:
    """Return the untrained model."""
    torch.manual_seed(SEED)

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(VOCABULARY),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=6,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=WINDOW,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
            tie_word_embeddings=False,
            pad_token_id=PAD,
            bos_token_id=BOS,
            eos_token_id=None,
        )
    )


class Texts:
    """Makes batches of token ids and of targets, both ``(batch, length)``; targets elsewhere are `IGNORED`."""

    def __init__(self) -> None:
        self._tensors = torch.Generator().manual_seed(SEED)
        self._lengths = random.Random(SEED)

    def local(self, batch: int, length: int, least: int, most: int) -> Batch:
        """Return blocks of ``least`` to ``most`` random words, each said twice, until ``length`` is reached.

        All but the first word of each second saying are targets.
        """
        begin = torch.full((batch, 1), BOS)
        ids, targets, so_far = [begin], [torch.full_like(begin, IGNORED)], 1
        while so_far < length:
            size = self._lengths.randint(least, most)
            block = torch.randint(FIRST_WORD, len(VOCABULARY), (batch, size), generator=self._tensors)
            wanted = block.clone()
            wanted[:, 0] = IGNORED
            ids += [block, block]
            targets += [torch.full_like(block, IGNORED), wanted]
            so_far += 2 * size
        return torch.cat(ids, 1), torch.cat(targets, 1)

    def recall(self, batch: int) -> Batch:
        """Return pairs and `N_QUESTIONS` questions about them; the answers are targets.

        Pairs at both ends are asked for more often than those in the middle: their places follow Beta(0.5, 0.5).
        """
        n_pairs = self._lengths.randint(4, MAX_PAIRS)
        shuffled = torch.rand(batch, len(WORDS), generator=self._tensors).argsort(1)
        pairs = (shuffled[:, : 2 * n_pairs] + FIRST_WORD).view(batch, n_pairs, 2)
        # The arc sine law is Beta(0.5, 0.5).
        uniform = torch.rand(batch, N_QUESTIONS, generator=self._tensors)
        places = torch.sin(uniform * (torch.pi / 2)).square()
        slots = (places * n_pairs).long().clamp(max=n_pairs - 1)
        asked = torch.gather(pairs, 1, slots.unsqueeze(-1).expand(-1, -1, 2))
        questions = torch.cat([torch.full_like(asked[..., :1], ASK), asked], 2).flatten(1)
        ids = torch.cat([torch.full((batch, 1), BOS), pairs.flatten(1), questions], 1)
        targets = torch.full_like(ids, IGNORED)
        targets[:, -3 * N_QUESTIONS + 2 :: 3] = asked[..., 1]
        return ids, targets


def lessons() -> Iterator[tuple[str, float, Batch]]:
    """Yield the name, learning rate and batch of every step."""
    texts = Texts()
    for step in range(COPY_STEPS):
        rate = LEARNING_RATE * min(1.0, (step + 1) / WARM_UP_STEPS)
        yield "copy", rate, texts.local(BATCH, 2, 4, 16)
    for step in range(MIXED_STEPS):
        left = 1 - step / MIXED_STEPS
        rate = LEARNING_RATE * min(1.0, (step + 1) / WARM_UP_STEPS) * max(0.02, min(1.0, 2 * left))
        if step % 2 == 0:
            yield "recall", rate, texts.recall(BATCH)
        else:
            yield "local", rate, texts.local(BATCH // 4, LOCAL_LENGTH, 3, 10)


def train(model: Any, log: Path) -> None:
    """Train the model in place and write a line of JSON to ``log`` every `LOG_EVERY` steps."""
    optimizer = torch.optim.AdamW(model.parameters(), LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.01)
    wall, cpu = time.perf_counter(), time.process_time()
    recent: dict[str, list[tuple[float, float]]] = {}

    with log.open("w", encoding="utf-8") as file:
        for step, (lesson, rate, (ids, targets)) in enumerate(lessons(), start=1):
            for group in optimizer.param_groups:
                group["lr"] = rate
            wanted = targets[:, 1:] != IGNORED
            hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
            logits, words = model.lm_head(hidden[wanted]), targets[:, 1:][wanted]
            loss = torch.nn.functional.cross_entropy(logits, words)

            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()

            accuracy = (logits.argmax(-1) == words).float().mean().item()
            recent.setdefault(lesson, []).append((loss.item(), accuracy))
            if step % LOG_EVERY == 0:
                for name, figures in recent.items():
                    losses, accuracies = zip(*figures, strict=True)
                    line = {
                        "step": step,
                        "lesson": name,
                        "loss": round(sum(losses) / len(losses), 4),
                        "accuracy": round(sum(accuracies) / len(accuracies), 4),
                        "wall_seconds": round(time.perf_counter() - wall, 1),
                        "cpu_seconds": round(time.process_time() - cpu, 1),
                    }
                    print(line, flush=True)
                    file.write(json.dumps(line) + "\n")
                recent.clear()


def main() -> None:
    """Train and write the folder."""
    parser = argparse.ArgumentParser(description="Train the embedded model from nothing.")
    parser.add_argument("--output", type=Path, required=True, help="folder to write to")
    folder: Path = parser.parse_args().output
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    model = build_model()
    train(model, folder / "training_log.jsonl")
    model.save_pretrained(folder)
    build_tokenizer().save_pretrained(folder)
    # Transformers 5 writes a class name that version 4 does not know; both know this one.
    settings = folder / "tokenizer_config.json"
    content = json.loads(settings.read_text(encoding="utf-8")) | {
        "tokenizer_class": "PreTrainedTokenizerFast"
    }
    settings.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
