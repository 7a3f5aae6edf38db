"""The commands ``lpes-evo drift`` and ``lpes-evo attention``."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lpes_evo._consoles import console, error_console
from lpes_evo.errors import ConfigError

if TYPE_CHECKING:
    from lpes_evo.analysis._request import Subject

ModelArgument = Annotated[str, typer.Argument(metavar="MODEL", help="Hub id, folder, .gguf file, or 'tiny'.")]
ScalesOption = Annotated[
    Path,
    typer.Option(
        "--scales", metavar="RUN_OR_FILE", help="Scales to analyse: a finished run or a scales.json."
    ),
]
TaskOption = Annotated[
    str | None,
    typer.Option("--task", help="Task whose held-out prompts are analysed; by default that of the scales."),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", help="YAML file with options of the task; by default that of the run."),
]
TextOption = Annotated[
    Path | None, typer.Option("--text", metavar="FILE", help="Text to analyse instead of a task.")
]
LengthOption = Annotated[
    int | None, typer.Option("--length", help="Tokens of each piece of the text; 512 by default.")
]
ExamplesOption = Annotated[
    int | None,
    typer.Option("--examples", min=1, help="Examples at each gold position (4), or pieces of the text (32)."),
]
SeedOption = Annotated[int | None, typer.Option("--seed", help="Seed of every draw.")]
DtypeOption = Annotated[str | None, typer.Option("--dtype", help="auto, float32, bfloat16 or float16.")]
DeviceOption = Annotated[str, typer.Option("--device", help="auto, cpu or cuda:N.")]
AttentionOption = Annotated[
    str | None, typer.Option("--attention", help="Attention backend, such as sdpa or eager.")
]
OutputOption = Annotated[
    Path | None, typer.Option("--output", help="New folder; runs/COMMAND-NAME-TIME by default.")
]


def drift(
    model: ModelArgument,
    scales: ScalesOption,
    task: TaskOption = None,
    config: ConfigOption = None,
    text: TextOption = None,
    length: LengthOption = None,
    examples: ExamplesOption = None,
    draws: Annotated[
        int, typer.Option("--draws", min=1, help="Shuffles, noisy curves and random vectors, each.")
    ] = 20,
    seed: SeedOption = None,
    dtype: DtypeOption = None,
    device: DeviceOption = "auto",
    attention: AttentionOption = None,
    batch_tokens: Annotated[
        int | None,
        typer.Option("--batch-tokens", min=1, help="Tokens of one forward pass; by default by the device."),
    ] = None,
    output: OutputOption = None,
) -> None:
    """Compare how far a curve of scales and its rivals move the hidden states of a model."""
    from lpes_evo.analysis._reports import report_drift
    from lpes_evo.analysis._tables import print_drift

    options = {
        "task": task,
        "config": config,
        "text": text,
        "length": length,
        "n_examples": examples,
        "seed": seed,
        "dtype": dtype,
        "device": device,
        "attention": attention,
        "batch_tokens": batch_tokens,
    }

    def work(subject: "Subject", folder: Path, on_input: Callable[[int], None]) -> dict[str, Any]:
        return report_drift(subject, folder, n_draws=draws, on_input=on_input)

    summary, folder = _analyse("drift", model, scales, options, output, work, n_passes=1)
    print_drift(summary, console)
    _print_files(folder)


def attention(
    model: ModelArgument,
    scales: ScalesOption,
    task: TaskOption = None,
    config: ConfigOption = None,
    text: TextOption = None,
    length: LengthOption = None,
    examples: ExamplesOption = None,
    seed: SeedOption = None,
    dtype: DtypeOption = None,
    device: DeviceOption = "auto",
    attention: AttentionOption = None,
    output: OutputOption = None,
) -> None:
    """Measure what the last token attends to, untouched and under scales, and the decay of each layer."""
    from lpes_evo.analysis._reports import report_attention
    from lpes_evo.analysis._tables import print_attention

    options = {
        "task": task,
        "config": config,
        "text": text,
        "length": length,
        "n_examples": examples,
        "seed": seed,
        "dtype": dtype,
        "device": device,
        "attention": attention,
    }

    def work(subject: "Subject", folder: Path, on_input: Callable[[int], None]) -> dict[str, Any]:
        return report_attention(subject, folder, on_input=on_input)

    summary, folder = _analyse("attention", model, scales, options, output, work, n_passes=2)
    print_attention(summary, console)
    _print_files(folder)


def add_analysis_commands(app: typer.Typer) -> None:
    """Add the commands of this module to a program."""
    app.command()(drift)
    app.command()(attention)


def _analyse(
    command: str,
    model: str,
    scales: Path,
    options: dict[str, Any],
    output: Path | None,
    work: "Callable[[Subject, Path, Callable[[int], None]], dict[str, Any]]",
    *,
    n_passes: int,
) -> tuple[dict[str, Any], Path]:
    """Prepare what is analysed, do the work in a new folder, and show how it goes."""
    from rich.progress import Progress

    from lpes_evo.analysis._reports import new_folder
    from lpes_evo.analysis._request import AnalysisRequest, prepare

    if output is not None and output.is_file():
        raise ConfigError(
            f"Expected a folder for the results, but {output} is a file. Name another --output."
        )
    subject = prepare(AnalysisRequest(model=model, scales=scales, **options))
    folder = new_folder(
        output or Path("runs") / f"{command}-{Path(model).stem[:60]}-{time.strftime('%Y%m%d-%H%M%S')}"
    )
    with Progress(console=error_console, transient=True) as progress:
        bar = progress.add_task(command, total=n_passes * len(subject.inputs))
        return work(subject, folder, lambda done: progress.update(bar, completed=done)), folder


def _print_files(folder: Path) -> None:
    for line in (f"Folder: {folder}", *(f"  {path}" for path in sorted(folder.iterdir()))):
        console.print(line, highlight=False, soft_wrap=True, markup=False)
