"""Table: rows of text and numbers that can be shown in a terminal, as Markdown, as CSV and as HTML."""

import csv
import io
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from lpes_evo.reporting._consoles import console as standard_output, say

if TYPE_CHECKING:
    from markupsafe import Markup

Cell = str | int | float | None
"""The content of a cell; ``None`` is an empty cell."""


class Table:
    """Rows under headings, with a caption above and notes below.

    The first column and the columns of names are aligned to the left, all others to the right. In CSV, numbers keep
    all their digits; elsewhere a cell is shown as `str` shows it, so that figures for people are given as texts.

    Args:
        caption: The subject of the table, as a line above it.
        columns: The headings.
        rows: The first rows; more can be added.
        names: Headings of the columns that hold names, which may go over several lines in a narrow terminal.
        notes: What a reader must know about the figures, one line each.

    Attributes:
        caption: The subject of the table, as a line above it.
        columns: The headings.
        sections: The rows by section, each of as many cells as there are headings.
        notes: What a reader must know about the figures.
    """

    def __init__(
        self,
        caption: str,
        columns: Sequence[str],
        rows: Iterable[Sequence[Cell]] = (),
        *,
        names: Sequence[str] = (),
        notes: Sequence[str] = (),
    ) -> None:
        self.caption = caption
        self.columns = tuple(columns)
        self.sections: list[list[tuple[Cell, ...]]] = [[]]
        self.notes = tuple(notes)
        self._names = set(names)

        for row in rows:
            self.add_row(*row)

    @property
    def rows(self) -> list[tuple[Cell, ...]]:
        """The rows of all sections."""
        return [row for section in self.sections for row in section]

    def add_row(self, *cells: Cell) -> None:
        """Add a row to the last section.

        Args:
            *cells: One cell for each heading.

        Raises:
            ValueError: There are more or fewer cells than headings.
        """
        if len(cells) != len(self.columns):
            raise ValueError(
                f"Expected one cell for each of {len(self.columns)} headings, but got {len(cells)}: {cells!r:.80}."
            )
        self.sections[-1].append(cells)

    def add_section(self) -> None:
        """Begin another section, which a terminal divides from the one before by a line."""
        if self.sections[-1]:
            self.sections.append([])

    def print(self, where: Console = standard_output) -> None:
        """Print the table and, below it, its notes.

        Whatever the cells hold appears as it is, on any console. In a narrow terminal, cells of names go over several
        lines and all others stay whole.

        Args:
            where: The console.
        """
        where.print(self.to_rich())
        for note in self.notes:
            say(f"  {note}", where)

    def to_rich(self) -> RichTable:
        """Return the table, without its notes, for a console of rich."""
        table = RichTable(title=Text(self.caption), title_justify="left")

        for number, column in enumerate(self.columns):
            table.add_column(
                Text(column),
                justify="left" if self._is_left(number) else "right",
                no_wrap=column not in self._names,
                overflow="fold",
            )

        for section in self.sections:
            for row in section:
                table.add_row(*(Text(_text(cell)) for cell in row))
            table.add_section()
        return table

    def to_markdown(self, heading: str = "") -> str:
        """Return caption, table and notes as Markdown.

        Args:
            heading: Marks of a heading before the caption, such as ``##``; without them the caption is a paragraph.

        Returns:
            The text, without a line break at its end.
        """
        lines = [f"{heading} {self.caption}".strip(), ""] if self.caption else []

        rule = ["---" if self._is_left(number) else "---:" for number in range(len(self.columns))]
        lines += [_markdown_row(row) for row in (self.columns, rule, *self.rows)]

        if self.notes:
            lines += ["", *(f"- {note}" for note in self.notes)]
        return "\n".join(lines)

    def to_csv(self) -> str:
        """Return headings and rows as CSV."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(self.rows)
        return text.getvalue()

    def to_html(self, kind: str = "") -> "Markup":
        """Return the table as an HTML element that scrolls where it is too wide.

        Args:
            kind: Class of the element for a style sheet.

        Returns:
            The element, with all text escaped.
        """
        from markupsafe import Markup, escape

        caption = escape(self.caption)
        shape = Markup(' class="{}"').format(kind) if kind else ""

        # An empty heading names no column, and the first cell of a row names the row.
        head = [
            Markup('<th scope="col">{}</th>').format(column) if column else Markup("<td></td>")
            for column in self.columns
        ]
        body = [
            Markup('<tr><th scope="row">{}</th>{}</tr>').format(
                _text(first), Markup("").join(Markup("<td>{}</td>").format(_text(cell)) for cell in cells)
            )
            for first, *cells in self.rows
        ]

        lines = [
            Markup('<div class="scroll" tabindex="0" role="region" aria-label="{}">').format(caption),
            Markup("<table{}>").format(shape),
            Markup("<caption><span>{}.</span></caption>").format(caption),
            Markup("<thead><tr>"),
            *head,
            Markup("</tr></thead>"),
            Markup("<tbody>"),
            *body,
            Markup("</tbody>"),
            Markup("</table>"),
            *(Markup("<p>{}</p>").format(note) for note in self.notes),
            Markup("</div>"),
        ]
        return Markup("\n").join(lines)

    def _is_left(self, number: int) -> bool:
        """Return whether a column is aligned to the left."""
        return number == 0 or self.columns[number] in self._names


def _text(cell: Cell) -> str:
    return "" if cell is None else str(cell)


def _markdown_row(cells: Sequence[Cell]) -> str:
    return "| " + " | ".join(_text(cell).replace("|", "\\|") for cell in cells) + " |"
