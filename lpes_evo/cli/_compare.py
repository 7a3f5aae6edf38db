"""The commands ``lpes-evo compare``, ``ablate`` and ``convergence``."""

import shlex
import time
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from lpes_evo.cli._process import told_how_to_go_on
from lpes_evo.errors import ConfigError
from lpes_evo.reporting import console, say
from lpes_evo.storage import make_folder

ArenasOption = Annotated[
    str | None,
    typer.Option(
        "--arenas", help="target, rough, brachistochrone, model, with commas between; all by default."
    ),
]
EvaluationsOption = Annotated[
    int | None, typer.Option("--evaluations", help="Evaluations of every search; 120 by default.")
]
SeedsOption = Annotated[
    int | None, typer.Option("--seeds", help="Searches of every contestant; 5 by default, at least 2.")
]
ModelOption = Annotated[
    str | None, typer.Option("--model", help="Of the arena 'model': hub id, folder, .gguf file, or 'tiny'.")
]
TaskOption = Annotated[str | None, typer.Option("--task", help="Of the arena 'model': needle, kv, recall.")]
PresetOption = Annotated[
    str | None, typer.Option("--preset", help="Settings of a run: demo, gradient, paper.")
]
ConfigOption = Annotated[
    Path | None, typer.Option("--config", help="Settings of a run as YAML, such as its config.yaml.")
]
DevicesOption = Annotated[
    str,
    typer.Option("--devices", help="As for search: auto, cuda:0, mps, cpu, cpu:2; in-process for no worker."),
]
OutputOption = Annotated[Path | None, typer.Option("--output", help="New folder; runs/KIND-TIME by default.")]
ResumeOption = Annotated[Path | None, typer.Option("--resume", help="Folder of a comparison to go on with.")]

# What the embedded model makes of prompts longer than it was trained on, on few examples; the search is as it comes.
_SMALL_RUN: dict[str, Any] = {
    "examples.n_per_position": 8,
    "report.n_per_position": 40,
    "report.positions": [0.0, 0.5, 1.0],
}


def compare(
    arenas: ArenasOption = None,
    optimisers: Annotated[
        str | None,
        typer.Option(
            "--optimisers",
            help="ga, plain-ga, steady-state, nsga2, random, cma-es, cma-es-wide, tpe, free-ga; all by default.",
        ),
    ] = None,
    evaluations: EvaluationsOption = None,
    seeds: SeedsOption = None,
    model: ModelOption = None,
    task: TaskOption = None,
    preset: PresetOption = None,
    config: ConfigOption = None,
    devices: DevicesOption = "auto",
    output: OutputOption = None,
    resume: ResumeOption = None,
) -> None:
    """Compare optimisers at equal evaluations over seeds: who is best, and by how much."""
    run = {"model": model, "task": task, "preset": preset, "config": config}
    options = {"arenas": arenas, "contestants": optimisers, "n_evaluations": evaluations, "n_seeds": seeds}
    _run("compare", options, run, devices, output, resume)


def ablate(
    arenas: ArenasOption = None,
    variants: Annotated[
        str | None,
        typer.Option(
            "--variants",
            help="Such as bezier-6,linear-4,amplitude-0.1,x-free, with commas between; all by default.",
        ),
    ] = None,
    evaluations: EvaluationsOption = None,
    seeds: SeedsOption = None,
    model: ModelOption = None,
    task: TaskOption = None,
    preset: PresetOption = None,
    config: ConfigOption = None,
    devices: DevicesOption = "auto",
    output: OutputOption = None,
    resume: ResumeOption = None,
) -> None:
    """Search with other numbers of control points, kinds of curve, amplitude bounds and rules for x."""
    run = {"model": model, "task": task, "preset": preset, "config": config}
    options = {"arenas": arenas, "contestants": variants, "n_evaluations": evaluations, "n_seeds": seeds}
    _run("ablate", options, run, devices, output, resume)


def convergence(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Run folders that differ only in their seed.")
    ],
    output: Annotated[
        Path | None, typer.Option("--output", help="Folder of the pictures; the first run by default.")
    ] = None,
) -> None:
    """Draw how the searches of runs converge: best and median fitness, diversity, control points tried."""
    from lpes_evo.comparison import draw_runs, read_runs

    found = read_runs(runs)
    for trace in found.traces:
        say(
            f"{trace.name}: best {trace.best[-1]:.6g} {found.unit}, {len(trace)} evaluations, "
            f"{trace.tokens[-1]:.0f} tokens, {trace.seconds[-1]:.1f} s of the workers"
        )
    folder = output if output is not None else runs[0]
    make_folder(folder)
    for file in draw_runs(found, folder):
        say(f"  {file}")


def _run(
    kind: Literal["compare", "ablate"],
    options: dict[str, Any],
    run: dict[str, Any],
    devices: str,
    output: Path | None,
    resume: Path | None,
) -> None:
    from lpes_evo.comparison import ComparisonConfig, ComparisonFolder, run_comparison, verdicts
    from lpes_evo.reporting import make_reporter

    given = {name: value for name, value in {**options, **run, "output": output}.items() if value is not None}
    if resume is not None:
        if given:
            raise ConfigError(
                f"Expected --resume alone, since a comparison keeps its configuration, but got {len(given)} other "
                "options too. Leave them out, or start a new comparison."
            )
        folder = ComparisonFolder(resume)
        settings = folder.load_config()
        if settings.kind != kind:
            raise ConfigError(
                f"Expected a folder of 'lpes-evo {kind}', but {resume} is one of 'lpes-evo {settings.kind}'. "
                "Use that command."
            )
    else:
        values = {name: given[name] for name in options if name in given}
        for name in ("arenas", "contestants"):
            if name in values:
                values[name] = tuple(part.strip() for part in values[name].split(","))
        settings = ComparisonConfig(kind=kind, run=_run_config(**run), **values)
        folder = ComparisonFolder(output or Path("runs") / f"{kind}-{time.strftime('%Y%m%d-%H%M%S')}")
        folder.create(settings)
    again = f"lpes-evo {kind} --resume {shlex.quote(str(folder.path))}"
    with told_how_to_go_on(f"Stopped. Finished work is safe; go on with: {again}"):
        results = run_comparison(settings, folder, devices=devices, reporter=make_reporter(console))
    _show(results)
    for line in verdicts(results):
        say(line)
    say(f"Tables, journals and pictures: {folder.path}")


def _run_config(model: str | None, task: str | None, preset: str | None, config: Path | None) -> Any:
    """Build the configuration of the arena ``model``."""
    from lpes_evo.config import RunConfig, load_config

    named = {"model.name": model, "task.name": task}
    overrides: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    if preset is not None or config is not None:
        return load_config(preset=preset, file=config, overrides=overrides)
    small = load_config(preset="demo", overrides={**_SMALL_RUN, **overrides})
    return RunConfig(**small.model_dump() | {"search": {}})


def _show(results: dict[str, Any]) -> None:
    from lpes_evo.comparison import held_out_table, standings_table

    for name in results["arenas"]:
        standings_table(results, name).print()
        held_out = held_out_table(results, name)
        if held_out is not None:
            held_out.print()


def add_comparison_commands(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    for command in (compare, ablate, convergence):
        app.command()(command)
