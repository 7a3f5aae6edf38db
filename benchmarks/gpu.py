"""Measure the evaluation of candidates on one GPU, on random weights of the shape of Qwen2.5-7B.

Run as ``bash benchmarks/gpu.sh`` on a machine with a CUDA device; it needs no network and less than six minutes.
``--small`` runs the same on the CPU with a tiny shape, to see that all of it works. Everything on the device is done by
the one worker of a pool, as in a search. Each measurement is a line of JSON, and a table follows. It tells

- tokens per second of fitness evaluation through the pool, against the bare forward pass on the same tokens, and
  against the rate of the device in a large product of matrices (2 FLOPs for each weight of the decoder layers and
  token; attention and the output head are not counted),
- what several candidates in one forward pass bring, and how far their scores are from those of one by one,
- the time of prefill and of decoding, patched over untouched, as medians of alternating pairs with an interval of
  95 %, as ``lpes-evo bench`` measures it,
- where there are two devices, fitness evaluation on a model that is spread over both: its speed, its largest departure
  from the scores on one device, and the memory that each device held at most.
"""

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
from common import bare_forward, paired, parser, slope, timed
from rich.console import Console

from lpes_evo import LoadedModel, SearchSettings, load_model
from lpes_evo.accelerators import devices_of
from lpes_evo.bench import BenchSettings, MethodCost, Shape, measure_costs, random_model
from lpes_evo.execution import Evaluator
from lpes_evo.methods import make_method
from lpes_evo.models import device_name
from lpes_evo.operators import BezierGenome, CurveSpace, init_random_walk
from lpes_evo.problems import Example, ModelProblem
from lpes_evo.reporting import Table, interval_text
from lpes_evo.statistics import median_interval
from lpes_evo.workers import DevicePool, Pool

POSITIONS = (0.0, 0.5, 1.0)
PASSES = (1, 2, 4, 8)


@dataclass(frozen=True)
class Sizes:
    """What is measured on which model.

    Attributes:
        model: Name of the shape of the model, as ``lpes-evo bench`` takes it.
        dtype: Number format of the weights.
        n_texts: Texts of the long problem, each with three questions.
        long: Words of a long text.
        short: Words of a short text; the problem for several candidates in a pass has two of them.
        prefill: Tokens of a prompt.
        steps: Cached steps of decoding.
        matrix: Side of the matrices that tell the rate of the device.
        pairs: Pairs of each comparison.
    """

    model: str
    dtype: str
    n_texts: int
    long: int
    short: int
    prefill: int
    steps: int
    matrix: int
    pairs: int


QWEN = Sizes("shape:qwen2.5-7b", "bfloat16", 8, 1900, 300, 4096, 16, 8192, 9)
SMALL = Sizes("shape:tiny", "float32", 2, 90, 30, 128, 4, 256, 6)


@dataclass(frozen=True)
class Bench:
    """What the worker holds: the sizes, the model, and the two problems."""

    sizes: Sizes
    loaded: LoadedModel
    long: ModelProblem
    short: ModelProblem


@dataclass(frozen=True)
class BenchSpec:
    """Makes the model and the problems in the worker.

    Attributes:
        sizes: The sizes.
    """

    sizes: Sizes

    def __call__(self, device: str) -> Bench:
        """Initialise the weights on the device."""
        sizes, shape = self.sizes, Shape.of(self.sizes.model)
        loaded = LoadedModel(
            model=random_model(shape, sizes.dtype, device),
            tokenizer=load_model("tiny", device="cpu").tokenizer,
            name="random",
            revision=None,
            n_layers=shape.n_layers,
            max_length=shape.config["max_position_embeddings"],
            dtype=sizes.dtype,
            device=device,
            attention="sdpa",
        )
        long, short = examples(sizes.n_texts, sizes.long), examples(2, sizes.short)
        return Bench(sizes, loaded, ModelProblem(loaded, long), ModelProblem(loaded, short))


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


def peak_memory(bench: Bench) -> list[float | None]:
    """Return the GiB that each device of the worker held at most; ``None`` for a CPU."""
    return [
        round(torch.cuda.max_memory_allocated(device) / 2**30, 2) if device.startswith("cuda") else None
        for device in devices_of(bench.loaded.device)
    ]


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
        "n_layers": bench.loaded.n_layers,
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
    side, device = bench.sizes.matrix, bench.loaded.device
    left, right = (torch.randn(side, side, device=device, dtype=bench.loaded.model.dtype) for _ in range(2))

    def multiply() -> None:
        for _ in range(10):
            torch.mm(left, right)

    timed(multiply, device=device)
    return 10 * 2 * side**3 / min(timed(multiply, device=device) for _ in range(5))


def bare_seconds(bench: Bench) -> float:
    """Return the seconds of the untouched model on the tokens of an evaluation."""
    return timed(bare_forward(bench.loaded.model, bench.long), device=bench.loaded.device)


def patch_cost(bench: Bench) -> MethodCost:
    """Return what the patch costs beside the untouched model, in prefill and in decoding."""
    sizes, patch = bench.sizes, make_method("lpes", scales=slope(bench.loaded, 0.8, 1.4))
    settings = BenchSettings(prompt_tokens=sizes.prefill, new_tokens=sizes.steps, repeats=sizes.pairs)
    (cost,), _ = measure_costs(bench.loaded.model, {"patch": patch}, settings)
    return cost


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

    def fitness_rate() -> float:
        _, seconds, tokens = evaluated(pool, space, long_problem, 2, 1)
        return tokens / seconds

    def bare_rate() -> float:
        return float(facts["tokens_of_an_evaluation"] / pool.call(bare_seconds))

    fitness, plain = paired(fitness_rate, bare_rate, pairs).T
    share, low, high = median_interval(fitness / plain)
    per_second, layers = float(np.median(fitness)), facts["parameters_of_layers"]
    return {
        "fitness_tokens_per_second": per_second,
        "bare_tokens_per_second": float(np.median(plain)),
        "fitness_over_bare": share,
        "low": low,
        "high": high,
        "matrix_tflops": rate / 1e12,
        "flop_utilisation": 2 * layers * per_second / rate,
        "bare_flop_utilisation": 2 * layers * float(np.median(plain)) / rate,
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


def measure_spread(sizes: Sizes, space: CurveSpace, devices: str, alone: np.ndarray) -> dict[str, Any]:
    """Evaluate two curves on a model that is spread over a group of devices.

    Args:
        sizes: The sizes.
        space: The space of the curves.
        devices: The group.
        alone: Scores of the two curves on one device, ``(2, n_examples)``.

    Returns:
        The measurement.
    """
    with DevicePool(devices, BenchSpec(sizes)) as pool:
        evaluated(pool, space, long_problem, 2, 1)
        tries = [evaluated(pool, space, long_problem, 2, 1) for _ in range(3)]
        scores, seconds, tokens = min(tries, key=lambda entry: entry[1])
        return {
            "devices": devices,
            "fitness_tokens_per_second": tokens / seconds,
            "largest_difference_nats": float(np.abs(scores - alone).max()),
            "peak_gib": pool.call(peak_memory),
        }


def main() -> None:
    """Measure, print lines of JSON, then a table."""
    options = parser(__doc__)
    options.add_argument("--small", action="store_true", help="a tiny shape on the CPU")
    is_small = options.parse_args().small
    if not is_small and not torch.cuda.is_available():
        raise SystemExit(
            "Expected a CUDA device, but torch sees none. Run with --small to try it on the CPU."
        )
    sizes = SMALL if is_small else QWEN

    rows: list[tuple[str, str]] = []
    with DevicePool("cpu" if is_small else "cuda:0", BenchSpec(sizes)) as pool:
        facts = pool.call(describe)
        say("device", facts)
        space = CurveSpace(facts["n_layers"], y_min=0.7, y_max=1.3, max_delta=0.3)

        speed = measure_throughput(pool, space, facts, sizes.pairs)
        say("throughput", speed)
        rows += [
            ("fitness evaluation, tokens/s", f"{speed['fitness_tokens_per_second']:.0f}"),
            ("bare forward, tokens/s", f"{speed['bare_tokens_per_second']:.0f}"),
            ("fitness / bare", interval_text(*(speed["fitness_over_bare"], speed["low"], speed["high"]))),
            ("product of matrices, TFLOP/s", f"{speed['matrix_tflops']:.1f}"),
            ("FLOP utilisation, fitness", f"{100 * speed['flop_utilisation']:.1f} %"),
            ("FLOP utilisation, bare forward", f"{100 * speed['bare_flop_utilisation']:.1f} %"),
        ]

        for row in measure_passes(pool, space):
            say("candidates", row)
            differs = f"(scores differ by {row['largest_difference_nats']:.1e} nats)"
            name = f"{row['candidates_per_pass']} candidates a pass, tokens/s"
            rows.append((name, f"{row['tokens_per_second']:.0f} {differs}"))

        cost = pool.call(patch_cost)
        for part in ("prefill", "decode"):
            ratio = cost.ratio(part)
            found = {"patched_over_untouched": ratio.value, "low": ratio.low, "high": ratio.high}
            untouched = float(np.median([getattr(plain, part) for plain, _ in cost.pairs]))
            say(part, {"untouched_seconds": untouched, **found})
            rows.append((f"{part}, patched / untouched", interval_text(*found.values())))

        alone, _, _ = evaluated(pool, space, long_problem, 2, 1)

    # The first pool has given its memory back.
    if is_small or torch.cuda.device_count() > 1:
        row = measure_spread(sizes, space, "cpu+cpu" if is_small else "cuda:0+cuda:1", alone)
        say("spread", row)
        differs = f"(scores differ by {row['largest_difference_nats']:.1e} nats)"
        rows.append(
            (f"fitness on {row['devices']}, tokens/s", f"{row['fitness_tokens_per_second']:.0f} {differs}")
        )

    versions = f"torch {facts['torch']}, transformers {facts['transformers']}"
    table = Table(f"{facts['device']}, {facts['dtype']}, {versions}", ["what", "figure"])
    for name, figure in rows:
        table.add_row(name, figure)
    table.print(Console(width=110))


def say(what: str, values: dict[str, Any]) -> None:
    """Print a measurement as a line of JSON."""
    print(json.dumps({"what": what, **values}), flush=True)


if __name__ == "__main__":
    main()
