"""Pictures of a page, each with its caption and the command that draws it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from lpes_evo.analysis import plot_drift_by_layer, plot_drift_of_arms, plot_drift_retrieval
from lpes_evo.comparison import plot_diversity, plot_searches, plot_tried_points
from lpes_evo.page._run import RunContents
from lpes_evo.page._svg import to_svg
from lpes_evo.runs import STYLES, plot_curve, plot_positions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from lpes_evo.comparison import Axis

# A small figure, so that its text stays readable on a narrow screen.
_SIZE = (5.0, 3.6)

# More dots are drawn as pixels, since each one of them as a shape would make the page large.
_MOST_DOTS = 3000


@dataclass(frozen=True)
class Picture:
    """A picture of a page.

    Attributes:
        name: A word that no other element of the page has.
        svg: The picture.
        caption: What the picture shows, and the number of examples or searches behind it.
        command: The command that draws the picture.
        is_wide: Whether the picture has panels side by side.
    """

    name: str
    svg: Markup
    caption: str
    command: str
    is_wide: bool = False


def result_pictures(run: RunContents, command: str) -> list[Picture]:
    """Draw the accuracy by gold position of a finished run.

    Args:
        run: The run, with a summary.
        command: The command of the run.
    """
    if run.summary is None:
        return []

    figure = plot_positions(run.summary)
    figure.axes[0].set_title("")

    measure = str(run.summary.get("measure", "accuracy")).capitalize()
    rows = next(iter(run.summary["methods"].values()))["positions"]
    if not rows:
        means = "; ".join(
            f"{STYLES[name][0]}: {method['accuracy']:.3f}"
            for name, method in run.summary["methods"].items()
            if name in STYLES
        )
        caption = f"{measure} on held-out examples. {means}."
        return [_picture(figure, "positions", f"{measure} on held-out examples", caption, caption, command)]

    counts = sorted({row["n"] for row in rows})
    described = "; ".join(
        f"{STYLES[name][0] if name in STYLES else name}: "
        + ", ".join(f"{row['accuracy']:.2f} at {row['position']:g}" for row in method["positions"])
        for name, method in run.summary["methods"].items()
    )

    return [
        _picture(
            figure,
            "positions",
            f"{measure} by position of the fact",
            f"{measure} on held-out examples by position of the fact, 0 the beginning and 1 the end. {described}.",
            f"{measure} by position of the fact: n = {' to '.join(map(str, counts))} held-out examples at each, bars "
            f"are 95 % {'Wilson ' if measure == 'Accuracy' else ''}intervals.",
            command,
        )
    ]


def curve_pictures(run: RunContents, command: str) -> list[Picture]:
    """Draw the curve that was found, or the best curve so far.

    Args:
        run: The run.
        command: The command of the run.
    """
    if run.best is None:
        return []

    scales = run.runs.space.decode([run.best])[0]
    what = "The curve that was found" if run.scales is not None else "The best curve so far"
    return [
        _picture(
            plot_curve(run.runs.space, run.best),
            "curve",
            what,
            f"Scale by layer: {', '.join(f'{scale:.3f}' for scale in scales)}.",
            f"{what}: the scale of each of n = {len(scales)} layers, and the {len(run.best)} control points. "
            "Positions are divided by the scale; 1 leaves a layer untouched.",
            command,
        )
    ]


def convergence_pictures(run: RunContents, command: str) -> list[Picture]:
    """Draw the convergence of the search; nothing before the first success.

    Args:
        run: The run.
        command: The command that draws these pictures as files.
    """
    trace = run.trace
    if not np.isfinite(trace.fitness).any():
        return []

    n = f"n = 1 search, {len(trace)} evaluations"
    return [
        *_fitness_pictures(run, command, n),
        _diversity_picture(run, command, n),
        _points_picture(run, command, n),
    ]


def _fitness_pictures(run: RunContents, command: str, n: str) -> list[Picture]:
    """Draw the best fitness so far and the median of the population against each cost that was counted."""
    trace, size = run.trace, run.runs.population_size
    medians = trace.population_median(size)

    # The axis begins where the best has left the first curves behind and the population is full. Every cost has the
    # same axis.
    low = np.nanmin([*trace.best[len(trace) // 4 :], medians[3 * len(trace) // 4]])
    reach = max(trace.best[-1] - low, 1e-9)

    costs: tuple[tuple[Axis, float], ...] = (
        ("evaluations", len(trace)),
        ("tokens", trace.tokens[-1]),
        ("seconds", trace.seconds[-1]),
    )
    pictures = []
    for against, cost in costs:
        if cost <= 0:
            continue

        figure = plot_searches(
            {"best so far": run.runs.traces}, run.runs.unit, against=against, population_size=size
        )
        _label(figure, ["best so far", f"median of the best {size} so far"])
        figure.axes[0].set_ylim(low - 0.05 * reach, trace.best[-1] + 0.05 * reach)
        pictures.append(
            _picture(
                figure,
                f"convergence-{against}",
                f"Fitness against {against}",
                f"The best fitness rises from {_first(trace.best):.4g} to {trace.best[-1]:.4g} {run.runs.unit} over "
                f"{cost:.6g} {against}; the median of the best {size} ends at "
                f"{medians[-1]:.4g}.",
                f"Best fitness so far and median of the best {size} evaluations so far, the population, against "
                f"{against}: {n}.",
                command,
            )
        )
    return pictures


def _diversity_picture(run: RunContents, command: str, n: str) -> Picture:
    """Draw how far the curves of the population are apart."""
    size = run.runs.population_size
    figure = plot_diversity({"population": run.runs.traces}, {"population": run.runs.space}, size)
    _label(figure, [])

    diversity = run.trace.diversity(run.runs.space, size)
    return _picture(
        figure,
        "diversity",
        "Diversity of the population",
        f"Mean distance of two curves of the population; at most {diversity.max():.3g}, at the end "
        f"{diversity[-1]:.3g}.",
        f"Diversity: how far two curves of the best {size} so far are apart, 0.1 is a tenth of the scale. {n}.",
        command,
    )


def _points_picture(run: RunContents, command: str, n: str) -> Picture:
    """Draw the control points that were tried."""
    trace = run.trace
    figure = plot_tried_points(run.runs.traces)
    _label(figure, ["points of the best curve"])

    n_dots = trace.points.shape[0] * trace.points.shape[1]
    if n_dots > _MOST_DOTS:
        for dots in figure.axes[0].collections:
            dots.set_rasterized(True)

    return _picture(
        figure,
        "control-points",
        "Control points that were tried",
        f"{n_dots} control points by layer and scale, coloured by the number of their evaluation, and those of the "
        "best evaluation joined by a line.",
        f"Control points that were tried, by layer and scale: {n}.",
        command,
    )


def drift_pictures(summary: dict[str, Any]) -> list[Picture]:
    """Draw the drift by layer, by arm, and against retrieval.

    Args:
        summary: The drift, see `lpes_evo.page._drift.load_drift`.
    """
    drift = {name: arm["drift"]["relative_l2"]["value"] for name, arm in summary["arms"].items()}
    medians = ", ".join(f"{name} {value:.2f}" for name, value in drift.items())
    n = f"n = {summary['n_inputs']} inputs, {len(summary['vectors'])} vectors of scales"

    drawn = [
        (
            plot_drift_by_layer(summary),
            "drift-by-layer",
            "Drift by layer",
            f"Drift of the output of each layer; means over layers in relative L2: {medians}.",
            f"How far the output of each layer moves: medians over vectors with 95 % bootstrap intervals. {n}.",
        ),
        (
            plot_drift_of_arms(summary),
            "drift-of-arms",
            "Drift of every vector of scales",
            f"Mean drift over layers of every vector; medians in relative L2: {medians}.",
            f"Mean drift over layers: dots are vectors, marks are medians with 95 % bootstrap intervals. {n}.",
        ),
    ]

    if summary["retrieval"] is not None:
        found = summary["retrieval"]["relative_l2"]["all"]["accuracy"]
        correlation = "none" if found is None else f"{found['value']:+.2f}"
        drawn.append(
            (
                plot_drift_retrieval(summary),
                "drift-retrieval",
                "Retrieval against drift",
                f"Log-probability and accuracy of every vector against its drift; rank correlation of accuracy and "
                f"drift: {correlation}.",
                f"Retrieval against drift, one mark for each vector of scales. {n}.",
            )
        )

    pictures = []
    for figure, name, title, description, caption in drawn:
        if figure.get_suptitle():
            figure.suptitle("")
        pictures.append(
            Picture(name, to_svg(figure, name, title, description), caption, summary["command"], is_wide=True)
        )
    return pictures


def _picture(
    figure: "Figure", name: str, title: str, description: str, caption: str, command: str
) -> Picture:
    """Make a picture of a figure with one panel, in the common size."""
    figure.set_size_inches(_SIZE)
    axes = figure.axes[0]
    axes.yaxis.label.set_fontsize(9)

    if axes.get_legend() is not None:
        # Above the picture the legend hides nothing. The table has what stands in brackets here.
        handles, labels = axes.get_legend_handles_labels()
        labels = [label.partition(" (")[0] for label in labels]
        axes.legend(
            handles, labels, frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=2, fontsize=8
        )
    return Picture(name, to_svg(figure, name, title, description), caption, command)


def _label(figure: "Figure", labels: list[str]) -> None:
    """Name the lines within the picture of one search, where there are no seeds to name and no room beside it."""
    axes = figure.axes[0]
    for legend in list(figure.legends):
        legend.remove()
    axes.set_title("")

    for line, label in zip(axes.lines, labels, strict=False):
        line.set_label(label)
    if labels:
        axes.legend()


def _first(values: Any) -> float:
    """Return the first finite number."""
    numbers: Iterator[float] = (float(value) for value in values if np.isfinite(value))
    return next(numbers)
