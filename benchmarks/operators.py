"""Measure how fast curves are decoded and varied on one core.

Run with ``python benchmarks/operators.py``. Aims for 4 control points and 32 layers: 50,000 curves decoded and 20,000
variations (a crossover of two genomes and a mutation of one) per second. Each figure is the best of several
repetitions in processor time, which other work on the machine disturbs least.
"""

import random
import time
from collections.abc import Callable

import numpy as np
from deap import base

from lpes_evo.operators import CurveSpace

_N_CURVES = 20_000
_N_VARIATIONS = 4_000
_REPETITIONS = 7


def best_rate(run: Callable[[], object], n: int) -> float:
    """Return the highest number of items per second of processor time over the repetitions."""
    seconds = []
    for _ in range(_REPETITIONS):
        start = time.process_time()
        run()
        seconds.append(time.process_time() - start)
    return n / min(seconds)


def measure(name: str, space: CurveSpace) -> None:
    """Print the rates of one space."""
    toolbox = base.Toolbox()
    space.register(toolbox)
    random.seed(0)
    genomes = toolbox.population(n=_N_CURVES)
    points = np.array(genomes)

    def vary(*, clone: bool) -> None:
        for first, second in zip(genomes[:_N_VARIATIONS], genomes[_N_VARIATIONS:], strict=False):
            pair = (toolbox.clone(first), toolbox.clone(second)) if clone else (first, second)
            toolbox.mutate(toolbox.mate(*pair)[0])

    print(name)
    print(
        f"  curves decoded per second, array    {best_rate(lambda: space.decode(points), _N_CURVES):>9,.0f}"
    )
    print(
        f"  curves decoded per second, genomes  {best_rate(lambda: space.decode(genomes), _N_CURVES):>9,.0f}"
    )
    print(
        f"  variations per second               {best_rate(lambda: vary(clone=False), _N_VARIATIONS):>9,.0f}"
    )
    print(
        f"  variations per second with clones   {best_rate(lambda: vary(clone=True), _N_VARIATIONS):>9,.0f}"
    )


if __name__ == "__main__":
    measure("4 points, 32 layers, grid", CurveSpace(32))
    measure("8 points, 32 layers, grid", CurveSpace(32, 8))
    measure("4 points, 32 layers, continuous", CurveSpace(32, y_step=None, x_step=None))
