"""Consoles and tables of the commands: results go to the standard output, errors beside it.

Whatever is printed appears as it is: names and paths may hold what rich takes for markup or for an emoji, such as the
``:100:`` of a task.
"""

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

# A file or pipe has no width of its own; the tables need more than rich's guess of 80 columns.
console = Console(
    width=None if sys.stdout is not None and sys.stdout.isatty() else 120,
    markup=False,
    emoji=False,
    highlight=False,
)
error_console = Console(stderr=True, markup=False, emoji=False, highlight=False)


def say(text: str, where: Console = console) -> None:
    """Print a line as it is: nothing in it is markup, is an emoji, is coloured, or is wrapped.

    Args:
        text: The line.
        where: The console, which may be one of the user.
    """
    where.print(text, highlight=False, soft_wrap=True, markup=False, emoji=False)


class PlainTable(Table):
    """A table whose title, headings and cells are shown as they are, on any console.

    Where the terminal is narrow, the cells of ``names`` go over several lines, and all others stay whole.

    Args:
        title: The line above the table.
        columns: The headings.
        names: Headings of the columns that hold names; they are justified to the left, as the first column is.
    """

    def __init__(self, title: str, columns: Sequence[str], names: Sequence[str] = ()) -> None:
        super().__init__(title=Text(title), title_justify="left")

        for number, column in enumerate(columns):
            is_name = column in names
            self.add_column(
                Text(column),
                justify="left" if is_name or number == 0 else "right",
                no_wrap=not is_name,
                overflow="fold",
            )

    def add_cells(self, *cells: str) -> None:
        """Add a row of texts."""
        self.add_row(*map(Text, cells))
