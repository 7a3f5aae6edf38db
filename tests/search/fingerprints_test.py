"""A search is the same function of space, settings, seed and evaluations in every version, so that old runs resume."""

import hashlib
import json
import random

import numpy as np
import pytest

from lpes_evo.comparison import OPTIMISERS, OptimiserSearch
from lpes_evo.config import SearchSettings
from lpes_evo.operators import BezierGenome, CurveSpace
from lpes_evo.problems import aggregate
from lpes_evo.search import Evaluation, GradientProbe, Search

N_LAYERS = 12
SPACE = CurveSpace(N_LAYERS, y_min=0.5, y_max=1.5, y_step=0.05, max_delta=0.5)
SMALL = {
    "population_size": 12,
    "offspring_size": 8,
    "generations": 4,
    "n_constants": 4,
    "in_flight": 5,
    "preselection": 8,
    "gradient_steps": 3,
}
GROUPS = ("begin", "middle", "end")
DEPTH = np.linspace(0, 1, N_LAYERS)
TARGETS = np.stack([1 - 0.3 * DEPTH, 0.8 + 0.3 * DEPTH, 1 - 0.4 * DEPTH**2])
START = BezierGenome([(0, 1.0), (3, 1.1), (6, 1.2), (11, 1.3)])

CASES = {
    "ga": ({}, "d239eab4af619b53"),
    "ga without preselection": ({"preselection": 1}, "ba910d9a3cd49eae"),
    "ga without racing": ({"racing": False}, "7d39f8d02452dea7"),
    "ga against the worst": ({"race_against": "worst"}, "f4ec0d6f9d48ebc5"),
    "nsga2": ({"algorithm": "nsga2"}, "c8c266b0bcabc3c3"),
    "random": ({"algorithm": "random"}, "d616130d2196b477"),
    "steady-state": ({"algorithm": "steady-state"}, "dd515f533f3327c6"),
    "steady-state, one at a time": (
        {"algorithm": "steady-state", "in_flight": 1, "racing": False},
        "06df58831171f53a",
    ),
    "gradient without backtracking": (
        {"algorithm": "gradient", "gradient_backtracking": False},
        "3e13529f353d60bd",
    ),
    "gradient": ({"algorithm": "gradient"}, "6b69c74d694e1747"),
    "seeds": ({"gradient_seeds": 2}, "6859bb46218c6b76"),
    "mutations along gradients": ({"gradient_mutation": 0.6}, "4834cbc177df553d"),
    "seeds and mutations": (
        {"gradient_seeds": 1, "gradient_mutation": 0.6, "racing": False},
        "cb307c0240a385b9",
    ),
}


def evaluated(request, how, reference):
    """Evaluate a request by arithmetic that rounds the same on every machine; some fail, some are raced out."""
    lot = random.Random(request.key).random()
    if lot < 0.1:
        return Evaluation((), (), 0.0, "failed", "no luck")
    if isinstance(request, GradientProbe):
        number = request.sample % 3
        slope = np.round(TARGETS[number] - request.scales, 6)
        return Evaluation((), (0.0,), 0.0, "sampled", scored=(number,), gradient=tuple(slope.tolist()))
    scores = np.round(-((TARGETS - SPACE.decode([request])[0]) ** 2).mean(axis=1), 6)
    if reference is not None and scores.mean() < np.mean(reference) - 0.01:
        return Evaluation((), tuple(scores[:2].tolist()), 0.0, "raced", scored=(0, 1))
    return Evaluation(aggregate(scores, GROUPS, how), tuple(scores.tolist()), 0.0)


def fingerprint(search, n_together=3):
    """Return the SHA-256 of all that a search asks for, races against, and counts."""
    steps, waiting = [], []
    while True:
        while search.can_ask():
            requests, reference = search.ask(), search.reference()
            shown = reference if reference is None else [round(score, 6) for score in reference]
            steps.append([search.generation, [request.key for request in requests], shown])
            waiting += [(request, reference) for request in requests]
        if not waiting:
            break
        told, waiting = waiting[:n_together], waiting[n_together:]
        search.tell(
            [evaluated(request, search.settings.objectives, reference) for request, reference in told]
        )
    counts = [[row[name] for name in ("evaluations", "cached", "failed", "raced")] for row in search.logbook]
    survivors = [genome.key for genome in search.population]
    return hashlib.sha256(json.dumps([steps, counts, survivors]).encode()).hexdigest()[:16]


@pytest.mark.parametrize("name", CASES)
def test_a_search_asks_for_what_it_always_did(name):
    changes, expected = CASES[name]
    settings = SearchSettings(**SMALL | changes)
    n_objectives = 3 if settings.algorithm == "nsga2" else 1
    search = Search(SPACE, settings, seed=3, n_objectives=n_objectives, initial=[START])
    assert fingerprint(search) == expected


def test_cma_es_behind_the_interface_asks_for_what_it_always_did():
    settings = SearchSettings(**SMALL | {"racing": False})
    assert (
        fingerprint(OptimiserSearch(OPTIMISERS["cma-es"], SPACE, 30, settings, seed=3)) == "3573f56a5b5a1750"
    )
