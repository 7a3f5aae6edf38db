"""Simulate, without a model, what racing and preselection save.

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

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from common import PLAIN, Trace, parser, searched

from lpes_evo import SearchSettings
from lpes_evo.operators import CurveSpace
from lpes_evo.problems import Problem, aggregate

_N_LAYERS = 30
_N_SOURCES = 12
_NOISE = 0.05
_POSITIONS = np.linspace(0, 1, 5)
_GROUPS = ("begin", "begin", "middle", "end", "end") * _N_SOURCES
_SOURCES = tuple(f"source-{number // len(_POSITIONS)}" for number in range(len(_GROUPS)))


class MadeUp(Problem):
    """The made-up task. A scored example counts as a token, so that a search is charged for examples.

    Args:
        seed: Seed of the targets and the noise.
        spread: Standard deviation of the targets from source to source, and from example to example, as scales.
    """

    def __init__(self, seed: int, spread: float) -> None:
        self.n_layers, self.groups = _N_LAYERS, _GROUPS
        self.example_ids = tuple(map(str, range(len(_GROUPS))))

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

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """What each example is made of."""
        return _SOURCES

    def n_tokens_of(self, example_ids: Sequence[str]) -> int:
        """Return the number of examples."""
        return len(example_ids)

    def score(
        self, scales: npt.NDArray[np.float64], example_ids: Sequence[str] | None = None
    ) -> npt.NDArray[np.float64]:
        """Return the score of each example, in nats."""
        digest = hashlib.sha256(repr((self._seed, scales.round(9).tolist())).encode()).digest()
        noise = np.random.default_rng(int.from_bytes(digest[:8], "big")).normal(0, _NOISE, len(_GROUPS))
        scores = -12 * ((scales - self._targets) ** 2).mean(axis=1) + self._offsets + noise
        wanted = self.example_ids if example_ids is None else example_ids
        return np.asarray(scores[[int(name) for name in wanted]])


@dataclass(frozen=True)
class Outcome:
    """A search after as many examples as the settings allow without racing.

    Attributes:
        quality: Quality of the best curve.
        trace: Examples scored and best fitness after each evaluation.
    """

    quality: float
    trace: Trace

    @property
    def fitness(self) -> float:
        """The best fitness."""
        return self.trace.fitness[-1]

    def examples_until(self, fitness: float) -> float:
        """Return the examples scored until a fitness was reached; all of them where it was not."""
        return min(self.trace.tokens_to(fitness), self.trace.tokens[-1])


def outcome_of(seed: int, spread: float, settings: SearchSettings) -> Outcome:
    """Run a search until it has scored as many examples as it would without racing."""
    space = CurveSpace(_N_LAYERS, y_min=0.5, y_max=2.0, y_step=0.02, max_delta=0.5)
    task = MadeUp(seed, spread)
    trace = Trace(budget=settings.max_evaluations * len(_GROUPS))
    search = searched(task, space, settings.model_copy(update={"generations": 10_000}), seed, trace)
    return Outcome(task.quality(space.decode([search.best])[0]), trace)


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
    options = parser(__doc__)
    options.add_argument("--seeds", type=int, default=20, help="searches of each kind")
    options.add_argument(
        "--spread", type=float, default=0.1, help="how much the best curve differs from example to example"
    )
    options.add_argument("--algorithm", default="ga", help="ga or steady-state")
    arguments = options.parse_args()

    seeds, spread = range(arguments.seeds), arguments.spread
    base = SearchSettings(algorithm=arguments.algorithm)
    off = base.model_copy(update=PLAIN)
    plain = [outcome_of(seed, spread, off) for seed in seeds]
    quality = np.array([outcome.quality for outcome in plain])

    print(
        f"{base.algorithm}, spread {spread}, {len(seeds)} seeds; plain search: quality {quality.mean():.4f} nats"
    )
    print("preselection  racing        quality - plain    share of examples: mean, median, range, reached")

    for changes in _VARIANTS:
        outcomes = [outcome_of(seed, spread, base.model_copy(update=changes)) for seed in seeds]
        gain = np.array([outcome.quality for outcome in outcomes]) - quality
        targets = [other.fitness for other in plain]
        shares = [
            one.examples_until(target) / other.examples_until(target)
            for one, other, target in zip(outcomes, plain, targets, strict=True)
        ]
        n_reached = sum(one.fitness >= target for one, target in zip(outcomes, targets, strict=True))
        block = f"{changes['race_against']} / {changes['race_block']}" if "race_block" in changes else "off"
        print(
            f"{changes['preselection']:12d}  {block:12s}  {_difference(gain)}  {np.mean(shares):.2f}  "
            f"{np.median(shares):.2f}  [{min(shares):.2f}, {max(shares):.2f}]  {n_reached} of {len(seeds)}",
            flush=True,
        )


def _difference(values: npt.NDArray[np.float64]) -> str:
    """Return the mean of some values with its standard error."""
    return f"{values.mean():+.4f} +- {values.std(ddof=1) / len(values) ** 0.5:.4f}"


if __name__ == "__main__":
    main()
