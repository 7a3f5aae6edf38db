"""The picture of an evaluation: score by gold position."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from lpes_evo.evals._results import ArmResult, TaskResult
from lpes_evo.reporting import new_panels
from lpes_evo.runs import STYLES, UNTOUCHED, series_styles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# More lines than these in one panel cannot be told apart.
_MOST_TOGETHER = 5
_SHIFT = 0.006
"""Distance of the points of two arms at one position, in positions."""


def plot_task_positions(task: TaskResult) -> "Figure":
    """Draw the score by gold position with 95 % intervals, one line for each arm.

    Up to five arms share a panel. With more, each arm shares a panel with the untouched model.

    Args:
        task: The result of a task with positions.

    Returns:
        The figure.
    """
    names = list(task.arms)
    groups: list[list[str]] = [names]
    if len(names) > _MOST_TOGETHER:
        groups = [[UNTOUCHED, name] for name in names if name != UNTOUCHED]

    labels = ("Position of the fact (0 beginning, 1 end)", f"{task.name}: {task.metric}")
    figure, panels = new_panels([labels] * len(groups))
    styles = series_styles(names)
    for axes, group in zip(panels, groups, strict=True):
        _draw(axes, task, group, styles)
        axes.sharey(panels[0])

    if len(groups) == 1:
        figure.set_size_inches(8.4, 4.0)
        figure.legend(frameon=False, fontsize=8, loc="outside right upper")
        panels[0].set_title(f"n = {_counts(task.arms.values())} for each point, 95 % intervals", fontsize=9)
    else:
        for axes in panels:
            axes.legend(frameon=False, fontsize=7, loc="upper center", bbox_to_anchor=(0.5, 1.22))
        figure.suptitle(f"n = {_counts(task.arms.values())} for each point, 95 % intervals", fontsize=9)
    return figure


def _draw(axes: "Axes", task: TaskResult, names: Sequence[str], styles: dict[str, tuple[str, str]]) -> None:
    """Draw the lines of some arms into one panel, a little beside each other."""
    for number, name in enumerate(names):
        arm = task.arms[name]
        color, marker = styles[name]
        label = STYLES[name][0] if name in STYLES else name

        score = np.array([row.score for row in arm.positions])
        reach = [score - [row.low for row in arm.positions], [row.high for row in arm.positions] - score]
        axes.errorbar(
            np.array([row.position for row in arm.positions]) + (number - (len(names) - 1) / 2) * _SHIFT,
            score,
            yerr=np.clip(reach, 0, None),
            color=color,
            marker=marker,
            capsize=2,
            label=f"{label} (all {arm.overall.score:.3f})",
        )


def _counts(arms: Iterable[ArmResult]) -> str:
    """Return the numbers of examples behind the points, as one number or as their range."""
    counts = [row.n for arm in arms for row in arm.positions]
    return str(min(counts)) if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
