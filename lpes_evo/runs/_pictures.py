"""Pictures of a run; every function returns the matplotlib figure, so that users can restyle it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lpes_evo.operators import CurveSpace
from lpes_evo.reporting import PALETTE, new_figure
from lpes_evo.runs._report_record import CONSTANT, LPES, UNTOUCHED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from lpes_evo.operators import BezierGenome

_BLUE, _ORANGE, _GREEN, _GREY = (PALETTE[name] for name in ("blue", "orange", "green", "grey"))
_FINENESS = 16
STYLES = {
    UNTOUCHED: ("untouched model", _GREY, "s"),
    CONSTANT: ("best single scale", _GREEN, "^"),
    LPES: ("LPES", _BLUE, "o"),
}
"""Label, colour and marker of the methods that a run compares, the same in every picture."""

_MORE_COLORS = [PALETTE[name] for name in ("amber", "sky", "purple", "orange", "black", "yellow")]
_MORE_MARKERS = "DvPX*<>hd8"


def series_styles(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Give each of several series a colour and a marker of its own.

    Colours repeat once all of them are used. Markers do not repeat among ten series beside those of `STYLES`.

    Args:
        names: Names of the series.

    Returns:
        Colour and marker by name; those of `STYLES` keep theirs.
    """
    styles = {name: STYLES[name][1:] for name in names if name in STYLES}
    for number, name in enumerate(name for name in names if name not in STYLES):
        color = _MORE_COLORS[number % len(_MORE_COLORS)]
        styles[name] = color, _MORE_MARKERS[number % len(_MORE_MARKERS)]
    return styles


def plot_convergence(
    fitness: Sequence[float | None], generations: Sequence[dict[str, Any]], unit: str = ""
) -> "Figure":
    """Draw fitness by evaluation: each evaluation, the best so far, mean and spread of the population.

    Args:
        fitness: Fitness of each evaluation in the order of the journal; ``None`` where it failed or was raced out.
        generations: Records of `lpes_evo.search.Search.logbook`.
        unit: Unit of the fitness, for the label of the axis.

    Returns:
        The figure.
    """
    label = "Fitness on the search examples"
    figure, axes = new_figure("Evaluations", f"{label} ({unit})" if unit else label)

    values = np.array([np.nan if value is None else value for value in fitness])
    numbers = np.arange(1, len(values) + 1)
    axes.plot(numbers, values, ".", color=_GREY, markersize=4, label="one evaluation")
    axes.step(numbers, np.fmax.accumulate(values), where="post", color=_BLUE, label="best so far")

    # A population whose members all failed has no mean.
    ends = np.cumsum([record["evaluations"] for record in generations])
    known = [index for index, record in enumerate(generations) if record["mean"] is not None]
    mean = np.array([generations[index]["mean"] for index in known])
    spread = np.array([generations[index]["spread"] for index in known])
    axes.plot(ends[known], mean, color=_ORANGE, label="population mean")
    axes.fill_between(
        ends[known],
        mean - spread,
        mean + spread,
        color=_ORANGE,
        alpha=0.2,
        linewidth=0,
        label="± 1 standard deviation",
    )

    if np.isfinite(values).any():
        # A few hopeless curves would squeeze everything else into one line.
        low, high = np.nanquantile(values, 0.1), np.nanmax(values)
        axes.set_ylim(low - 0.15 * (high - low) - 1e-9, high + 0.1 * (high - low) + 1e-9)

    axes.legend(frameon=False, loc="lower right")
    return figure


def plot_curve(space: CurveSpace, genome: "BezierGenome") -> "Figure":
    """Draw the curve with its control polygon and the scale of each layer.

    Args:
        space: The space of the curve.
        genome: The control points.

    Returns:
        The figure.
    """
    figure, axes = new_figure("Layer", "Scale (position divisor)")
    points = np.array(genome)

    # A deeper model shows the curve between the layers.
    finer = CurveSpace(
        (space.n_layers - 1) * _FINENESS + 1, space.n_points, curve=space.curve, x_rule=space.x_rule
    )
    curve = finer.draw([points * [_FINENESS, 1]])[0]

    axes.axhline(1.0, color=_GREY, linewidth=0.8, linestyle=":", label="untouched")
    axes.plot(points[:, 0], points[:, 1], "s--", color=_ORANGE, linewidth=1, label="control polygon")
    axes.plot(np.arange(len(curve)) / _FINENESS, curve, color=_BLUE)
    axes.plot(
        np.arange(space.n_layers), space.decode([genome])[0], "o", color=_BLUE, label="scale of a layer"
    )
    axes.legend(frameon=False)
    return figure


def plot_positions(summary: dict[str, Any]) -> "Figure":
    """Draw the scores of held-out examples by gold position with 95 % intervals, before and after.

    Where the task places no fact, there is one score for each method.

    Args:
        summary: What `lpes_evo.runs.summarise` gave.

    Returns:
        The figure.
    """
    measure = summary.get("measure", "accuracy")
    label = f"{measure[:1].upper()}{measure[1:]} on held-out examples"
    if not summary["methods"][LPES]["positions"]:
        return _plot_overall(summary, label)
    figure, axes = new_figure("Position of the fact (0 beginning, 1 end)", label)

    shuffles = summary.get("shuffles")
    if shuffles:
        rows = shuffles["positions"]
        axes.plot(
            [row["position"] for row in rows],
            [row["accuracy"] for row in rows],
            color=_ORANGE,
            linestyle="--",
            label=f"mean of {shuffles['n_shuffles']} shuffles of LPES",
        )

    # The points of a position stand beside each other, so that no interval hides another.
    width = 0.006
    for shift, (name, (label, color, marker)) in enumerate(STYLES.items(), start=-1):
        if name not in summary["methods"]:
            continue
        method = summary["methods"][name]
        rows = method["positions"]
        accuracy = np.array([row["accuracy"] for row in rows])
        reach = [accuracy - [row["low"] for row in rows], [row["high"] for row in rows] - accuracy]
        axes.errorbar(
            np.array([row["position"] for row in rows]) + shift * width,
            accuracy,
            yerr=np.clip(reach, 0, None),
            color=color,
            marker=marker,
            capsize=2,
            label=f"{label} (mean {method['accuracy']:.3f})",
        )

    kind = ""
    if measure == "accuracy":
        axes.set_ylim(-0.03, 1.03)
        kind = " Wilson"
    axes.set_title(f"n = {rows[0]['n']} for each point, 95 %{kind} intervals", fontsize=9)
    axes.legend(frameon=False, loc="best")
    return figure


def _plot_overall(summary: dict[str, Any], label: str) -> "Figure":
    """Draw the score of each method over all examples, with its interval."""
    figure, axes = new_figure("", label)
    names = [name for name in STYLES if name in summary["methods"]]

    for place, name in enumerate(names):
        method = summary["methods"][name]
        _, color, marker = STYLES[name]
        reach = [[method["accuracy"] - method["low"]], [method["high"] - method["accuracy"]]]
        axes.errorbar(
            [place], [method["accuracy"]], yerr=np.clip(reach, 0, None), color=color, marker=marker, capsize=4
        )

    axes.set_xticks(range(len(names)), [STYLES[name][0] for name in names])
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.set_title(f"n = {summary['methods'][LPES]['n']}, 95 % bootstrap intervals over texts", fontsize=9)
    return figure
