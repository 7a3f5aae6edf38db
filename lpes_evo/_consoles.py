"""Where the commands print: results to the standard output, errors beside it."""

import sys

from rich.console import Console

# A file or pipe has no width of its own; the tables need more than rich's guess of 80 columns.
console = Console(width=None if sys.stdout.isatty() else 120)
error_console = Console(stderr=True)


def say(text: str, where: Console = console) -> None:
    """Print a line as it is: nothing in it is markup, is coloured, or is wrapped.

    Args:
        text: The line.
        where: The console.
    """
    where.print(text, highlight=False, soft_wrap=True, markup=False)
