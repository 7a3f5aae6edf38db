"""The commands ``lpes-evo search``, ``show`` and ``estimate``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from lpes_evo import config as settings_package
from lpes_evo.cli._options import (
    FILES,
    RUNNING,
    ConfigOption,
    DevicesOption,
    GpusPerWorkerOption,
    PresetOption,
    RayOption,
    ReporterOption,
    how_to_go_on,
    new_path,
    refuse_beside_resume,
)
from lpes_evo.cli._process import told_how_to_go_on
from lpes_evo.cli._settings import SettingOptions, add_command
from lpes_evo.errors import ConfigError
from lpes_evo.reporting import console, say

if TYPE_CHECKING:
    from lpes_evo.config import RunConfig

RUN = SettingOptions(
    lambda: settings_package.RunConfig,
    "What is searched",
    only=("model.name", "task.name", "task.data", "seed"),
    extra={"task.data": {"metavar": "FOLDER"}},
    show_defaults=False,
)

SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Any setting by dotted key, such as search.generations=20; may be repeated.",
    ),
]


GuardOption = Annotated[
    list[str] | None,
    typer.Option(
        "--guard",
        metavar="TASK[:TOLERANCE]",
        help="A task that must not become worse, by more than so many nats per token (0.02); may be repeated.",
    ),
]


def add_search_commands(app: typer.Typer) -> None:
    """Add the commands of this module to the command line."""
    add_command(app, search, RUN)
    app.command()(show)
    add_command(app, estimate, RUN)


def search(
    preset: PresetOption = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    initial: Annotated[
        list[Path] | None,
        typer.Option(
            "--initial",
            metavar="RUN_OR_FILE",
            help="Scales to start from, stretched to the model's depth; may be repeated.",
        ),
    ] = None,
    guard: GuardOption = None,
    devices: DevicesOption = "auto",
    ray: RayOption = None,
    gpus_per_worker: GpusPerWorkerOption = None,
    evaluation_limit: Annotated[
        float | None,
        typer.Option(
            "--evaluation-limit",
            metavar="SECONDS",
            help="When a forward pass counts as hung; by default 20 times the longest evaluation seen.",
            rich_help_panel=RUNNING,
        ),
    ] = None,
    reporter: ReporterOption = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", help="New run folder; runs/NAME-TIME by default.", rich_help_panel=FILES),
    ] = None,
    resume: Annotated[
        Path | None, typer.Option("--resume", help="Run folder to go on with.", rich_help_panel=FILES)
    ] = None,
    **given: Any,
) -> None:
    """Search the scales of a model for a task, then measure them on held-out examples."""
    from lpes_evo.reporting import make_reporter
    from lpes_evo.runs import RunFolder, run_search, show_run

    # A reporter of the user that cannot be made is told before any work.
    reporters = make_reporter(console, reporter or ())

    if resume is not None:
        choices = {"preset": preset, "config": config, "set": settings, "initial": initial, "output": output}
        refuse_beside_resume("run", **given, **choices, guard=guard)
        folder = RunFolder(resume)
        run_config = folder.load_config()
    else:
        run_config = _load(preset, config, settings, given, initial, guard)
        name = preset or f"{Path(run_config.model.name).stem}-{run_config.task.name}"
        folder = RunFolder(new_path(output, name))
        folder.create(run_config)

    again = how_to_go_on("search", folder.path)
    with told_how_to_go_on(f"Stopped. Finished work is safe; go on with: {again}"):
        run_search(
            run_config,
            folder,
            devices=devices,
            ray_address=ray,
            gpus_per_worker=gpus_per_worker,
            work_limit=evaluation_limit,
            reporter=reporters,
        )
    show_run(folder.path, console)


def show(
    run: Annotated[
        str,
        typer.Argument(metavar="RUN", help="Run folder, scales.json, or hub id of a repository with one."),
    ],
) -> None:
    """Print the result of a run and name its pictures, or print scales that stand by themselves."""
    from lpes_evo.hub import is_repository_name
    from lpes_evo.runs import show_run, show_scales

    path = Path(run)
    is_folder = path.is_dir()
    stands_alone = is_folder and not (path / "config.yaml").is_file() and (path / "scales.json").is_file()

    if path.is_file() or stands_alone or (not is_folder and is_repository_name(run)):
        show_scales(run, console)
    else:
        show_run(path, console)


def estimate(
    preset: PresetOption = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    repeats: Annotated[
        int, typer.Option("--repeats", min=0, help="Pilot evaluations to time; 0 tells the memory alone.")
    ] = 2,
    gpu_memory: Annotated[
        float | None,
        typer.Option(
            "--gpu-memory",
            metavar="GIB",
            min=1,
            help="Memory of each GPU in GiB, to tell how many a worker needs; by default, that of the GPUs here.",
        ),
    ] = None,
    guard: GuardOption = None,
    devices: DevicesOption = "auto",
    ray: RayOption = None,
    gpus_per_worker: GpusPerWorkerOption = None,
    **given: Any,
) -> None:
    """Tell the GPUs that a search needs, time a pilot of it, and predict what the whole run will take."""
    from lpes_evo.runs import estimate_run, gpus_found, memory_need

    run_config = _load(preset, config, settings, given, guards=guard)
    memory, n_gpus = gpus_found()
    if gpu_memory is not None:
        memory = int(gpu_memory * 2**30)
    for line in memory_need(run_config).lines(memory, n_gpus):
        say(line)
    if not repeats:
        return

    estimate = estimate_run(
        run_config,
        devices=devices,
        ray_address=ray,
        gpus_per_worker=gpus_per_worker,
        repeats=repeats,
        on_event=say,
    )
    for line in estimate.lines():
        say(line)


def _load(
    preset: str | None,
    config: Path | None,
    settings: list[str] | None,
    given: dict[str, Any],
    initial: list[Path] | None = None,
    guards: list[str] | None = None,
) -> "RunConfig":
    """Build the configuration that the options describe."""
    from lpes_evo.config import StartCurve, load_config

    overrides = RUN.chosen(given)
    if initial:
        overrides["initial"] = [StartCurve.from_scales(path).model_dump() for path in initial]

    if guards:
        overrides["guards"] = guards

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
