"""The command line ``lpes-evo``: commands of the search, and those of other modules.

Exit codes: 0 done, 1 a failed run (too many failed evaluations, a full disk) or a lost output of a command that only
prints, 2 bad input, and 128 plus the number of the signal that stopped the command: 129 SIGHUP, 130 SIGINT, 138 SIGUSR1
(on Linux), 143 SIGTERM. Whatever ends a search, its finished evaluations are in the run folder, and ``--resume`` goes
on.
"""

import logging
import os
import shlex
import sys
import time
import warnings
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from lpes_evo.cli._analysis import add_analysis_commands
from lpes_evo.cli._bench import bench
from lpes_evo.cli._compare import add_comparison_commands
from lpes_evo.cli._eval import evaluate
from lpes_evo.cli._methods import train_moice
from lpes_evo.cli._process import (
    INTERRUPTED,
    lost_output,
    secure_streams,
    stopping_signals,
    told_how_to_go_on,
)
from lpes_evo.cli._report import report
from lpes_evo.cli._score import score
from lpes_evo.errors import ConfigError, LpesError
from lpes_evo.reporting import console, error_console, say

app = typer.Typer(
    name="lpes-evo",
    help="Search and judge layer-specific rotary-position scales for language models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
# Their results are files; what they print tells of the work.
_WRITES_FILES = frozenset(
    {
        "search",
        "eval",
        "report",
        "train-moice",
        "bench",
        "compare",
        "ablate",
        "convergence",
        "drift",
        "attention",
    }
    | {"sensitivity"}
)

ModelOption = Annotated[
    str | None, typer.Option("--model", help="Hub id, folder, LoRA adapter, .gguf file, or 'tiny'.")
]
TaskOption = Annotated[str | None, typer.Option("--task", help="Name of the task: needle, kv, recall.")]
PresetOption = Annotated[
    str | None, typer.Option("--preset", help="Named settings to start from: demo, gradient, paper.")
]
ConfigOption = Annotated[
    Path | None, typer.Option("--config", help="YAML file; the config.yaml of a run is one.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="Any setting by dotted key, such as search.generations=20; may be repeated."),
]
SeedOption = Annotated[int | None, typer.Option("--seed", help="Seed of examples, search and shuffles.")]
DevicesOption = Annotated[
    str,
    typer.Option(
        "--devices",
        help="One worker for each: auto (all CUDA GPUs), cuda:0,cuda:1, mps, cpu, cpu:2 (two CPU workers); in-process "
        "for none.",
    ),
]
RayOption = Annotated[
    str | None,
    typer.Option(
        "--ray", metavar="ADDRESS", help="Use every GPU of a Ray cluster: host:port, auto or local."
    ),
]


@app.command()
def search(
    model: ModelOption = None,
    task: TaskOption = None,
    preset: PresetOption = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    seed: SeedOption = None,
    devices: DevicesOption = "auto",
    ray: RayOption = None,
    evaluation_limit: Annotated[
        float | None,
        typer.Option(
            "--evaluation-limit",
            metavar="SECONDS",
            help="When a forward pass counts as hung; by default 20 times the longest evaluation seen.",
        ),
    ] = None,
    initial: Annotated[
        list[Path] | None,
        typer.Option(
            "--initial",
            metavar="RUN_OR_FILE",
            help="Scales to start from, stretched to the model's depth; may be repeated.",
        ),
    ] = None,
    reporter: Annotated[
        list[str] | None,
        typer.Option(
            "--reporter",
            metavar="FILE.py:CLASS",
            help="A Reporter of your own, beside ours; may be repeated.",
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", help="New run folder; runs/NAME-TIME by default.")
    ] = None,
    resume: Annotated[Path | None, typer.Option("--resume", help="Run folder to go on with.")] = None,
) -> None:
    """Search the scales of a model for a task, then measure them on held-out examples."""
    from lpes_evo.reporting import make_reporter
    from lpes_evo.runs import RunFolder, run_search

    # A reporter of the user that cannot be made is told before any work.
    reporters = make_reporter(console, reporter or ())
    if resume is not None:
        given = [
            name
            for name, value in (
                ("--model", model),
                ("--task", task),
                ("--preset", preset),
                ("--config", config),
                ("--set", settings),
                ("--seed", seed),
                ("--initial", initial),
                ("--output", output),
            )
            if value is not None
        ]
        if given:
            raise ConfigError(
                f"Expected --resume alone, since a run keeps its configuration, but got {', '.join(given)} too. "
                "Leave them out, or start a new run."
            )
        folder = RunFolder(resume)
        run_config = folder.load_config()
    else:
        run_config = _load(model, task, preset, config, settings, seed, initial)
        name = preset or f"{Path(run_config.model.name).stem}-{run_config.task.name}"
        folder = RunFolder(output or Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}")
        folder.create(run_config)
    again = f"lpes-evo search --resume {shlex.quote(str(folder.path))}"
    with told_how_to_go_on(f"Stopped. Finished work is safe; go on with: {again}"):
        run_search(
            run_config,
            folder,
            devices=devices,
            ray_address=ray,
            work_limit=evaluation_limit,
            reporter=reporters,
        )
    _show(folder.path)


@app.command()
def show(run_folder: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.")]) -> None:
    """Print the result of a run and name its pictures."""
    _show(run_folder)


@app.command()
def estimate(
    model: ModelOption = None,
    task: TaskOption = None,
    preset: PresetOption = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    seed: SeedOption = None,
    devices: DevicesOption = "auto",
    ray: RayOption = None,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Pilot evaluations to time.")] = 2,
) -> None:
    """Time a pilot of a search and predict what the whole run will take."""
    from lpes_evo.runs import estimate_run

    run_config = _load(model, task, preset, config, settings, seed)
    for line in estimate_run(run_config, devices=devices, ray_address=ray, repeats=repeats).lines():
        say(line)


app.command()(report)
app.command("eval")(evaluate)
app.command()(score)
app.command()(train_moice)
app.command()(bench)
add_comparison_commands(app)
add_analysis_commands(app)


def _load(
    model: str | None,
    task: str | None,
    preset: str | None,
    config: Path | None,
    settings: list[str] | None,
    seed: int | None,
    initial: list[Path] | None = None,
) -> Any:
    """Build the configuration that the options describe."""
    from lpes_evo.config import StartCurve, load_config

    named = {"model.name": model, "task.name": task, "seed": seed}
    overrides: dict[str, Any] = {key: value for key, value in named.items() if value is not None}
    if initial:
        overrides["initial"] = [StartCurve.from_scales(path).model_dump() for path in initial]
    for setting in settings or []:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise ConfigError(
                f"Expected --set key=value, such as search.generations=20, but got {setting!r}."
            )
        try:
            overrides[key] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise ConfigError(f"Expected --set {key} to be a YAML value, but got {value!r}.") from error
    return load_config(preset=preset, file=config, overrides=overrides)


def _show(path: Path) -> None:
    from lpes_evo.runs import show_run

    show_run(path, console)


def _print_version(wanted: bool) -> None:
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
        is_loss = command not in _WRITES_FILES
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
    expected = isinstance(error, LpesError)
    line = (
        f"Error: {text}"
        if expected
        else f"Error: {type(error).__name__}: {text} (unexpected; --debug shows where)"
    )
    error_console.print(line, style="red", soft_wrap=True)
    return error.exit_code if isinstance(error, LpesError) else 1
