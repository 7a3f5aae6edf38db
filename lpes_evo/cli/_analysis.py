"""The commands ``lpes-evo drift``, ``lpes-evo attention`` and ``lpes-evo sensitivity``."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lpes_evo import analysis
from lpes_evo.cli._options import FILES, ModelArgument, new_path, short_name
from lpes_evo.cli._settings import SettingOptions, add_command
from lpes_evo.errors import ConfigError
from lpes_evo.reporting import console, error_console, say

if TYPE_CHECKING:
    from rich.console import Console

OutputOption = Annotated[
    Path | None,
    typer.Option("--output", help="New folder; runs/COMMAND-NAME-TIME by default.", rich_help_panel=FILES),
]


def _analysis_options(*omit: str) -> SettingOptions:
    """Return the options of an analysis, without some of them."""
    return SettingOptions(
        lambda: analysis.AnalysisRequest,
        "What is analysed",
        omit=("model", *omit),
        names={"n_examples": "examples"},
        extra={"scales": {"metavar": "RUN_OR_FILE"}},
    )


DRIFT = _analysis_options()
ATTENTION = _analysis_options("batch_tokens")
SENSITIVITY = _analysis_options("batch_tokens", "text", "length")


def add_analysis_commands(app: typer.Typer) -> None:
    """Add the commands of this module to the command line."""
    add_command(app, drift, DRIFT)
    add_command(app, attention, ATTENTION)
    add_command(app, sensitivity, SENSITIVITY)


def drift(
    model: ModelArgument,
    draws: Annotated[
        int, typer.Option("--draws", min=1, help="Shuffles, noisy curves and random vectors, each.")
    ] = 20,
    output: OutputOption = None,
    **given: Any,
) -> None:
    """Compare how far a curve of scales and its rivals move the hidden states of a model."""
    from lpes_evo.analysis import print_drift, report_drift

    report = partial(report_drift, n_draws=draws)
    _analyse("drift", model, DRIFT.chosen(given), output, report, print_drift, n_passes=1)


def attention(model: ModelArgument, output: OutputOption = None, **given: Any) -> None:
    """Measure what the last token attends to, untouched and under scales, and the decay of each layer."""
    from lpes_evo.analysis import print_attention, report_attention

    chosen = ATTENTION.chosen(given)
    _analyse("attention", model, chosen, output, report_attention, print_attention, n_passes=2)


def sensitivity(model: ModelArgument, output: OutputOption = None, **given: Any) -> None:
    """Measure how much answers change with the scale of each layer, untouched and under scales."""
    from lpes_evo.analysis import print_sensitivity, report_sensitivity

    chosen = SENSITIVITY.chosen(given)
    _analyse("sensitivity", model, chosen, output, report_sensitivity, print_sensitivity, n_passes=2)


def _analyse(
    command: str,
    model: str,
    chosen: dict[str, Any],
    output: Path | None,
    report: Callable[..., dict[str, Any]],
    show: "Callable[[dict[str, Any], Console], None]",
    *,
    n_passes: int,
) -> None:
    """Prepare what is analysed, write the report into a new folder behind a progress bar, and print it."""
    from rich.progress import Progress

    from lpes_evo.analysis import AnalysisRequest, new_folder, prepare

    if output is not None and output.is_file():
        raise ConfigError(
            f"Expected a folder for the results, but {output} is a file. Name another --output."
        )
    subject = prepare(AnalysisRequest(model=model, **chosen))

    with (
        new_folder(new_path(output, f"{command}-{short_name(model)}")) as folder,
        Progress(console=error_console, transient=True) as progress,
    ):
        bar = progress.add_task(command, total=n_passes * len(subject.inputs))
        summary = report(subject, folder, on_input=lambda done: progress.update(bar, completed=done))

    show(summary, console)
    for line in (f"Folder: {folder}", *(f"  {path}" for path in sorted(folder.glob("[!.]*")))):
        say(line)
