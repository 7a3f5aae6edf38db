"""The commands ``lpes-evo drift``, ``lpes-evo attention`` and ``lpes-evo sensitivity``."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lpes_evo.errors import ConfigError
from lpes_evo.reporting import console, error_console, say

if TYPE_CHECKING:
    from rich.console import Console

    from lpes_evo.analysis import AnalysisRequest

ModelArgument = Annotated[
    str, typer.Argument(metavar="MODEL", help="Hub id, folder, LoRA adapter, .gguf file, or 'tiny'.")
]
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
DeviceOption = Annotated[str, typer.Option("--device", help="auto, cpu, cuda:N or mps.")]
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
    from lpes_evo.analysis import AnalysisRequest, print_drift, report_drift

    request = AnalysisRequest(
        model=model,
        scales=scales,
        task=task,
        config=config,
        text=text,
        length=length,
        n_examples=examples,
        seed=seed,
        dtype=dtype,
        device=device,
        attention=attention,
        batch_tokens=batch_tokens,
    )
    _analyse("drift", request, output, partial(report_drift, n_draws=draws), print_drift, n_passes=1)


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
    from lpes_evo.analysis import AnalysisRequest, print_attention, report_attention

    request = AnalysisRequest(
        model=model,
        scales=scales,
        task=task,
        config=config,
        text=text,
        length=length,
        n_examples=examples,
        seed=seed,
        dtype=dtype,
        device=device,
        attention=attention,
    )
    _analyse("attention", request, output, report_attention, print_attention, n_passes=2)


def sensitivity(
    model: ModelArgument,
    scales: ScalesOption,
    task: TaskOption = None,
    config: ConfigOption = None,
    examples: ExamplesOption = None,
    seed: SeedOption = None,
    dtype: DtypeOption = None,
    device: DeviceOption = "auto",
    attention: AttentionOption = None,
    output: OutputOption = None,
) -> None:
    """Measure how much answers change with the scale of each layer, untouched and under scales."""
    from lpes_evo.analysis import AnalysisRequest, print_sensitivity, report_sensitivity

    request = AnalysisRequest(
        model=model,
        scales=scales,
        task=task,
        config=config,
        n_examples=examples,
        seed=seed,
        dtype=dtype,
        device=device,
        attention=attention,
    )
    _analyse("sensitivity", request, output, report_sensitivity, print_sensitivity, n_passes=2)


def add_analysis_commands(app: typer.Typer) -> None:
    """Add the commands of this module to a program."""
    app.command()(drift)
    app.command()(attention)
    app.command()(sensitivity)


def _analyse(
    command: str,
    request: "AnalysisRequest",
    output: Path | None,
    report: Callable[..., dict[str, Any]],
    show: "Callable[[dict[str, Any], Console], None]",
    *,
    n_passes: int,
) -> None:
    """Prepare what is analysed, write the report in a new folder with a bar of how it goes, and print it."""
    from rich.progress import Progress

    from lpes_evo.analysis import new_folder, prepare

    if output is not None and output.is_file():
        raise ConfigError(
            f"Expected a folder for the results, but {output} is a file. Name another --output."
        )
    subject = prepare(request)
    name = f"{command}-{Path(request.model).stem[:60]}-{time.strftime('%Y%m%d-%H%M%S')}"
    with (
        new_folder(output or Path("runs") / name) as folder,
        Progress(console=error_console, transient=True) as progress,
    ):
        bar = progress.add_task(command, total=n_passes * len(subject.inputs))
        summary = report(subject, folder, on_input=lambda done: progress.update(bar, completed=done))
    show(summary, console)
    for line in (f"Folder: {folder}", *(f"  {path}" for path in sorted(folder.glob("[!.]*")))):
        say(line)
