"""Consoles of the commands: results go to the standard output, errors to the standard error.

Whatever is printed appears as it is, since names and paths may hold what rich takes for markup or for an emoji, such as
the ``:100:`` of a task.
"""

import sys

from rich.console import Console

# A file or a pipe has no width of its own, and the tables need more than the 80 columns that rich guesses.
console = Console(
    width=None if sys.stdout is not None and sys.stdout.isatty() else 120,
    markup=False,
    emoji=False,
    highlight=False,
)
error_console = Console(stderr=True, markup=False, emoji=False, highlight=False)


def say(text: str, where: Console = console) -> None:
    """Print a line as it is, without markup, emoji, colour or line breaks.

    Args:
        text: The line.
        where: The console, which may be one of the caller.
    """
    where.print(text, highlight=False, soft_wrap=True, markup=False, emoji=False)
