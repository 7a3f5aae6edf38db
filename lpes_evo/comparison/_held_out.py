"""Held-out examples: the found scales of a comparison on examples that no search has seen."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from lpes_evo.comparison._arenas import ModelArena
from lpes_evo.runs import UNTOUCHED, measure
from lpes_evo.statistics import mean_interval, paired_difference
from lpes_evo.storage import Journal

_MEASURES = ("log_probability", "accuracy")


def measure_held_out(
    arena: ModelArena, vectors: Mapping[str, npt.NDArray[np.float64]], reference: str, journal: Journal
) -> dict[str, Any]:
    """Score the best scales of every contestant and seed on the held-out examples of a run.

    Args:
        arena: The arena.
        vectors: The scales, ``(n_layers,)``, by ``"contestant seed"``, seed by seed.
        reference: The contestant that all others are compared with.
        journal: The journal of finished scores.

    Returns:
        A mapping that `json` can write: ``n_examples``, the ``untouched`` model, and for each of the ``contestants``
        the mean over seeds of the mean log-probability (nats per token) and of the accuracy with 95 % bootstrap
        intervals over seeds, and the paired differences to the reference.

    Raises:
        LpesError: A vector could not be scored, or the journal belongs to others.
    """
    facts = arena.job.report
    wanted = {UNTOUCHED: np.ones(facts.n_layers), **vectors}
    scores = dict(measure(arena.pool, wanted, len(facts.example_ids), journal))
    means = {
        name: (float(score.log_probability.mean()), float(score.correct.mean()))
        for name, score in scores.items()
    }

    # The vectors come seed by seed, so that the rows of two contestants pair by seed.
    values: dict[str, list[tuple[float, float]]] = {}
    for name in vectors:
        values.setdefault(name.rpartition(" ")[0], []).append(means[name])
    tables = {name: np.array(rows) for name, rows in values.items()}

    contestants: dict[str, Any] = {name: {"n": len(table)} for name, table in tables.items()}
    for number, measured in enumerate(_MEASURES):
        for name, table in tables.items():
            mean, low, high = mean_interval(table[:, number])
            difference = paired_difference(table[:, number], tables[reference][:, number])
            contestants[name][measured] = {
                "mean": mean,
                "low": low,
                "high": high,
                **dict(zip(("difference", "difference_low", "difference_high"), difference, strict=True)),
            }

    return {
        "n_examples": len(facts.example_ids),
        UNTOUCHED: dict(zip(_MEASURES, means[UNTOUCHED], strict=True)),
        "contestants": contestants,
    }
