"""main: the command line ``lpes-evo``, its exit codes, and the one line that a user reads of an error.

Exit codes: 0 done, 1 a failed run (too many failed evaluations, a full disk) or a lost output of a command that only
prints, 2 bad input, and 128 plus the number of the signal that stopped the command: 129 SIGHUP, 130 SIGINT, 138 SIGUSR1
(on Linux), 143 SIGTERM. Whatever ends a search, its finished evaluations are in the run folder, and ``--resume`` goes
on.
"""

import logging
import os
import sys
import warnings
from importlib import metadata
from typing import Annotated

import typer

from lpes_evo.cli._analysis import add_analysis_commands
from lpes_evo.cli._bench import add_bench_command
from lpes_evo.cli._compare import add_comparison_commands
from lpes_evo.cli._eval import add_eval_command
from lpes_evo.cli._export import add_export_commands
from lpes_evo.cli._methods import add_training_command
from lpes_evo.cli._process import INTERRUPTED, lost_output, secure_streams, stopping_signals
from lpes_evo.cli._report import report
from lpes_evo.cli._score import add_score_command
from lpes_evo.cli._search import add_search_commands
from lpes_evo.errors import LpesError
from lpes_evo.reporting import error_console, say

app = typer.Typer(
    name="lpes-evo",
    help="Search and judge layer-specific rotary-position scales for language models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

_ONLY_PRINTS = frozenset({"", "show", "estimate", "score", "vllm-args"})
"""Commands without a file as their result, and ``lpes-evo`` by itself: where the output is lost, so is the result."""

add_search_commands(app)
app.command()(report)
add_eval_command(app)
add_score_command(app)
add_training_command(app)
add_bench_command(app)
add_comparison_commands(app)
add_analysis_commands(app)
add_export_commands(app)


def _print_version(wanted: bool) -> None:
    """Print the version and end, where it was asked for."""
    if wanted:
        say(metadata.version("lpes-evo"))
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Search and judge layer-specific rotary-position scales for language models."""
    context.obj = debug
    logging.basicConfig(level=logging.DEBUG if debug else logging.ERROR)

    if not debug:
        # Other libraries' advice and bars would bury our own lines.
        warnings.simplefilter("ignore")
        for name, value in (
            ("TRANSFORMERS_VERBOSITY", "error"),
            ("HF_HUB_VERBOSITY", "error"),
            ("TQDM_DISABLE", "1"),
            ("PYTHONWARNINGS", "ignore"),
        ):
            os.environ.setdefault(name, value)


def main() -> None:
    """Run the command line and exit with its code."""
    secure_streams()
    with stopping_signals() as received:
        code = _run()
        stopped_by = received()
    if stopped_by is not None:
        # Typer ends every interrupt with the code of SIGINT.
        sys.exit(128 + stopped_by)

    reason = lost_output()
    if code == 0 and reason is not None:
        command = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
        is_loss = command in _ONLY_PRINTS
        prefix = "Error: " if is_loss else ""
        say(f"{prefix}Expected to print the result, but the standard output failed: {reason}.", error_console)
        code = int(is_loss)
    sys.exit(code)


def _run() -> int:
    """Run the command line and return its exit code."""
    try:
        app()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BaseException as error:  # the code of a user's task can raise anything
        if "--debug" in sys.argv[1:]:
            raise
        return _say(error)
    return 0


def _say(error: BaseException) -> int:
    """Print one line for an error and return the exit code."""
    text = " ".join(str(error).split())
    if isinstance(error, LpesError):
        line, code = f"Error: {text}", error.exit_code
    else:
        line, code = f"Error: {type(error).__name__}: {text} (unexpected; --debug shows where)", 1

    error_console.print(line, style="red", soft_wrap=True)
    return code
