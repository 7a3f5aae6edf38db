"""Summary of drift: arms with intervals, paired tests against the curve, and the correlation with retrieval."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lpes_evo.analysis._arms import CURVE, RANDOM, RANDOM_CURVES
from lpes_evo.analysis._hidden_states import MEASURES, Drift
from lpes_evo.errors import TaskError
from lpes_evo.problems import AnswerScores
from lpes_evo.statistics import (
    group_means,
    holm,
    median_interval,
    paired_comparison,
    rank_correlation,
    unpaired_comparison,
)

FloatArray = npt.NDArray[np.float64]

LESS, MORE, OPEN = "less", "more", "not shown"
_LEVEL = 0.05


def summarise_drift(
    drift: Drift,
    arms: dict[str, FloatArray],
    scores: AnswerScores | None = None,
    untouched: AnswerScores | None = None,
) -> dict[str, Any]:
    """Condense the drift of single inputs and vectors to arms, and test the arms against the curve.

    The drift of a vector on an input is the mean over layers. Arms are compared by the median over their vectors of the
    mean over sources. The curve drifts less than an arm if the interval of the difference excludes 0 and the p-value is
    below 0.05. The p-value is the larger of the two of `lpes_evo.statistics.paired_comparison`, corrected over the arms
    by Holm's method.

    Args:
        drift: The drift of all vectors, in the order of the arms, see `measure_drift`.
        arms: The vectors of each arm, ``(n_vectors, n_layers)``; the arm ``curve`` has one.
        scores: Scores of the answer to each input under each vector, ``(n_vectors, n_inputs)``.
        untouched: Scores of the untouched model, whose drift is 0, ``(n_inputs,)``.

    Returns:
        A mapping that `json` can write:

        * ``arms``: drift, drift by layer and retrieval of each arm.
        * ``comparisons``: each arm against the curve, by measure.
        * ``claim``: whether the curve drifts less than every arm but ``random curves``, by measure.
        * ``smoothness``: ``random`` against ``random curves``, by measure.
        * ``untouched``: the retrieval of the untouched model.
        * ``retrieval``: the rank correlation of drift and retrieval, by measure.
        * ``vectors``: the numbers of every vector.

    Raises:
        TaskError: Arms and drift do not fit together.
    """
    names = [name for name, vectors in arms.items() for _ in vectors]
    if len(names) != drift.values.shape[1] or names.count(CURVE) != 1:
        raise TaskError(
            f"Expected the drift of {len(names)} vectors with one of the arm {CURVE!r} among them, but got that of "
            f"{drift.values.shape[1]} with {names.count(CURVE)}."
        )
    of_arm = {name: np.array([entry == name for entry in names]) for name in arms}

    # (n_measures, n_vectors, n_layers, n_sources), and without the layers.
    layers = group_means(drift.values.swapaxes(2, 3), drift.sources)
    means = layers.mean(axis=2)

    retrieval = {} if scores is None else _retrieval(scores)
    by_vector = {name: values.mean(axis=1) for name, values in retrieval.items()}
    retrieval = {name: group_means(values, drift.sources) for name, values in retrieval.items()}

    return {
        "n_inputs": len(drift.input_ids),
        "n_sources": means.shape[-1],
        "n_tokens": drift.n_tokens,
        "n_layers": layers.shape[2],
        "arms": {
            name: _arm(layers[:, chosen], {key: values[chosen] for key, values in retrieval.items()})
            for name, chosen in of_arm.items()
        },
        "untouched": None if untouched is None else _untouched(untouched, drift.sources),
        **_comparisons(means, of_arm),
        "retrieval": _correlations_by_measure(means, of_arm, by_vector) if retrieval else None,
        "vectors": [
            {
                "arm": name,
                "scales": scales.tolist(),
                "drift": dict(zip(MEASURES, means[:, number].mean(axis=1).tolist(), strict=True)),
                **{key: float(values[number]) for key, values in by_vector.items()},
            }
            for number, (name, scales) in enumerate(
                zip(names, np.concatenate(list(arms.values())), strict=True)
            )
        ],
    }


def _retrieval(scores: AnswerScores) -> dict[str, FloatArray]:
    """Return the scores by the names they have in the summary."""
    return {
        "log_probability": scores.log_probability,
        "accuracy": scores.correct.astype(np.float64),
    }


def _arm(layers: FloatArray, retrieval: dict[str, FloatArray]) -> dict[str, Any]:
    """Summarise drift ``(n_measures, n_vectors, n_layers, n_sources)`` of one arm."""
    found: dict[str, Any] = {"n_vectors": layers.shape[1], "drift": {}, "last_layer": {}, "layers": {}}
    for number, measure in enumerate(MEASURES):
        of_layers = [median_interval(layers[number, :, layer])._asdict() for layer in range(layers.shape[2])]
        found["drift"][measure] = median_interval(layers[number].mean(axis=1))._asdict()
        found["last_layer"][measure] = of_layers[-1]
        found["layers"][measure] = of_layers

    found["accumulation"] = {
        measure: _accumulation([entry["value"] for entry in found["layers"][measure]]) for measure in MEASURES
    }
    return found | {name: median_interval(values)._asdict() for name, values in retrieval.items()}


def _accumulation(drift: list[float]) -> dict[str, Any]:
    """Return the drift that each layer adds, and the first layer with half of the largest drift."""
    added = np.diff([0.0, *drift]).tolist()
    return {"added": added, "half_at_layer": int(np.argmax(np.asarray(drift) >= max(drift) / 2))}


def _comparisons(means: FloatArray, of_arm: dict[str, npt.NDArray[np.bool_]]) -> dict[str, Any]:
    """Compare every arm with the curve, from drift ``(n_measures, n_vectors, n_sources)``."""
    comparisons, claims, smoothness = {}, {}, {}

    for number, measure in enumerate(MEASURES):
        curve = means[number, of_arm[CURVE]][0]
        rows = {
            name: paired_comparison(curve, means[number, chosen])
            for name, chosen in of_arm.items()
            if name != CURVE
        }

        for row, corrected in zip(
            rows.values(), holm([row["p_value"] for row in rows.values()]), strict=True
        ):
            row["p_corrected"] = corrected
            row["curve_drifts"] = OPEN
            if corrected < _LEVEL and (row["low"] > 0 or row["high"] < 0):
                row["curve_drifts"] = LESS if row["low"] > 0 else MORE

        # Random curves are smooth too, so that they are no rivals of smoothness.
        verdicts = {row["curve_drifts"] for name, row in rows.items() if name != RANDOM_CURVES}
        comparisons[measure] = rows
        claims[measure] = "holds" if verdicts == {LESS} else "fails" if MORE in verdicts else OPEN

        if {RANDOM, RANDOM_CURVES} <= of_arm.keys():
            smoothness[measure] = unpaired_comparison(
                means[number, of_arm[RANDOM_CURVES]], means[number, of_arm[RANDOM]]
            )

    return {"comparisons": comparisons, "claim": claims, "smoothness": smoothness}


def _untouched(scores: AnswerScores, sources: Sequence[str]) -> dict[str, Any]:
    """Return the retrieval of the untouched model."""
    return {
        name: median_interval(group_means(values[None], sources))._asdict()
        for name, values in _retrieval(scores).items()
    }


def _correlations_by_measure(
    means: FloatArray, of_arm: dict[str, npt.NDArray[np.bool_]], retrieval: dict[str, FloatArray]
) -> dict[str, Any]:
    """Return the rank correlation of drift and retrieval over all vectors, and over those of each arm with several."""
    found: dict[str, Any] = {}
    for number, measure in enumerate(MEASURES):
        drift = means[number].mean(axis=1)
        found[measure] = {"all": _correlations(drift, retrieval)}

        for name, chosen in of_arm.items():
            if chosen.sum() > 1:
                of_vectors = {key: values[chosen] for key, values in retrieval.items()}
                found[measure][name] = _correlations(drift[chosen], of_vectors)
    return found


def _correlations(drift: FloatArray, retrieval: dict[str, FloatArray]) -> dict[str, Any]:
    """Return the rank correlation of drift with each score, over vectors."""
    return {name: rank_correlation(drift, values) for name, values in retrieval.items()}
