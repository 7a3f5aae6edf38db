"""Where the commands print: results to the standard output, errors beside it."""

import sys

from rich.console import Console

# A file or pipe has no width of its own; the tables need more than rich's guess of 80 columns.
console = Console(width=None if sys.stdout.isatty() else 120)
error_console = Console(stderr=True)
