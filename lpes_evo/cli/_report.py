"""The command ``lpes-evo report``."""

from pathlib import Path
from typing import Annotated

import typer

from lpes_evo.errors import ConfigError
from lpes_evo.reporting import error_console, say


def report(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder, finished or not.")],
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FILE", help="The page; RUN/report.html by default.")
    ] = None,
    drift: Annotated[
        Path | None,
        typer.Option(
            "--drift",
            metavar="FOLDER",
            help="Folder of 'lpes-evo drift' on this run; measured on the run's model by default.",
        ),
    ] = None,
    no_drift: Annotated[bool, typer.Option("--no-drift", help="Leave representational drift out.")] = False,
    device: Annotated[
        str,
        typer.Option("--device", help="Where drift is measured: auto, cpu, cuda:N, mps or cuda:0+cuda:1."),
    ] = "auto",
) -> None:
    """Write a run as one HTML page with its pictures inside, which opens without a network."""
    from rich.progress import Progress

    from lpes_evo.page import write_page

    if no_drift and drift is not None:
        raise ConfigError("Expected --drift or --no-drift, but got both. Leave one out.")

    with Progress(console=error_console, transient=True) as progress:
        bar = progress.add_task("drift", total=None, visible=False)
        page = write_page(
            run_folder,
            output,
            drift=None if no_drift else drift or "measure",
            device=device,
            on_input=lambda done, total: progress.update(bar, completed=done, total=total, visible=True),
        )

    for line in page.missing:
        say(line)
    say(f"Report: {page.path}")
