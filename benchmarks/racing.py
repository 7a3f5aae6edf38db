"""What racing and preselection save, simulated without a model.

Run with ``python benchmarks/racing.py``. A made-up task has 12 sources with 5 gold positions each. The score of an
example is minus a weighted squared distance of the curve to the target of this example, plus an offset that all
candidates share and a little noise that is fixed for each pair of curve and example. Targets depend on the position,
and differ from source to source and from example to example by smooth random curves, so that candidates rank
differently on different examples, and similar candidates similarly.

Every search is compared with the plain one, without racing and preselection, on the same seeds: by the quality of the
curve it returns after equal numbers of scored examples, which is its expected score on new examples, and by the share
of the examples that it needs to reach the last fitness of the plain one. A search that does not reach it counts with
all the examples it scored.
"""

import argparse
import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lpes_evo import Search, SearchSettings
from lpes_evo.operators import CurveSpace
from lpes_evo.problems import aggregate
from lpes_evo.search import Evaluation, example_blocks, is_worse

_N_LAYERS = 30
_N_SOURCES = 12
_NOISE = 0.05
_POSITIONS = np.linspace(0, 1, 5)
_GROUPS = ("begin", "begin", "middle", "end", "end") * _N_SOURCES
_SOURCES = tuple(f"source-{number // len(_POSITIONS)}" for number in range(len(_GROUPS)))


class Task:
    """The made-up task.

    Args:
        seed: Seed of the targets and the noise.
        spread: Standard deviation of the targets from source to source, and from example to example, as scales.
    """

    def __init__(self, seed: int, spread: float) -> None:
        rng = np.random.default_rng(seed)
        depth = np.linspace(0, 1, _N_LAYERS)
        bend, centre, width = rng.uniform(0.1, 0.35), rng.uniform(0.2, 0.8), rng.uniform(0.15, 0.4)
        target = 1 - bend * np.exp(-(((depth - centre) / width) ** 2))
        of_positions = target + rng.uniform(-0.1, 0.1) * (_POSITIONS[:, None] - 0.5) * depth
        waves = np.cos(np.pi * np.arange(4)[:, None] * depth) * np.array([1, 1.4, 1.4, 1.4])[:, None]
        of_sources = rng.normal(0, spread / 2, (_N_SOURCES, 4)) @ waves
        of_examples = rng.normal(0, spread / 2, (len(_GROUPS), 4)) @ waves
        self._positions = of_positions
        self._targets = (
            np.tile(of_positions, (_N_SOURCES, 1)) + of_sources.repeat(len(_POSITIONS), axis=0) + of_examples
        )
        self._offsets = rng.normal(0, 1.0, len(_GROUPS))
        self._seed = seed

    def quality(self, scales: npt.NDArray[np.float64]) -> float:
        """Return the expected fitness on new examples, up to a constant, in nats."""
        return aggregate(-12 * ((scales - self._positions) ** 2).mean(axis=1), _GROUPS[: len(_POSITIONS)])[0]

    def scores(self, scales: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the score of every example, in nats."""
        digest = hashlib.sha256(repr((self._seed, scales.round(9).tolist())).encode()).digest()
        noise = np.random.default_rng(int.from_bytes(digest[:8], "big")).normal(0, _NOISE, len(_GROUPS))
        return -12 * ((scales - self._targets) ** 2).mean(axis=1) + self._offsets + noise


@dataclass(frozen=True)
class Outcome:
    """A search after as many examples as the settings allow without racing.

    Attributes:
        quality: Quality of the best curve.
        fitness: Examples scored and fitness of the best curve after each generation.
    """

    quality: float
    fitness: tuple[tuple[int, float], ...]

    def examples_until(self, fitness: float) -> float:
        """Return the examples scored until a fitness was reached; all of them where it was not."""
        return next((examples for examples, best in self.fitness if best >= fitness), self.fitness[-1][0])


def evaluated(
    task: Task,
    scales: npt.NDArray[np.float64],
    reference: tuple[float, ...] | None,
    blocks: list[npt.NDArray[np.int64]],
    level: float,
) -> Evaluation:
    """Score a candidate block by block until it is through or worse than its reference."""
    scores = task.scores(scales)
    for n_blocks in range(1, len(blocks)) if reference is not None else ():
        scored = np.concatenate(blocks[:n_blocks])
        if is_worse(scores[scored], scored, reference, _GROUPS, "mean", level):
            return Evaluation((), tuple(scores[scored]), 0.0, "raced", scored=tuple(scored.tolist()))
    return Evaluation(aggregate(scores, _GROUPS), tuple(scores), 0.0)


def searched(seed: int, spread: float, settings: SearchSettings) -> Outcome:
    """Run a search until it has scored as many examples as it would without racing."""
    space = CurveSpace(_N_LAYERS, y_min=0.5, y_max=2.0, y_step=0.02, max_delta=0.5)
    budget = settings.max_evaluations * len(_GROUPS)
    task = Task(seed, spread)
    blocks = example_blocks(_SOURCES, _GROUPS, settings.race_block)
    search = Search(space, settings.model_copy(update={"generations": 10_000}), seed=seed)
    examples = 0
    fitness = []
    while examples < budget:
        evaluations = []
        for genome in search.ask():
            evaluation = evaluated(
                task, space.decode([genome])[0], search.reference(), blocks, settings.race_level
            )
            evaluations.append(evaluation)
            examples += len(evaluation.scores)
        search.tell(evaluations)
        if search.hall_of_fame:
            fitness.append((examples, search.best.fitness.values[0]))
    return Outcome(task.quality(space.decode([search.best])[0]), tuple(fitness))


_VARIANTS: tuple[dict[str, Any], ...] = (
    {"preselection": 1, "race_against": "best", "race_block": 1},
    {"preselection": 1, "race_against": "median", "race_block": 1},
    {"preselection": 16, "racing": False},
    {"preselection": 16, "race_against": "best", "race_block": 1},
    {"preselection": 16, "race_against": "best", "race_block": 2},
    {"preselection": 16, "race_against": "median", "race_block": 1},
    {"preselection": 64, "race_against": "best", "race_block": 1},
)
"""The settings that are compared with ``racing=False, preselection=1``."""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="searches of each kind")
    parser.add_argument(
        "--spread", type=float, default=0.1, help="how much the best curve differs from example to example"
    )
    parser.add_argument("--algorithm", default="ga", help="ga or steady-state")
    arguments = parser.parse_args()
    seeds, spread = range(arguments.seeds), arguments.spread
    base = SearchSettings(algorithm=arguments.algorithm)
    off = base.model_copy(update={"racing": False, "preselection": 1})
    plain = [searched(seed, spread, off) for seed in seeds]
    quality = np.array([outcome.quality for outcome in plain])
    print(
        f"{base.algorithm}, spread {spread}, {len(seeds)} seeds; plain search: quality {quality.mean():.4f} nats"
    )
    print("preselection  racing        quality - plain    share of examples: mean, median, range, reached")
    for changes in _VARIANTS:
        outcomes = [searched(seed, spread, base.model_copy(update=changes)) for seed in seeds]
        gain = np.array([outcome.quality for outcome in outcomes]) - quality
        targets = [other.fitness[-1][1] for other in plain]
        shares = [
            one.examples_until(target) / other.examples_until(target)
            for one, other, target in zip(outcomes, plain, targets, strict=True)
        ]
        n_reached = sum(one.fitness[-1][1] >= target for one, target in zip(outcomes, targets, strict=True))
        racing = (
            "off"
            if not changes.get("racing", True)
            else f"{changes['race_against']} / {changes['race_block']}"
        )
        print(
            f"{changes['preselection']:12d}  {racing:12s}  {_difference(gain)}  {np.mean(shares):.2f}  "
            f"{np.median(shares):.2f}  [{min(shares):.2f}, {max(shares):.2f}]  {n_reached} of {len(seeds)}",
            flush=True,
        )


def _difference(values: npt.NDArray[np.float64]) -> str:
    return f"{values.mean():+.4f} +- {values.std(ddof=1) / len(values) ** 0.5:.4f}"


if __name__ == "__main__":
    main()
