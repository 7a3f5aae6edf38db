"""Simulate a search on 1 to 1,024 workers: how busy they are, generation by generation and in steady-state.

Run as ``python benchmarks/scale.py``. The search is the real one; workers are simulated on a clock of events. The
time of an evaluation is drawn from those of a journal (``--journal``), so their spread is a measured one; the fitness
is made up. As a user would, the sizes grow with the number of workers W: a population of max(24, W), max(16, 2 W)
offspring a generation and as many candidates in flight. A generation begins when the one before is complete; the
steady-state has no such barrier, but breeds candidate i from the results of the candidates before i - in_flight.

Printed for every W are medians over the seeds, with their range: utilisation (time of evaluations / W times the length
of the search), evaluations per hour, and the share of the length that the search itself computes, measured on this
machine: near 100 %, the process of the search would hold its workers up. How busy workers are does not depend on which
genomes they are given, so ``--preselection`` is 1 here unless asked for; what it costs shows in the last column.
"""

import heapq
import random
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from common import parser

from lpes_evo.comparison import read_steps
from lpes_evo.config import SearchSettings
from lpes_evo.operators import CurveSpace
from lpes_evo.reporting import interval_text
from lpes_evo.search import Evaluation, Search

JOURNAL = Path(__file__).parents[1] / "docs" / "results" / "smollm2-needle" / "journal.jsonl"
N_LAYERS = 30
TARGET = 1 - 0.15 * np.sin(np.linspace(0, np.pi, N_LAYERS))


@dataclass(frozen=True)
class Outcome:
    """A simulated search.

    Attributes:
        n_evaluations: Evaluations in all.
        seconds: Length of the search.
        utilisation: Time of evaluations as a share of the time of all workers.
        own_seconds: Processor time of the search itself.
    """

    n_evaluations: int
    seconds: float
    utilisation: float
    own_seconds: float

    @property
    def per_hour(self) -> float:
        """Evaluations per hour."""
        return 3600 * self.n_evaluations / self.seconds


def read_seconds(path: Path) -> npt.NDArray[np.float64]:
    """Return the seconds of every finished evaluation of a journal, raced-out ones among them."""
    found = [line.seconds for _, line in read_steps(path) if line.status in ("ok", "raced")]
    if not found:
        raise SystemExit(f"Expected evaluations in {path}, but it has none. Name the journal of a run.")
    return np.array(found)


def settings_for(algorithm: str, n_workers: int, generations: int, preselection: int) -> SearchSettings:
    """Return the settings that a user of so many workers would choose."""
    in_flight = max(16, 2 * n_workers)
    return SearchSettings(
        algorithm=algorithm,
        population_size=max(24, n_workers),
        offspring_size=in_flight,
        in_flight=in_flight,
        generations=generations,
        preselection=preselection,
        racing=False,
    )


def simulate(
    settings: SearchSettings, n_workers: int, seconds: npt.NDArray[np.float64], seed: int
) -> Outcome:
    """Run a search on simulated workers.

    Args:
        settings: The search.
        n_workers: Number of workers.
        seconds: Times of evaluations, from which each candidate draws its own, ``(n,)``.
        seed: Seed of the search and of the times.

    Returns:
        How it went.
    """
    start = time.process_time()
    space = CurveSpace(N_LAYERS, y_min=0.7, y_max=1.1, max_delta=0.4)
    search = Search(space, settings, seed=seed)
    own = time.process_time() - start

    drawn = random.Random(seed)
    genomes: list[list[tuple[float, float]]] = []
    times: list[float] = []
    done: set[int] = set()
    waiting: deque[int] = deque()
    running: list[tuple[float, int]] = []
    clock, n_told = 0.0, 0

    while True:
        start = time.process_time()
        asked = []
        while search.can_ask():
            asked += search.ask()
        own += time.process_time() - start
        waiting.extend(range(len(genomes), len(genomes) + len(asked)))
        times += [drawn.choice(seconds) for _ in asked]
        genomes += asked

        while waiting and len(running) < n_workers:
            number = waiting.popleft()
            heapq.heappush(running, (clock + times[number], number))
        if not running:
            break

        clock, number = heapq.heappop(running)
        done.add(number)

        # The search is told in the order in which it asked.
        finished = []
        while n_told + len(finished) in done:
            finished.append(genomes[n_told + len(finished)])
        if finished:
            errors = ((space.decode(finished) - TARGET) ** 2).mean(axis=1)
            evaluations = [Evaluation((-float(error),), (-float(error),), 0.0) for error in errors]
            start = time.process_time()
            search.tell(evaluations)
            own += time.process_time() - start
            n_told += len(finished)

    return Outcome(len(genomes), clock, sum(times) / (n_workers * clock), own)


def shown(values: list[float], form: str) -> str:
    """Return the median of some values and their range."""
    return interval_text(float(np.median(values)), min(values), max(values), form)


def main() -> None:
    """Print a line for each number of workers and each loop."""
    command_line = parser(__doc__)
    command_line.add_argument("--journal", type=Path, default=JOURNAL, help="journal with measured times")
    command_line.add_argument("--most-workers", type=int, default=1024)
    command_line.add_argument("--generations", type=int, default=4)
    command_line.add_argument(
        "--preselection", type=int, default=1, help="genomes bred for each that is evaluated"
    )
    command_line.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = command_line.parse_args()

    seconds = read_seconds(options.journal)
    print(
        f"{len(seconds)} measured evaluations: mean {seconds.mean():.2f} s, standard deviation "
        f"{100 * seconds.std() / seconds.mean():.0f} % of it, from {seconds.min():.2f} to {seconds.max():.2f} s; "
        f"{options.generations} generations, {len(options.seeds)} seeds"
    )
    print(
        f"{'workers':>7}  {'loop':12}  {'utilisation, %':>20}  {'evaluations per hour':>26}  {'search itself, %':>20}"
    )

    n_workers = 1
    while n_workers <= options.most_workers:
        for algorithm, name in (("ga", "generations"), ("steady-state", "steady-state")):
            settings = settings_for(algorithm, n_workers, options.generations, options.preselection)
            found = [simulate(settings, n_workers, seconds, seed) for seed in options.seeds]
            print(
                f"{n_workers:7}  {name:12}  {shown([100 * one.utilisation for one in found], '.1f'):>20}  "
                f"{shown([one.per_hour for one in found], '.0f'):>26}  "
                f"{shown([100 * one.own_seconds / one.seconds for one in found], '.2f'):>18}",
                flush=True,
            )
        n_workers *= 2


if __name__ == "__main__":
    main()
