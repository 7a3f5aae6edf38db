"""Style of all pictures: palette, figures, panels, and files."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lpes_evo.storage import write_atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# The palette of Okabe and Ito, which readers with any colour vision can tell apart.
PALETTE = {
    "blue": "#0072B2",
    "orange": "#D55E00",
    "green": "#009E73",
    "grey": "#8C8C8C",
    "purple": "#CC79A7",
    "amber": "#E69F00",
    "sky": "#56B4E9",
    "yellow": "#F0E442",
    "black": "#000000",
}
"""Colours by name, the same in every picture."""


def save_figure(figure: "Figure", path: Path) -> None:
    """Write a figure in the format that the ending of the file names.

    Args:
        figure: The figure.
        path: The file.

    Raises:
        StorageError: The file cannot be written.
    """
    import io

    buffer = io.BytesIO()
    figure.savefig(buffer, format=path.suffix.lstrip("."), dpi=150)
    write_atomic(path, buffer.getvalue())


def save_pictures(figure: "Figure", path: Path) -> list[Path]:
    """Write a figure as PNG and as SVG.

    Args:
        figure: The figure.
        path: The file, without its ending.

    Returns:
        The two files.

    Raises:
        StorageError: A file cannot be written.
    """
    files = [path.with_name(f"{path.name}{ending}") for ending in (".png", ".svg")]
    for file in files:
        save_figure(figure, file)
    return files


def new_figure(x_label: str, y_label: str) -> "tuple[Figure, Axes]":
    """Return an empty figure in the common style, which belongs to no window system.

    Args:
        x_label: Label of the x axis.
        y_label: Label of the y axis.

    Returns:
        The figure and its only panel.
    """
    figure, (axes,) = new_panels([(x_label, y_label)])
    return figure, axes


def new_panels(labels: Sequence[tuple[str, str]], n_columns: int = 3) -> "tuple[Figure, list[Axes]]":
    """Return a figure of empty panels in the common style.

    Args:
        labels: Labels of the x and the y axis of each panel.
        n_columns: Largest number of panels in a row.

    Returns:
        The figure and its panels, row by row.
    """
    from matplotlib.figure import Figure

    n_columns = min(n_columns, len(labels))
    n_rows = -(-len(labels) // n_columns)
    size = (6.4 if n_columns == 1 else 4.0 * n_columns, 4.0 if n_rows == 1 else 3.4 * n_rows)

    figure = Figure(figsize=size, layout="constrained")
    panels = [figure.add_subplot(n_rows, n_columns, number + 1) for number in range(len(labels))]

    for axes, (x_label, y_label) in zip(panels, labels, strict=True):
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        axes.spines[["top", "right"]].set_visible(False)
    return figure, panels
