"""The commands ``lpes-evo compare``, ``ablate`` and ``convergence``."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from lpes_evo import comparison, config as settings_package
from lpes_evo.cli._options import (
    FILES,
    ConfigOption,
    DevicesOption,
    PresetOption,
    how_to_go_on,
    new_path,
    refuse_beside_resume,
)
from lpes_evo.cli._process import told_how_to_go_on
from lpes_evo.cli._settings import SettingOptions, add_command
from lpes_evo.errors import ConfigError
from lpes_evo.reporting import console, say
from lpes_evo.storage import make_folder

ARENA_RUN = SettingOptions(
    lambda: settings_package.RunConfig,
    "The arena 'model'",
    only=("model.name", "task.name"),
    show_defaults=False,
)

OutputOption = Annotated[
    Path | None,
    typer.Option("--output", help="New folder; runs/KIND-TIME by default.", rich_help_panel=FILES),
]
ResumeOption = Annotated[
    Path | None,
    typer.Option("--resume", help="Folder of a comparison to go on with.", rich_help_panel=FILES),
]

# What the embedded model makes of prompts longer than it was trained on, on few examples; the search is as it comes.
_SMALL_RUN: dict[str, Any] = {
    "examples.n_per_position": 8,
    "report.n_per_position": 40,
    "report.positions": [0.0, 0.5, 1.0],
}


def _comparison_options(contestants: str) -> SettingOptions:
    """Return the options of a comparison, with the name that its contestants have there."""
    return SettingOptions(
        lambda: comparison.ComparisonConfig,
        "What is compared",
        only=("arenas", "contestants", "n_evaluations", "n_seeds"),
        names={"contestants": contestants, "n_evaluations": "evaluations", "n_seeds": "seeds"},
    )


OPTIMISERS = _comparison_options("optimisers")
VARIANTS = _comparison_options("variants")


def add_comparison_commands(app: typer.Typer) -> None:
    """Add the commands of this module to the command line."""
    add_command(app, compare, OPTIMISERS, ARENA_RUN)
    add_command(app, ablate, VARIANTS, ARENA_RUN)
    app.command()(convergence)


def compare(
    preset: PresetOption = None,
    config: ConfigOption = None,
    devices: DevicesOption = "auto",
    output: OutputOption = None,
    resume: ResumeOption = None,
    **given: Any,
) -> None:
    """Compare optimisers at equal evaluations over seeds: who is best, and by how much."""
    _run("compare", OPTIMISERS, given, preset, config, devices, output, resume)


def ablate(
    preset: PresetOption = None,
    config: ConfigOption = None,
    devices: DevicesOption = "auto",
    output: OutputOption = None,
    resume: ResumeOption = None,
    **given: Any,
) -> None:
    """Search with other numbers of control points, kinds of curve, amplitude bounds and rules for x."""
    _run("ablate", VARIANTS, given, preset, config, devices, output, resume)


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
    options: SettingOptions,
    given: dict[str, Any],
    preset: str | None,
    config: Path | None,
    devices: str,
    output: Path | None,
    resume: Path | None,
) -> None:
    """Make a comparison, or go on with one, and print its tables."""
    from lpes_evo.comparison import ComparisonConfig, ComparisonFolder, run_comparison, verdicts
    from lpes_evo.reporting import make_reporter

    if resume is not None:
        refuse_beside_resume("comparison", **given, preset=preset, config=config, output=output)
        folder = ComparisonFolder(resume)
        settings = folder.load_config()
        if settings.kind != kind:
            raise ConfigError(
                f"Expected a folder of 'lpes-evo {kind}', but {resume} is one of 'lpes-evo {settings.kind}'. "
                "Use that command."
            )
    else:
        run = _run_config(preset, config, ARENA_RUN.chosen(given))
        settings = ComparisonConfig(kind=kind, run=run, **options.chosen(given))
        folder = ComparisonFolder(new_path(output, kind))
        folder.create(settings)

    again = how_to_go_on(kind, folder.path)
    with told_how_to_go_on(f"Stopped. Finished work is safe; go on with: {again}"):
        results = run_comparison(settings, folder, devices=devices, reporter=make_reporter(console))

    _show(results)
    for line in verdicts(results):
        say(line)
    say(f"Tables, journals and pictures: {folder.path}")


def _run_config(
    preset: str | None, config: Path | None, overrides: dict[str, Any]
) -> "settings_package.RunConfig":
    """Build the configuration of the arena ``model``."""
    from lpes_evo.config import RunConfig, load_config

    if preset is not None or config is not None:
        return load_config(preset=preset, file=config, overrides=overrides)
    small = load_config(preset="demo", overrides={**_SMALL_RUN, **overrides})
    return RunConfig(**small.model_dump() | {"search": {}})


def _show(results: dict[str, Any]) -> None:
    """Print the standings of each arena, and what its searches are worth on held-out examples."""
    from lpes_evo.comparison import held_out_table, standings_table

    for name in results["arenas"]:
        standings_table(results, name).print()
        held_out = held_out_table(results, name)
        if held_out is not None:
            held_out.print()
