"""Pictures of searches side by side, each returned as a matplotlib figure that can be restyled."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from lpes_evo.comparison._standings import Standing
from lpes_evo.comparison._traces import Axis, Band, Trace, band
from lpes_evo.operators import CurveSpace
from lpes_evo.reporting import PALETTE, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLORS = [PALETTE[name] for name in ("blue", "orange", "green", "purple", "amber", "sky", "grey")]
_DASHES = ["-", "--", "-.", ":"]
# Wide enough for a legend beside the lines.
_WITH_LEGEND = (7.6, 4.0)
_X_LABELS = {
    "evaluations": "Evaluations",
    "tokens": "Tokens forwarded",
    "seconds": "Time of the workers (seconds)",
}


def plot_searches(
    traces: Mapping[str, Sequence[Trace]],
    unit: str = "",
    *,
    against: Axis = "evaluations",
    population_size: int | None = None,
    title: str | None = None,
) -> "Figure":
    """Draw the best fitness so far against a cost: mean over seeds and its 95 % interval.

    Args:
        traces: The searches of each contestant by its label, one for each seed.
        unit: Unit of the fitness, for the label of the axis.
        against: ``evaluations``, ``tokens`` or ``seconds``.
        population_size: Number of the best evaluations whose median is drawn as well; ``None`` for no median.
        title: Text before the number of seeds.

    Returns:
        The figure.

    Raises:
        ConfigError: There are no searches, or they forwarded no tokens.
    """
    label = "Best fitness so far"
    figure, axes = new_figure(_X_LABELS[against], f"{label} ({unit})" if unit else label)
    figure.set_size_inches(_WITH_LEGEND)
    lowest, highest = [], []
    for number, (name, searches) in enumerate(traces.items()):
        best = band(searches, [trace.best for trace in searches], against)
        _draw(axes, best, number, name)

        # The first quarter is left out: the first constant curves would stretch the axis until all lines look alike.
        known = best.mean[np.isfinite(best.mean)]
        lowest.append(known[len(known) // 4 :].min())
        highest.append(best.high[-1])
        if population_size is not None:
            medians = [trace.population_median(population_size) for trace in searches]
            _draw(axes, band(searches, medians, against), number + 1, f"{name}, median of the population")

    reach = max(highest) - min(lowest)
    if np.isfinite(reach) and reach > 0:
        axes.set_ylim(min(lowest) - 0.25 * reach, max(highest) + 0.1 * reach)
    figure.legend(frameon=False, fontsize=8, loc="outside right upper")
    axes.set_title(_title(traces, title), fontsize=9)
    return figure


def plot_diversity(
    traces: Mapping[str, Sequence[Trace]], spaces: Mapping[str, CurveSpace], population_size: int
) -> "Figure":
    """Draw the diversity of the population, see `Trace.diversity`: mean over seeds and its 95 % interval.

    Args:
        traces: The searches of each contestant by its label, one for each seed.
        spaces: The curves that each contestant searched, by its label.
        population_size: The largest number of survivors.

    Returns:
        The figure.

    Raises:
        ConfigError: There are no searches.
        CurveError: The control points of a search do not fit its space.
    """
    figure, axes = new_figure("Evaluations", "Mean distance of two curves (RMS of log scale)")
    figure.set_size_inches(_WITH_LEGEND)
    for number, (name, searches) in enumerate(traces.items()):
        series = [trace.diversity(spaces[name], population_size) for trace in searches]
        _draw(axes, band(searches, series), number, name)
    axes.set_ylim(bottom=0)
    figure.legend(frameon=False, fontsize=8, loc="outside right upper")
    axes.set_title(_title(traces, f"the best {population_size} evaluations so far"), fontsize=9)
    return figure


def plot_tried_points(traces: Sequence[Trace], title: str = "") -> "Figure":
    """Draw all control points that were tried, coloured by evaluation, and those of the best curve of each search.

    Args:
        traces: The searches, for example one for each seed.
        title: Text before the number of searches.

    Returns:
        The figure.
    """
    figure, axes = new_figure("Layer", "Scale of a control point (position divisor)")
    points = np.concatenate([trace.points.reshape(-1, 2) for trace in traces])
    numbers = np.concatenate(
        [np.repeat(np.arange(1, len(trace) + 1), trace.points.shape[1]) for trace in traces]
    )

    dots = axes.scatter(points[:, 0], points[:, 1], c=numbers, s=8, cmap="cividis", alpha=0.6, linewidths=0)
    for number, trace in enumerate(traces):
        if np.isfinite(trace.fitness).any():
            best = trace.points[int(np.nanargmax(trace.fitness))]
            axes.plot(
                *best.T,
                "o-",
                color=PALETTE["orange"],
                linewidth=0.8,
                markersize=4,
                label=None if number else "best of each search",
            )

    figure.colorbar(dots, ax=axes, label="Evaluation")
    axes.legend(frameon=False, fontsize=8)
    text = f"{len(traces)} searches"
    axes.set_title(f"{title}; {text}" if title else text, fontsize=9)
    return figure


def plot_standings(
    standings: Sequence[Standing], reference: str, unit: str = "", *, title: str | None = None
) -> "Figure":
    """Draw the difference of each contestant to the reference, with 95 % paired bootstrap intervals over seeds.

    Args:
        standings: The standings, as `lpes_evo.comparison.standings` returns them.
        reference: The contestant that all others are compared with.
        unit: Unit of the fitness.
        title: Text before the number of seeds.

    Returns:
        The figure.
    """
    label = f"Best fitness minus that of {reference}, same seed"
    figure, axes = new_figure(f"{label} ({unit})" if unit else label, "")
    figure.set_size_inches(6.4, 1.2 + 0.3 * len(standings))

    colors = {"better": PALETTE["green"], "worse": PALETTE["orange"]}
    markers = {"better": "^", "worse": "v"}
    axes.axvline(0, color=PALETTE["grey"], linewidth=0.8, linestyle=":")
    for place, standing in enumerate(reversed(standings)):
        middle = standing.difference
        reach = [[middle - standing.difference_low], [standing.difference_high - middle]]
        axes.errorbar(
            [middle],
            [place],
            xerr=np.clip(reach, 0, None),
            color=colors.get(standing.verdict, PALETTE["grey"]),
            marker=markers.get(standing.verdict, "o"),
            capsize=2,
        )

    axes.set_yticks(range(len(standings)), [standing.name for standing in reversed(standings)])
    axes.locator_params(axis="x", nbins=6)
    axes.ticklabel_format(axis="x", scilimits=(-2, 4))
    n = standings[0].n
    text = f"{n} seeds; ^ better, v worse, o not told apart"
    axes.set_title(f"{title}; {text}" if title else text, fontsize=9)
    return figure


def _draw(axes: "Axes", line: Band, number: int, label: str) -> None:
    """Draw a line and its interval in the style of contestant ``number``."""
    color = _COLORS[number % len(_COLORS)]
    # Once the colours repeat, the dashes are others.
    dashes = _DASHES[(number + 2 * (number // len(_COLORS))) % len(_DASHES)]
    axes.plot(line.x, line.mean, dashes, color=color, label=label)
    axes.fill_between(line.x, line.low, line.high, color=color, alpha=0.15, linewidth=0)


def _title(traces: Mapping[str, Sequence[Trace]], title: str | None) -> str:
    """Return the title of a picture with the number of seeds."""
    counts = sorted({len(searches) for searches in traces.values()})
    n = " or ".join(str(count) for count in counts)
    text = f"n = {n} seeds; mean, 95 % bootstrap interval"
    return f"{title}; {text}" if title else text
