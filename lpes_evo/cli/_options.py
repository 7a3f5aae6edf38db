"""Options and arguments that several commands share, and what every command does with ``--output`` and ``--resume``."""

import shlex
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from lpes_evo.errors import ConfigError

RUNNING = "Where and how it runs"
"""Heading of options that shape no result."""

FILES = "Files"
"""Heading of options that name what is read and written."""

_MODEL = typer.Argument(metavar="MODEL", help="Hub id, folder, LoRA adapter, .gguf file, or 'tiny'.")
ModelArgument = Annotated[str, _MODEL]
OptionalModelArgument = Annotated[str | None, _MODEL]
DeviceOption = Annotated[
    str, typer.Option("--device", help="auto, cpu, cuda:N or mps.", rich_help_panel=RUNNING)
]
DevicesOption = Annotated[
    str,
    typer.Option(
        "--devices",
        help="One worker for each: auto (all CUDA GPUs), cuda:0,cuda:1, mps, cpu, cpu:2 (two CPU workers); groups for "
        "large models: cuda:0+cuda:1, auto:2; in-process for none.",
        rich_help_panel=RUNNING,
    ),
]
RayOption = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="Use every GPU of a Ray cluster: host:port, auto or local.",
        rich_help_panel=RUNNING,
    ),
]
GpusPerWorkerOption = Annotated[
    int | None,
    typer.Option(
        "--gpus-per-worker",
        metavar="N",
        help="GPUs of each worker on a Ray cluster, for models larger than one GPU.",
        rich_help_panel=RUNNING,
    ),
]
ReporterOption = Annotated[
    list[str] | None,
    typer.Option(
        "--reporter",
        metavar="FILE.py:CLASS",
        help="A Reporter of your own, beside ours; may be repeated.",
        rich_help_panel=RUNNING,
    ),
]
PresetOption = Annotated[
    str | None, typer.Option("--preset", help="Named settings to start from: demo, gradient, paper.")
]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", help="Settings of a run as YAML; the config.yaml of a run is such a file."),
]


def new_path(output: Path | None, name: str) -> Path:
    """Return where a command writes: the folder that the user has named, or a new one of that name under ``runs``."""
    return output if output is not None else Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"


def short_name(model: str) -> str:
    """Return a part of the name of a model that can be part of the name of a folder."""
    return Path(model).stem[:60]


def how_to_go_on(command: str, folder: Path) -> str:
    """Return the command that goes on with the work of a folder, as a shell takes it."""
    return f"lpes-evo {command} --resume {shlex.quote(str(folder))}"


def refuse_beside_resume(work: str, **options: Any) -> None:
    """Refuse options beside ``--resume`` that would change the configuration.

    Args:
        work: What is resumed, such as ``run``.
        **options: The options by name, arguments in capitals; ``None`` where one was not given.

    Raises:
        ConfigError: One was given; the message names all of them.
    """
    named = [name for name, value in options.items() if value is not None]
    given = [name if name.isupper() else f"--{name.replace('_', '-')}" for name in named]
    if given:
        article = "an" if work.startswith("e") else "a"
        raise ConfigError(
            f"Expected --resume alone, since {article} {work} keeps its configuration, but got {', '.join(given)} too. "
            f"Leave them out, or start a new {work}."
        )
