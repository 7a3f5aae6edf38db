"""What a run will cost, predicted from a few timed evaluations."""

import time
from dataclasses import dataclass

import numpy as np

from lpes_evo.config import RunConfig
from lpes_evo.job import prepare
from lpes_evo.progress import duration


@dataclass(frozen=True)
class Estimate:
    """A predicted cost.

    Attributes:
        load_seconds: Time to load the model.
        evaluation_seconds: Median time of one evaluation of the search.
        spread_seconds: Difference of the slowest and the fastest pilot evaluation.
        evaluation_tokens: Tokens forwarded by one evaluation.
        n_evaluations: Most evaluations of the search.
        report_tokens: Tokens forwarded by the measurement on held-out examples.
    """

    load_seconds: float
    evaluation_seconds: float
    spread_seconds: float
    evaluation_tokens: int
    n_evaluations: int
    report_tokens: int

    @property
    def search_seconds(self) -> float:
        """Predicted time of the search."""
        return self.evaluation_seconds * self.n_evaluations

    @property
    def report_seconds(self) -> float:
        """Predicted time of the measurement."""
        return self.evaluation_seconds / self.evaluation_tokens * self.report_tokens

    @property
    def total_seconds(self) -> float:
        """Predicted time of the whole run."""
        return self.load_seconds + self.search_seconds + self.report_seconds

    def lines(self) -> list[str]:
        """Return the estimate as lines for people."""
        speed = self.evaluation_tokens / self.evaluation_seconds
        return [
            f"loading the model   {duration(self.load_seconds)}",
            f"one evaluation      {self.evaluation_seconds:.2f} s ({self.evaluation_tokens} tokens, "
            f"{speed:.0f} tokens/s, pilot spread {self.spread_seconds:.2f} s)",
            f"search              {duration(self.search_seconds)} (at most {self.n_evaluations} evaluations)",
            f"held-out report     {duration(self.report_seconds)} ({self.report_tokens} tokens)",
            f"total               {duration(self.total_seconds)}",
        ]


def estimate_run(config: RunConfig, *, device: str = "auto", repeats: int = 2) -> Estimate:
    """Load the model, time some evaluations of the untouched curve, and predict the run.

    Args:
        config: The configuration of the run.
        device: Where the model computes.
        repeats: Timed evaluations, after one that warms up.

    Returns:
        The estimate.

    Raises:
        LpesError: The configuration cannot be run; the message says why.
    """
    start = time.perf_counter()
    job = prepare(config, device)
    load_seconds = time.perf_counter() - start
    scales = np.ones(job.loaded.n_layers)
    job.search_problem.score(scales)
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        job.search_problem.score(scales)
        seconds.append(time.perf_counter() - start)
    n_vectors = 3 + config.report.n_shuffles
    return Estimate(
        load_seconds=load_seconds,
        evaluation_seconds=float(np.median(seconds)),
        spread_seconds=max(seconds) - min(seconds),
        evaluation_tokens=job.search_problem.n_tokens,
        n_evaluations=config.search.max_evaluations,
        report_tokens=job.report_problem.n_tokens * n_vectors,
    )
