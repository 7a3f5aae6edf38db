"""Reports of drift and attention: one folder with numbers as JSON and CSV and pictures as PNG and SVG."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lpes_evo.analysis._arms import drift_arms
from lpes_evo.analysis._attention_mass import PARTS, measure_attention
from lpes_evo.analysis._attention_summary import summarise_attention
from lpes_evo.analysis._decay import decay_curve, layer_frequencies
from lpes_evo.analysis._drift_record import DriftReport
from lpes_evo.analysis._drift_summary import summarise_drift
from lpes_evo.analysis._hidden_states import MEASURES, Drift, measure_drift
from lpes_evo.analysis._pictures import (
    plot_attention,
    plot_decay,
    plot_drift_by_layer,
    plot_drift_of_arms,
    plot_drift_retrieval,
    plot_gold_attention,
)
from lpes_evo.analysis._request import Subject
from lpes_evo.errors import EvaluationError, StorageError
from lpes_evo.problems import AnswerScores, score_answers
from lpes_evo.reporting import Table, save_pictures
from lpes_evo.storage import WorkFolder, make_folder, provenance, to_json, write_atomic

_N_DISTANCES = 65


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Make the folder of an analysis, and lock it against other processes for the length of a block.

    Args:
        path: The folder.

    Yields:
        The folder.

    Raises:
        JournalError: Another process works in it.
        StorageError: The folder cannot be made, or holds files already.
    """
    make_folder(path)
    with WorkFolder(path).locked():
        if any(file.name != WorkFolder.LOCK for file in path.iterdir()):
            raise StorageError(f"Expected a new folder, but {path} holds files. Choose another --output.")
        yield path


def report_drift(
    subject: Subject, folder: Path, *, n_draws: int, on_input: Callable[[int], None] | None = None
) -> dict[str, Any]:
    """Measure drift and retrieval of a curve and its rivals, and write ``drift.json``, ``drift.csv`` and pictures.

    Args:
        subject: The subject of the analysis.
        folder: An empty folder.
        n_draws: Number of vectors of each random arm.
        on_input: Called with the number of inputs whose hidden states are done.

    Returns:
        The content of ``drift.json``.

    Raises:
        LpesError: An argument is not valid, the model's output is not finite, or a file cannot be written.
    """
    space = subject.config.curve.space(subject.loaded.n_layers)
    arms = drift_arms(subject.scales.scales, space, n_draws=n_draws, seed=subject.config.seed)
    vectors = np.concatenate(list(arms.values()))

    drift = measure_drift(
        subject.loaded.model, subject.inputs, vectors, batch_tokens=subject.batch_tokens, on_input=on_input
    )
    summary = {
        "format": "lpes-evo/drift",
        "version": 1,
        **provenance.describe(**subject.facts(), curves=subject.config.curve.model_dump(mode="json")),
        **summarise_drift(drift, arms, *_scores(subject, vectors)),
    }

    DriftReport.of(summary, str(folder / "drift.json")).save(folder / "drift.json")
    write_atomic(folder / "drift.csv", _drift_table(drift, summary))

    save_pictures(plot_drift_by_layer(summary), folder / "drift_by_layer")
    save_pictures(plot_drift_of_arms(summary), folder / "drift_of_arms")
    if summary["retrieval"] is not None:
        save_pictures(plot_drift_retrieval(summary), folder / "drift_retrieval")
    return summary


def report_attention(
    subject: Subject, folder: Path, *, on_input: Callable[[int], None] | None = None
) -> dict[str, Any]:
    """Measure attention and long-term decay, and write ``attention.json``, ``attention.csv``, ``decay.csv``, pictures.

    Args:
        subject: The subject of the analysis.
        folder: An empty folder.
        on_input: Called with the number of inputs that are done, both passes counted.

    Returns:
        The content of ``attention.json``.

    Raises:
        LpesError: The model does not let its attention be measured, its output is not finite, or a file cannot be
            written.
    """
    scales = np.asarray(subject.scales.scales)
    model = subject.loaded.model
    attention = measure_attention(model, subject.inputs, scales, on_input=on_input)

    frequencies = layer_frequencies(model)
    longest = max(attention.n_tokens) - 1
    distances = np.unique(np.linspace(0, longest, _N_DISTANCES).round())
    summary = {
        "format": "lpes-evo/attention",
        "version": 1,
        **provenance.describe(**subject.facts()),
        **summarise_attention(attention),
        "frequencies": [None if theta is None else theta.tolist() for theta in frequencies],
    }

    write_atomic(folder / "attention.json", to_json(summary, indent=1) + "\n")
    write_atomic(folder / "attention.csv", _attention_table(summary))
    write_atomic(folder / "decay.csv", _decay_table(frequencies, scales, distances))

    save_pictures(plot_attention(summary), folder / "attention")
    if summary["positions"]:
        save_pictures(plot_gold_attention(summary), folder / "gold_attention")
    save_pictures(plot_decay(frequencies, scales, longest), folder / "decay")
    return summary


def _scores(
    subject: Subject, vectors: npt.NDArray[np.float64]
) -> tuple[AnswerScores | None, AnswerScores | None]:
    """Return the scores of the inputs under every vector and on the untouched model, where all inputs have answers."""
    rows = [entry.row for entry in subject.inputs if entry.row is not None]
    if len(rows) < len(subject.inputs):
        return None, None

    model, batch_tokens = subject.loaded.model, subject.batch_tokens
    scores = score_answers(model, rows, scales=vectors, batch_tokens=batch_tokens)
    untouched = score_answers(model, rows, batch_tokens=batch_tokens)

    if not all(np.isfinite(entry.log_probability).all() for entry in (scores, untouched)):
        raise EvaluationError(
            "Expected finite log-probabilities of the answers, but some are not. With float16, try bfloat16 or float32."
        )
    return scores, untouched


def _drift_table(drift: Drift, summary: dict[str, Any]) -> str:
    """Return the mean drift of each vector in each layer as CSV."""
    means = drift.values.mean(axis=2)

    rows = []
    for number, entry in enumerate(summary["vectors"]):
        for layer in range(means.shape[-1]):
            rows.append(
                [
                    entry["arm"],
                    number,
                    layer,
                    entry["scales"][layer],
                    *means[:, number, layer].tolist(),
                    entry.get("log_probability"),
                    entry.get("accuracy"),
                ]
            )

    columns = ["arm", "vector", "layer", "scale", *MEASURES, "log_probability", "accuracy"]
    return Table("", columns, rows).to_csv()


def _attention_table(summary: dict[str, Any]) -> str:
    """Return the shares of each part in each layer as CSV."""
    header = ["layer", "part"]
    for name in ("untouched", "scaled", "difference"):
        header += [name, f"{name}_low", f"{name}_high"]

    rows = []
    for layer, row in enumerate(summary["layers"]):
        for part in PARTS if row is not None else ():
            found = row[part]
            if found is not None:
                numbers = [
                    found[name][key]
                    for name in ("untouched", "scaled", "difference")
                    for key in ("value", "low", "high")
                ]
                rows.append([layer, part, *numbers, found["p_value"], found["p_corrected"]])

    return Table("", [*header, "p_value", "p_corrected"], rows).to_csv()


def _decay_table(
    frequencies: Sequence[npt.NDArray[np.float64] | None],
    scales: npt.NDArray[np.float64],
    distances: npt.NDArray[np.float64],
) -> str:
    """Return the decay of each layer as CSV."""
    rows = []
    for layer, theta in enumerate(frequencies):
        if theta is not None:
            before, after = decay_curve(theta, distances), decay_curve(theta, distances, scales[layer])
            for distance, *bounds in zip(distances, before, after, strict=True):
                rows.append([layer, float(scales[layer]), int(distance), *map(float, bounds)])
    return Table("", ["layer", "scale", "distance", "before", "after"], rows).to_csv()
