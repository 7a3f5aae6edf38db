"""Estimate: the predicted cost of a run, from a few timed evaluations."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lpes_evo.config import RunConfig, SearchSettings
from lpes_evo.execution import with_less_memory
from lpes_evo.reporting import duration
from lpes_evo.runs._job import JobFacts, JobSpec, RunJob, describe, draw_examples
from lpes_evo.search import example_blocks
from lpes_evo.workers import make_pool


@dataclass(frozen=True)
class Estimate:
    """A predicted cost.

    Attributes:
        load_seconds: Time to load the model.
        n_workers: Workers that share the evaluations.
        n_at_once: Evaluations that the search can give to the workers at a time.
        evaluation_seconds: Median time of one full evaluation of the search, while all workers are busy.
        spread_seconds: Difference of the slowest and the fastest pilot evaluation.
        evaluation_tokens: Tokens forwarded by one evaluation.
        n_evaluations: Most full evaluations of the search.
        report_tokens: Tokens forwarded by the measurement on held-out examples.
        gradient_tokens: Tokens of all gradients of the search, where a backward pass counts as two forward passes.
            Each gradient waits for the one before, so that workers cannot share them.
        sharing: Lines for people that say whether examples about one text share the run over it, and why.
    """

    load_seconds: float
    n_workers: int
    n_at_once: int
    evaluation_seconds: float
    spread_seconds: float
    evaluation_tokens: int
    n_evaluations: int
    report_tokens: int
    gradient_tokens: int = 0
    sharing: tuple[str, ...] = ()

    @property
    def search_seconds(self) -> float:
        """Predicted time of the search without racing, which would make the search shorter."""
        gradients = self.evaluation_seconds / self.evaluation_tokens * self.gradient_tokens
        return self.evaluation_seconds * self.n_evaluations / self.n_at_once + gradients

    @property
    def report_seconds(self) -> float:
        """Predicted time of the measurement."""
        return self.evaluation_seconds / self.evaluation_tokens * self.report_tokens / self.n_workers

    @property
    def total_seconds(self) -> float:
        """Predicted time of the whole run."""
        return self.load_seconds + self.search_seconds + self.report_seconds

    def lines(self) -> list[str]:
        """Return the estimate as lines for people."""
        speed = self.evaluation_tokens / self.evaluation_seconds

        return [
            *self.sharing,
            f"loading the model   {duration(self.load_seconds)}",
            f"one evaluation      {self.evaluation_seconds:.2f} s ({self.evaluation_tokens} tokens, "
            f"{speed:.0f} tokens/s, pilot spread {self.spread_seconds:.2f} s)",
            f"search              {duration(self.search_seconds)} (at most {self.n_evaluations} full evaluations, "
            f"{self.n_at_once} at a time{self._gradients()})",
            f"held-out report     {duration(self.report_seconds)} ({self.report_tokens} tokens)",
            f"total               {duration(self.total_seconds)}",
        ]

    def _gradients(self) -> str:
        return f", and {self.gradient_tokens} tokens for gradients" if self.gradient_tokens else ""


def estimate_run(
    config: RunConfig,
    *,
    devices: str = "auto",
    ray_address: str | None = None,
    gpus_per_worker: int | None = None,
    repeats: int = 2,
    on_event: Callable[[str], None] | None = None,
) -> Estimate:
    """Load the model, time some evaluations of the untouched curve on all workers at once, and predict the run.

    Args:
        config: The configuration of the run.
        devices: Where the model computes, see `lpes_evo.workers.make_pool`.
        ray_address: Address of a Ray cluster whose GPUs are used instead.
        gpus_per_worker: GPUs of each worker on a Ray cluster; ``None`` for one.
        repeats: Timed evaluations of each worker, after one that warms up.
        on_event: Called with one line about the progress of loading, and about each lost worker.

    Returns:
        The estimate.

    Raises:
        LpesError: The configuration cannot be run; the message says why.
    """
    # Bad data are refused before a model is loaded.
    draw_examples(config)

    start = time.perf_counter()
    with make_pool(
        JobSpec(config),
        devices,
        ray_address=ray_address,
        gpus_per_worker=gpus_per_worker,
        on_event=on_event,
    ) as pool:
        job: JobFacts = pool.call(describe)
        load_seconds = time.perf_counter() - start

        scales = np.ones((1, job.n_layers))
        rounds = [pool.map(_timed_evaluation, [scales] * pool.n_workers) for _ in range(1 + repeats)]
        n_workers = pool.n_workers

    # The first round warms up.
    seconds = [second for evaluations in rounds[1:] for second in evaluations]
    # Untouched, the best constant and LPES are measured beside the shuffles.
    n_vectors = 3 + config.report.n_shuffles
    return Estimate(
        load_seconds=load_seconds,
        n_workers=n_workers,
        n_at_once=min(n_workers, _most_at_once(config.search)),
        evaluation_seconds=float(np.median(seconds)),
        spread_seconds=max(seconds) - min(seconds),
        evaluation_tokens=job.search.n_tokens,
        n_evaluations=config.search.max_evaluations - config.search.max_gradients,
        report_tokens=job.report.n_tokens * n_vectors,
        gradient_tokens=_gradient_tokens(job),
        sharing=tuple(job.sharing),
    )


def _most_at_once(search: SearchSettings) -> int:
    """Return how many evaluations a search can have under way at a time."""
    return search.in_flight if search.algorithm == "steady-state" else search.offspring_size


def _gradient_tokens(job: JobFacts) -> int:
    """Return the tokens of all gradients of a search; each sees one of several samples of about equal size."""
    search = job.config.search
    rule = job.rule
    sources, groups, tasks = (
        [values[row] for row in rule.searched]
        for values in (job.search.sources, job.search.groups, rule.tasks)
    )
    samples = example_blocks(sources, groups, search.gradient_sources, tasks)
    return search.max_gradients * job.search.gradient_cost * job.search.n_tokens // len(samples)


def _timed_evaluation(job: RunJob, scales: npt.NDArray[np.float64]) -> float:
    """Return the seconds that one evaluation of all search examples takes in a worker."""
    start = time.perf_counter()
    with_less_memory(job.search_problem, lambda problem: problem.score_many(scales))
    return time.perf_counter() - start
