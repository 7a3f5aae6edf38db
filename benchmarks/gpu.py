"""Measure the evaluation of candidates on one GPU, on random weights of the shape of Qwen2.5-7B.

Run as ``bash benchmarks/gpu.sh`` on a machine with a CUDA device; it needs no network and less than six minutes.
``--small`` runs the same on the CPU with a tiny shape, to see that all of it works. Everything on the device is done by
the one worker of a pool, as in a search. Each measurement is a line of JSON, and a table follows. It tells

- tokens per second of fitness evaluation through the pool, against the bare forward pass on the same tokens, and
  against the rate of the device in a large product of matrices (2 FLOPs for each weight of the decoder layers and
  token; attention and the output head are not counted),
- what several candidates in one forward pass bring, and how far their scores are from those of one by one,
- the time of prefill and of decoding, patched over untouched, as medians of alternating pairs with a bootstrap interval
  of 95 %.
"""

import argparse
import json
import platform
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import numpy as np
import torch
from rich.console import Console
from transformers import Qwen2Config, Qwen2ForCausalLM

from lpes_evo.config import SearchSettings
from lpes_evo.execution import Evaluator
from lpes_evo.models import LoadedModel, device_name, load_model
from lpes_evo.operators import BezierGenome, CurveSpace, init_random_walk
from lpes_evo.problems import Example, ModelProblem, batches, pack_rows
from lpes_evo.reporting import Table, interval_text
from lpes_evo.rope import patch_rope, repair_frequencies
from lpes_evo.statistics import median_interval
from lpes_evo.workers import DevicePool, Pool

POSITIONS = (0.0, 0.5, 1.0)
PASSES = (1, 2, 4, 8)


@dataclass(frozen=True)
class Shape:
    """Sizes of the model and of what it is measured on.

    Attributes:
        model: Fields of its configuration.
        dtype: Number format of the weights.
        n_texts: Texts of the long problem, each with three questions.
        long: Words of a long text.
        short: Words of a short text; the problem for several candidates in a pass has two of them.
        prefill: Tokens of a prompt.
        steps: Cached steps of decoding.
        matrix: Side of the matrices that tell the rate of the device.
        pairs: Pairs of each comparison.
    """

    model: dict[str, int]
    dtype: str
    n_texts: int
    long: int
    short: int
    prefill: int
    steps: int
    matrix: int
    pairs: int


QWEN = Shape(
    model={
        "num_hidden_layers": 28,
        "hidden_size": 3584,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "intermediate_size": 18944,
        "vocab_size": 152064,
    },
    dtype="bfloat16",
    n_texts=8,
    long=1900,
    short=300,
    prefill=4096,
    steps=16,
    matrix=8192,
    pairs=9,
)
SMALL = Shape(
    model={
        "num_hidden_layers": 3,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 128,
        "vocab_size": 512,
    },
    dtype="float32",
    n_texts=2,
    long=90,
    short=30,
    prefill=128,
    steps=4,
    matrix=256,
    pairs=3,
)


@dataclass
class Bench:
    """What the worker holds: the model, and the two problems."""

    shape: Shape
    loaded: LoadedModel
    long: ModelProblem
    short: ModelProblem


class BenchSpec:
    """Makes the model and the problems in the worker.

    Args:
        shape: The sizes.
    """

    def __init__(self, shape: Shape) -> None:
        self.shape = shape

    def __call__(self, device: str) -> Bench:
        """Initialise the weights on the device."""
        shape = self.shape
        config = Qwen2Config(
            **shape.model,
            max_position_embeddings=32768,
            tie_word_embeddings=False,
            attn_implementation="sdpa",
        )
        default = torch.get_default_dtype()
        torch.set_default_dtype(getattr(torch, shape.dtype))
        try:
            with torch.device(device):
                torch.manual_seed(0)
                model = Qwen2ForCausalLM(config)
        finally:
            torch.set_default_dtype(default)
        model.eval().requires_grad_(False)
        repair_frequencies(model)
        loaded = LoadedModel(
            model=model,
            tokenizer=load_model("tiny", device="cpu").tokenizer,
            name="random",
            revision=None,
            n_layers=config.num_hidden_layers,
            max_length=32768,
            dtype=shape.dtype,
            device=device,
            attention="sdpa",
        )
        return Bench(
            shape,
            loaded,
            ModelProblem(loaded, examples(shape.n_texts, shape.long)),
            ModelProblem(loaded, examples(2, shape.short)),
        )


def examples(n_texts: int, n_words: int) -> list[Example]:
    """Return three questions about each of some random texts, in words of the embedded model's tokenizer."""
    drawn = random.Random(n_words)
    found = []
    for text in range(n_texts):
        words = [str(drawn.randrange(192)) for _ in range(n_words)]
        for position in POSITIONS:
            place = int(position * (n_words - 2))
            prompt = " ".join([*words, "?", words[place]])
            found.append(
                Example(f"{text}/{position}", prompt, (words[place + 1],), position, source=f"text-{text}")
            )
    return found


def long_problem(bench: Bench) -> ModelProblem:
    """Return the problem of long texts."""
    return bench.long


def short_problem(bench: Bench) -> ModelProblem:
    """Return the problem of short texts."""
    return bench.short


def timed(work: Callable[[], Any], device: str) -> float:
    """Return the seconds of some work, by the clock of the device where it is a GPU."""
    if not device.startswith("cuda"):
        start = time.perf_counter()
        work()
        return time.perf_counter() - start
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    work()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1000


def describe(bench: Bench) -> dict[str, Any]:
    """Return what was measured on what."""
    model, device = bench.loaded.model, bench.loaded.device
    is_gpu = device.startswith("cuda")
    layers = sum(weight.numel() for weight in model.model.layers.parameters())
    return {
        "device": device_name(device),
        "memory_gib": round(torch.cuda.get_device_properties(device).total_memory / 2**30, 1)
        if is_gpu
        else None,
        "dtype": bench.loaded.dtype,
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "parameters_of_layers": layers,
        "tokens_of_an_evaluation": bench.long.n_tokens,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "transformers": metadata.version("transformers"),
        "python": platform.python_version(),
    }


def matrix_rate(bench: Bench) -> float:
    """Return the FLOPs per second of a large product of matrices, the best of some tries."""
    side, device = bench.shape.matrix, bench.loaded.device
    left, right = (torch.randn(side, side, device=device, dtype=bench.loaded.model.dtype) for _ in range(2))

    def multiply() -> None:
        for _ in range(10):
            torch.mm(left, right)

    timed(multiply, device)
    return 10 * 2 * side**3 / min(timed(multiply, device) for _ in range(5))


@torch.inference_mode()
def bare_seconds(bench: Bench) -> float:
    """Return the seconds of the untouched model on the tokens of an evaluation, with logits at one place a row."""
    problem, model = bench.long, bench.loaded.model
    rows = [problem._rows[name] for name in problem.example_ids]
    inputs = []
    for batch in batches(pack_rows(rows, share_prefixes=problem.sharing.is_sound), problem.batch_tokens):
        ids = torch.zeros(len(batch.packs), max(pack.n_tokens for pack in batch.packs), dtype=torch.long)
        for entry, pack in enumerate(batch.packs):
            tokens = list(pack.rows[0].prompt_ids[: pack.n_prefix])
            for row in pack.rows:
                tokens += (row.prompt_ids + row.answer_ids)[pack.n_prefix : -1]
            ids[entry, : len(tokens)] = torch.tensor(tokens)
        inputs.append(ids.to(model.device))

    def forward() -> None:
        for ids in inputs:
            model(input_ids=ids, use_cache=False, logits_to_keep=1)

    return timed(forward, bench.loaded.device)


@torch.inference_mode()
def patch_ratios(bench: Bench, what: str) -> list[tuple[float, float]]:
    """Return untouched and patched seconds of prefill or of decoding, pair by pair, after two warm-up pairs."""
    shape, model, device = bench.shape, bench.loaded.model, bench.loaded.device
    scales = np.linspace(0.8, 1.4, bench.loaded.n_layers)
    prompt = torch.arange(shape.prefill, device=device)[None] % 190
    token = torch.zeros(1, 1, dtype=torch.long, device=device)

    def measure() -> float:
        if what == "prefill":
            return timed(lambda: model(input_ids=prompt, use_cache=True, logits_to_keep=1), device)
        cache = model(input_ids=prompt, use_cache=True, logits_to_keep=1).past_key_values

        def decode() -> None:
            for _ in range(shape.steps):
                model(input_ids=token, use_cache=True, past_key_values=cache)

        return timed(decode, device)

    def patched() -> float:
        with patch_rope(model, scales):
            return measure()

    pairs = []
    for number in range(shape.pairs + 2):
        if number % 2:
            plain, changed = measure(), patched()
        else:
            changed, plain = patched(), measure()
        pairs.append((plain, changed))
    return pairs[2:]


def genomes(space: CurveSpace, n: int) -> list[BezierGenome]:
    """Return some curves, the same every time."""
    random.seed(0)
    return [init_random_walk(space) for _ in range(n)]


def evaluated(
    pool: Pool, space: CurveSpace, problem_of: Callable[[Bench], ModelProblem], n: int, n_candidates: int
) -> tuple[np.ndarray, float, int]:
    """Evaluate some curves through an evaluator.

    Args:
        pool: The pool with the worker.
        space: The space of the curves.
        problem_of: Returns the problem of the worker.
        n: Number of curves.
        n_candidates: Curves that share a pass.

    Returns:
        The scores, ``(n, n_examples)``, seconds by the clock of this process, and tokens forwarded.

    Raises:
        SystemExit: An evaluation failed, or its batch was halved.
    """
    settings = SearchSettings(racing=False)
    evaluator = Evaluator(pool, space, settings, n_candidates=n_candidates, problem_of=problem_of)
    curves = genomes(space, n)
    start = time.perf_counter()
    numbers = [evaluator.submit(curves[first : first + n_candidates]) for first in range(0, n, n_candidates)]
    found = dict(evaluator.wait() for _ in numbers)
    seconds = time.perf_counter() - start
    evaluations = [evaluation for number in numbers for evaluation in found[number]]
    for evaluation in evaluations:
        if evaluation.status != "ok" or evaluation.halvings:
            raise SystemExit(
                f"An evaluation did not go through as it is: {evaluation.error or 'out of memory'}"
            )
    return np.array([evaluation.scores for evaluation in evaluations]), seconds, evaluator.cost.tokens


def measure_throughput(pool: Pool, space: CurveSpace, facts: dict[str, Any], pairs: int) -> dict[str, Any]:
    """Compare fitness evaluation with the bare forward pass and with the rate of the device."""
    rate = pool.call(matrix_rate)
    found = []
    for number in range(pairs + 1):
        if number % 2:
            bare = pool.call(bare_seconds)
            _, seconds, tokens = evaluated(pool, space, long_problem, 2, 1)
        else:
            _, seconds, tokens = evaluated(pool, space, long_problem, 2, 1)
            bare = pool.call(bare_seconds)
        found.append((tokens / seconds, facts["tokens_of_an_evaluation"] / bare))
    fitness, plain = np.array(found[1:]).T
    share, low, high = median_interval(fitness / plain)
    per_second = float(np.median(fitness))
    return {
        "fitness_tokens_per_second": per_second,
        "bare_tokens_per_second": float(np.median(plain)),
        "fitness_over_bare": share,
        "low": low,
        "high": high,
        "matrix_tflops": rate / 1e12,
        "flop_utilisation": 2 * facts["parameters_of_layers"] * per_second / rate,
        "bare_flop_utilisation": 2 * facts["parameters_of_layers"] * float(np.median(plain)) / rate,
    }


def measure_passes(pool: Pool, space: CurveSpace) -> list[dict[str, Any]]:
    """Evaluate eight curves with 1, 2, 4 and 8 of them in a pass."""
    found, alone = [], None
    for n_candidates in PASSES:
        evaluated(pool, space, short_problem, max(PASSES), n_candidates)
        tries = [evaluated(pool, space, short_problem, max(PASSES), n_candidates) for _ in range(3)]
        scores, seconds, tokens = min(tries, key=lambda entry: entry[1])
        alone = scores if alone is None else alone
        found.append(
            {
                "candidates_per_pass": n_candidates,
                "tokens_per_second": tokens / seconds,
                "largest_difference_nats": float(np.abs(scores - alone).max()),
                "spread_of_scores_nats": float(alone.std(axis=0).max()),
            }
        )
    return found


def main() -> None:
    """Measure, print lines of JSON, then a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--small", action="store_true", help="a tiny shape on the CPU")
    options = parser.parse_args()
    if not options.small and not torch.cuda.is_available():
        raise SystemExit(
            "Expected a CUDA device, but torch sees none. Run with --small to try it on the CPU."
        )
    shape = SMALL if options.small else QWEN
    console = Console(width=110)
    table = Table("", ["what", "figure"])
    with DevicePool("cpu" if options.small else "cuda:0", BenchSpec(shape)) as pool:
        facts = pool.call(describe)
        say("device", facts)
        space = CurveSpace(shape.model["num_hidden_layers"], y_min=0.7, y_max=1.3, max_delta=0.3)
        speed = measure_throughput(pool, space, facts, shape.pairs)
        say("throughput", speed)
        table.add_row("fitness evaluation, tokens/s", f"{speed['fitness_tokens_per_second']:.0f}")
        table.add_row("bare forward, tokens/s", f"{speed['bare_tokens_per_second']:.0f}")
        table.add_row(
            "fitness / bare", interval_text(speed["fitness_over_bare"], speed["low"], speed["high"])
        )
        table.add_row("product of matrices, TFLOP/s", f"{speed['matrix_tflops']:.1f}")
        table.add_row("FLOP utilisation, fitness", f"{100 * speed['flop_utilisation']:.1f} %")
        table.add_row("FLOP utilisation, bare forward", f"{100 * speed['bare_flop_utilisation']:.1f} %")
        for row in measure_passes(pool, space):
            say("candidates", row)
            table.add_row(
                f"{row['candidates_per_pass']} candidates a pass, tokens/s",
                f"{row['tokens_per_second']:.0f} (scores differ by {row['largest_difference_nats']:.1e} nats)",
            )
        for what in ("prefill", "decode"):
            pairs = np.array(pool.call(patch_ratios, what))
            ratio, low, high = median_interval(pairs[:, 1] / pairs[:, 0])
            untouched = float(np.median(pairs[:, 0]))
            say(
                what,
                {"untouched_seconds": untouched, "patched_over_untouched": ratio, "low": low, "high": high},
            )
            table.add_row(f"{what}, patched / untouched", interval_text(ratio, low, high))
    table.caption = (
        f"{facts['device']}, {facts['dtype']}, torch {facts['torch']}, transformers {facts['transformers']}"
    )
    table.print(console)


def say(what: str, values: dict[str, Any]) -> None:
    """Print a measurement as a line of JSON."""
    print(json.dumps({"what": what, **values}), flush=True)


if __name__ == "__main__":
    main()
