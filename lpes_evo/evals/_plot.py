"""The picture of an evaluation: score by gold position."""

from typing import TYPE_CHECKING

import numpy as np

from lpes_evo.evals._results import TaskResult
from lpes_evo.plots import STYLES, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# What remains of Okabe and Ito's palette, for the arms that come after those with a color of their own.
_MORE = (
    ("#E69F00", "^"),
    ("#56B4E9", "v"),
    ("#CC79A7", "D"),
    ("#009E73", "P"),
    ("#F0E442", "X"),
    ("#000000", "*"),
)


def plot_task_positions(task: TaskResult) -> "Figure":
    """Draw the score by gold position with 95 % intervals, one line for each arm.

    Args:
        task: The result of a task with positions.

    Returns:
        The figure.
    """
    figure, axes = new_figure("Position of the fact (0 beginning, 1 end)", f"{task.name}: {task.metric}")
    width = 0.006
    more = iter(_MORE * (len(task.arms) // len(_MORE) + 1))
    for shift, (name, arm) in enumerate(task.arms.items()):
        label, color, marker = STYLES.get(name) or (name, *next(more))
        score = np.array([row.score for row in arm.positions])
        reach = [score - [row.low for row in arm.positions], [row.high for row in arm.positions] - score]
        axes.errorbar(
            np.array([row.position for row in arm.positions]) + (shift - (len(task.arms) - 1) / 2) * width,
            score,
            yerr=np.clip(reach, 0, None),
            color=color,
            marker=marker,
            capsize=2,
            label=f"{label} (all {arm.overall.score:.3f})",
        )
    counts = [row.n for arm in task.arms.values() for row in arm.positions]
    n = str(min(counts)) if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    axes.set_title(f"n = {n} for each point, 95 % intervals", fontsize=9)
    axes.legend(frameon=False, loc="best")
    return figure
