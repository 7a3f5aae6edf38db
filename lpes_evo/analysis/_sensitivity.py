"""Sensitivity: the change of the answers with the scale of each layer, for the untouched model and under scales."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from lpes_evo.analysis._pictures import STATES, draw_band
from lpes_evo.analysis._request import Subject
from lpes_evo.errors import ConfigError
from lpes_evo.problems import ModelProblem, Problem
from lpes_evo.reporting import new_panels, save_pictures
from lpes_evo.statistics import mean_interval
from lpes_evo.storage import provenance, to_json, write_atomic

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FloatArray = npt.NDArray[np.float64]

BEFORE, AFTER = "untouched", "scaled"
_ALL = "all"


def measure_sensitivity(
    problem: Problem,
    scales: npt.ArrayLike,
    *,
    on_example: Callable[[int], None] | None = None,
) -> FloatArray:
    """Return the derivative of the score of each example with respect to the logarithm of each scale.

    Args:
        problem: A problem with gradients.
        scales: Position divisors, ``(n_layers,)``.
        on_example: Called with the number of examples that are done.

    Returns:
        The derivatives, ``(n_examples, n_layers)``. For scores in nats per token, a scale that is larger by one per
        cent adds a hundredth of the derivative to the log-probability.

    Raises:
        TaskError: The problem has no gradients.
        ScalesError: The scales have the wrong shape or a value that is not finite and positive.
        EvaluationError: The model's output or its gradient is not finite, or the model has no backward pass.
    """
    values = np.asarray(scales, dtype=np.float64)
    rows = []
    for number, name in enumerate(problem.example_ids, start=1):
        _, gradient = problem.gradient(values, [name])
        rows.append(gradient * values)
        if on_example is not None:
            on_example(number)
    return np.array(rows)


def summarise_sensitivity(problem: Problem, derivatives: dict[str, FloatArray]) -> dict[str, Any]:
    """Condense derivatives to their mean size by layer with 95 % bootstrap intervals over sources.

    Args:
        problem: The problem.
        derivatives: Results of `measure_sensitivity` by the name of the scales, each ``(n_examples, n_layers)``.

    Returns:
        A mapping that `json` can write: for each name and set of examples (``all``, and each group), one row per layer
        with ``value``, ``low`` and ``high`` of the mean absolute derivative and the mean ``signed`` one.
    """
    groups = np.array(problem.groups)
    masks = {_ALL: np.ones(len(groups), dtype=bool)}
    masks |= {name: groups == name for name in dict.fromkeys(problem.groups)}

    sets = {}
    for name, values in derivatives.items():
        sets[name] = {
            group: [_row(column[mask], np.array(problem.sources)[mask]) for column in values.T]
            for group, mask in masks.items()
        }
    return {"n_examples": len(groups), "sensitivity": sets}


def _row(values: FloatArray, sources: npt.NDArray[np.str_]) -> dict[str, float]:
    """Return the mean size of derivatives with its interval, and their mean."""
    interval = mean_interval(np.abs(values), sources.tolist())
    return {**interval._asdict(), "signed": float(values.mean())}


def plot_sensitivity(summary: dict[str, Any]) -> "Figure":
    """Draw the mean absolute derivative by layer, before and after, over all examples and for each of their sets.

    Args:
        summary: The result of `summarise_sensitivity`.

    Returns:
        The figure.
    """
    sets = summary["sensitivity"]
    names = list(next(iter(sets.values())))
    label = "|d log-probability / d log scale|\n(nats per token)"
    figure, panels = new_panels([("Layer", label if name == _ALL else "") for name in names])

    for axes, group in zip(panels, names, strict=True):
        for name, (text, color, marker) in STATES.items():
            if name in sets:
                rows = sets[name][group]
                draw_band(axes, np.arange(len(rows)), rows, label=text, color=color, marker=marker)
        axes.set_title("all examples" if group == _ALL else f"fact in set {group!r}", fontsize=9)
        axes.set_ylim(bottom=0)

    panels[0].legend(frameon=False, fontsize=8)
    figure.suptitle(f"{summary['n_examples']} examples; means with 95 % bootstrap intervals", fontsize=9)
    return figure


def report_sensitivity(
    subject: Subject, folder: Path, *, on_input: Callable[[int], None] | None = None
) -> dict[str, Any]:
    """Measure the untouched model and the scales on held-out examples, and write ``sensitivity.json`` and the picture.

    Args:
        subject: The subject of the analysis, which must have a task, since a text has no answers.
        folder: An empty folder.
        on_input: Called with the number of gradients that are done.

    Returns:
        The content of ``sensitivity.json``.

    Raises:
        LpesError: There is no task, the model has no gradients, or a file cannot be written.
    """
    problem = _problem(subject)

    derivatives, n_done = {}, 0
    for name, scales in ((BEFORE, np.ones(problem.n_layers)), (AFTER, np.array(subject.scales.scales))):
        tell = None if on_input is None else _shifted(on_input, n_done)
        derivatives[name] = measure_sensitivity(problem, scales, on_example=tell)
        n_done += len(problem.example_ids)

    summary = {
        "format": "lpes-evo/sensitivity",
        "version": 1,
        **provenance.describe(**subject.facts()),
        **summarise_sensitivity(problem, derivatives),
    }

    write_atomic(folder / "sensitivity.json", to_json(summary, indent=1) + "\n")
    save_pictures(plot_sensitivity(summary), folder / "sensitivity")
    return summary


def _shifted(on_input: Callable[[int], None], n_done: int) -> Callable[[int], None]:
    """Return a function that adds what was done before to the number it is called with."""
    return lambda number: on_input(n_done + number)


def _problem(subject: Subject) -> ModelProblem:
    """Return the problem of the held-out examples."""
    task = subject.config.task
    if not subject.examples:
        raise ConfigError(
            "Expected a task for the sensitivity of answers, but got a text, which has none. Leave out --text."
        )

    return ModelProblem(
        subject.loaded,
        subject.examples,
        chat_template=task.chat_template,
        over_length=task.over_length,
        batch_tokens=subject.batch_tokens,
        checkpointing=task.checkpointing,
    )
