"""Pictures of drift and attention, as matplotlib figures that a user can restyle."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from lpes_evo.analysis._arms import CONSTANT, CURVE, NOISE, RANDOM, RANDOM_CURVES, SHUFFLES
from lpes_evo.analysis._attention_mass import PARTS
from lpes_evo.analysis._decay import decay_curve
from lpes_evo.analysis._hidden_states import MEASURE_NAMES, MEASURES
from lpes_evo.reporting import PALETTE, difference_text, new_figure, new_panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ARMS = {
    CURVE: ("smooth curve", PALETTE["blue"], "o"),
    SHUFFLES: ("shuffled curve", PALETTE["orange"], "v"),
    NOISE: ("curve with noise", PALETTE["amber"], "D"),
    CONSTANT: ("constant mean", PALETTE["green"], "^"),
    RANDOM: ("random vector", PALETTE["purple"], "s"),
    RANDOM_CURVES: ("random curve", PALETTE["sky"], "P"),
}
STATES = {
    "untouched": ("untouched", PALETTE["grey"], "s"),
    "scaled": ("under scales", PALETTE["blue"], "o"),
}
"""Label, colour and marker of the model without and with the scales."""


def arm_label(name: str) -> str:
    """Return the name of an arm in pictures and tables."""
    return _ARMS[name][0] if name in _ARMS else name


def plot_drift_by_layer(summary: dict[str, Any]) -> "Figure":
    """Draw the drift by layer: the median of each arm with its 95 % interval, one panel for each measure.

    Args:
        summary: Result of `lpes_evo.analysis.summarise_drift`.

    Returns:
        The figure.
    """
    figure, panels = new_panels(
        [("Layer", f"Drift of its output ({MEASURE_NAMES[name]})") for name in MEASURES]
    )

    for axes, measure in zip(panels, MEASURES, strict=True):
        for name, arm in summary["arms"].items():
            label, color, marker = _style(name)
            rows = arm["layers"][measure]
            draw_band(
                axes, np.arange(len(rows)), rows, label=_counted(label, arm), color=color, marker=marker
            )
        axes.set_ylim(bottom=0)

    panels[0].legend(frameon=False, fontsize=8)
    figure.suptitle(
        f"{summary['n_inputs']} inputs; medians over vectors, 95 % bootstrap intervals", fontsize=9
    )
    return figure


def plot_drift_of_arms(summary: dict[str, Any]) -> "Figure":
    """Draw the drift of every vector and the median of every arm with its 95 % interval, one panel for each measure.

    Args:
        summary: Result of `lpes_evo.analysis.summarise_drift`.

    Returns:
        The figure.
    """
    figure, panels = new_panels(
        [(f"Mean drift over layers ({MEASURE_NAMES[name]})", "") for name in MEASURES]
    )
    names = list(summary["arms"])

    for axes, measure in zip(panels, MEASURES, strict=True):
        for row, name in enumerate(names):
            _, color, marker = _style(name)
            drift = np.array(
                [entry["drift"][measure] for entry in summary["vectors"] if entry["arm"] == name]
            )

            # The points of an arm are spread over its row in a fixed pattern, so that none hides another.
            offsets = 0.12 + 0.2 * ((np.arange(len(drift)) * 0.618) % 1)
            axes.plot(drift, row + offsets, ".", color=color, alpha=0.5, markersize=5)

            median = summary["arms"][name]["drift"][measure]
            axes.errorbar(
                median["value"],
                row,
                xerr=_reach([median]),
                color=color,
                marker=marker,
                capsize=3,
                linestyle="",
            )

        axes.set_yticks(range(len(names)), [arm_label(name) for name in names] if axes is panels[0] else [])
        axes.invert_yaxis()
        axes.set_xlim(left=0)

    figure.suptitle(
        f"{summary['n_inputs']} inputs; dots are vectors, marks medians with 95 % bootstrap intervals",
        fontsize=9,
    )
    return figure


def plot_drift_retrieval(summary: dict[str, Any], measure: str = "relative_l2") -> "Figure":
    """Draw retrieval against drift, one mark for each vector of scales, and one for the untouched model.

    The rank correlation is over the vectors, without the untouched model.

    Args:
        summary: Result of `lpes_evo.analysis.summarise_drift`, with scores.
        measure: One of `MEASURES`.

    Returns:
        The figure.
    """
    x_label = f"Mean drift over layers ({MEASURE_NAMES[measure]})"
    figure, panels = new_panels(
        [(x_label, "Log-probability of the answer (nats per token)"), (x_label, "Accuracy")]
    )

    for axes, score in zip(panels, ("log_probability", "accuracy"), strict=True):
        for name, arm in summary["arms"].items():
            label, color, marker = _style(name)
            chosen = [entry for entry in summary["vectors"] if entry["arm"] == name]
            axes.plot(
                [entry["drift"][measure] for entry in chosen],
                [entry[score] for entry in chosen],
                marker,
                color=color,
                alpha=0.8,
                # The one mark of the curve must not lie below those of its rivals.
                zorder=4 if name == CURVE else 3,
                label=_counted(label, arm),
            )

        if summary["untouched"] is not None:
            label, color, marker = STATES["untouched"]
            axes.plot([0], [summary["untouched"][score]["value"]], marker, color=color, label=label)

        found = summary["retrieval"][measure]["all"][score]
        axes.set_title(
            "no rank correlation: one of the two never changes"
            if found is None
            else f"Spearman {difference_text(found['value'], found['low'], found['high'], '.2f')}, n = {found['n']}",
            fontsize=9,
        )

    panels[0].legend(frameon=False, fontsize=8)
    return figure


def plot_attention(summary: dict[str, Any]) -> "Figure":
    """Draw the share of each part of the input by layer with 95 % intervals, untouched and under scales.

    Args:
        summary: Result of `lpes_evo.analysis.summarise_attention`.

    Returns:
        The figure.
    """
    layers = [number for number, row in enumerate(summary["layers"]) if row is not None]
    parts = [part for part in PARTS if any(summary["layers"][number][part] for number in layers)]
    figure, panels = new_panels([("Layer", f"Share of attention: {part}") for part in parts], n_columns=3)

    for axes, part in zip(panels, parts, strict=True):
        for key, (label, color, marker) in STATES.items():
            rows = [summary["layers"][number][part][key] for number in layers]
            draw_band(axes, np.array(layers), rows, label=label, color=color, marker=marker)
        axes.set_ylim(-0.03, 1.03)

    panels[0].legend(frameon=False)
    figure.suptitle(
        f"Attention of the last token, mean over heads; {summary['n_inputs']} inputs, 95 % bootstrap intervals",
        fontsize=9,
    )
    return figure


def plot_gold_attention(summary: dict[str, Any]) -> "Figure":
    """Draw the share of the gold span by gold position with 95 % intervals, in the layer that gives it most.

    Args:
        summary: Result of `lpes_evo.analysis.summarise_attention`, for inputs with gold spans.

    Returns:
        The figure.
    """
    figure, axes = new_figure(
        "Position of the fact (0 beginning, 1 end)",
        f"Share of attention on the gold span in layer {summary['gold_layer']}",
    )

    rows = summary["positions"]
    for key, (label, color, marker) in STATES.items():
        draw_band(
            axes,
            np.array([row["position"] for row in rows]),
            [row[key] for row in rows],
            label=label,
            color=color,
            marker=marker,
        )

    counts = sorted({row["n"] for row in rows})
    axes.set_ylim(-0.03, 1.03)
    axes.set_title(
        f"n = {' to '.join(map(str, counts))} for each point, 95 % bootstrap intervals", fontsize=9
    )
    axes.legend(frameon=False)
    return figure


def plot_decay(
    frequencies: Sequence[npt.NDArray[np.float64] | None], scales: npt.ArrayLike, n_positions: int
) -> "Figure":
    """Draw the long-term decay of every layer, before and after scaling.

    Args:
        frequencies: Result of `lpes_evo.analysis.layer_frequencies`, one entry for each layer.
        scales: Position divisor of each layer, ``(n_layers,)``.
        n_positions: Largest distance in positions.

    Returns:
        The figure. Layers of equal frequencies share the curve before scaling.
    """
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    figure, axes = new_figure("Relative distance (positions)", "Bound on the score (1 at distance 0)")
    distances = np.unique(np.linspace(0, max(1, n_positions), 400).round())
    colors = colormaps["cividis"]
    last = max(1, len(frequencies) - 1)

    drawn: list[npt.NDArray[np.float64]] = []
    for layer, (theta, scale) in enumerate(
        zip(frequencies, np.asarray(scales, dtype=np.float64), strict=True)
    ):
        if theta is None:
            continue
        if not any(np.array_equal(theta, other) for other in drawn):
            before = decay_curve(theta, distances)
            axes.plot(distances, before, color=PALETTE["orange"], linestyle="--", zorder=3)
            drawn.append(theta)
        after = decay_curve(theta, distances, float(scale))
        axes.plot(distances, after, color=colors(layer / last), linewidth=1.2)

    # The curves differ by layer, so that the legend names their two kinds.
    axes.plot([], [], color=PALETTE["orange"], linestyle="--", label="before scaling")
    axes.plot([], [], color=colors(0.5), label="after, by layer")
    figure.colorbar(ScalarMappable(Normalize(0, last), colors), ax=axes, label="Layer")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    return figure


def draw_band(
    axes: "Axes",
    x: npt.NDArray[Any],
    rows: Sequence[dict[str, float]],
    *,
    label: str,
    color: str,
    marker: str,
) -> None:
    """Draw values with their intervals as a line in a band.

    Args:
        axes: The panel.
        x: Place of each row, ``(n_rows,)``.
        rows: Mappings with ``value``, ``low`` and ``high``.
        label: Text of the legend.
        color: Colour of line and band.
        marker: Mark of each value.
    """
    value, low, high = (np.array([row[key] for row in rows]) for key in ("value", "low", "high"))
    axes.plot(x, value, color=color, marker=marker, markersize=4, label=label)
    axes.fill_between(x, low, high, color=color, alpha=0.2, linewidth=0)


def _style(name: str) -> tuple[str, str, str]:
    """Return label, colour and marker of an arm."""
    return _ARMS.get(name, (name, PALETTE["grey"], "X"))


def _counted(label: str, arm: dict[str, Any]) -> str:
    """Return a label with the number of vectors behind it."""
    return f"{label} ({arm['n_vectors']})" if arm["n_vectors"] > 1 else label


def _reach(rows: Sequence[dict[str, float]]) -> npt.NDArray[np.float64]:
    """Return the lengths of error bars below and above, ``(2, n)``."""
    value, low, high = (np.array([row[key] for row in rows]) for key in ("value", "low", "high"))

    # The median of a bootstrap need not lie within its own interval.
    lengths: npt.NDArray[np.float64] = np.clip(np.stack([value - low, high - value]), 0, None)
    return lengths
