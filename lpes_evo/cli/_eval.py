"""The command ``lpes-evo eval``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lpes_evo import evals
from lpes_evo.cli._options import (
    FILES,
    RUNNING,
    DevicesOption,
    GpusPerWorkerOption,
    OptionalModelArgument,
    RayOption,
    ReporterOption,
    how_to_go_on,
    new_path,
    refuse_beside_resume,
    short_name,
)
from lpes_evo.cli._process import told_how_to_go_on
from lpes_evo.cli._settings import SettingOptions, add_command
from lpes_evo.errors import ConfigError, EvaluationError, JournalError
from lpes_evo.reporting import Table, console, difference_text, p_text, say

if TYPE_CHECKING:
    from lpes_evo.evals import EvalFolder

MODEL = SettingOptions(
    lambda: evals.EvalConfig, "The model", only=("model.dtype", "model.attention", "model.revision")
)
EVALUATION = SettingOptions(
    lambda: evals.EvalConfig,
    "What is measured",
    omit=("model",),
    optional=("tasks",),
    extra={"scales": {"metavar": "RUN_OR_FILE"}, "data": {"metavar": "FOLDER"}},
)


def add_eval_command(app: typer.Typer) -> None:
    """Add the command of this module to the command line."""
    add_command(app, evaluate, EVALUATION, MODEL, name="eval")


def evaluate(
    model: OptionalModelArgument = None,
    devices: DevicesOption = "auto",
    ray: RayOption = None,
    gpus_per_worker: GpusPerWorkerOption = None,
    batch_limit: Annotated[
        float | None,
        typer.Option(
            "--batch-limit",
            metavar="SECONDS",
            help="When a forward pass of a batch counts as hung; never by default.",
            rich_help_panel=RUNNING,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", help="New folder; runs/eval-NAME-TIME by default.", rich_help_panel=FILES),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option("--resume", help="Folder of an evaluation to go on with.", rich_help_panel=FILES),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            "--against",
            metavar="FOLDER",
            help="Finished evaluation to compare the result with.",
            rich_help_panel=FILES,
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="With --against: show scores of different data side by side.",
            rich_help_panel=FILES,
        ),
    ] = False,
    reporter: ReporterOption = None,
    **given: Any,
) -> None:
    """Measure a model, untouched, under scales and other methods, on benchmarks, with intervals and tests."""
    from lpes_evo.evals import EvalFolder, load_results, print_results, run_evaluation
    from lpes_evo.reporting import make_reporter

    # A reporter of the user that cannot be made is told before any work.
    reporters = make_reporter(console, reporter or ())

    if force and against is None:
        raise ConfigError("Expected --force only with --against, which it is for. Leave it out.")
    if against is not None:
        load_results(against)

    if resume is not None:
        refuse_beside_resume("evaluation", MODEL=model, **given, output=output)
        folder = EvalFolder(resume)
        config = folder.load_config()
        results = _finished(folder)
    else:
        config = _config(model, given)
        folder = EvalFolder(new_path(output, f"eval-{short_name(config.model.name)}"))
        folder.create(config)
        results = None

    again = how_to_go_on("eval", folder.path)
    if results is None:
        with told_how_to_go_on(f"Stopped. Finished answers are safe; go on with: {again}"):
            results = run_evaluation(
                config,
                folder,
                devices=devices,
                ray_address=ray,
                gpus_per_worker=gpus_per_worker,
                batch_limit=batch_limit,
                reporter=reporters,
            )

    print_results(results, console)
    if against is not None:
        _print_comparison(folder, against, force=force)
    for line in (f"Folder: {folder.path}", *(f"  {path}" for path in sorted(folder.path.glob("*.png")))):
        say(line)
    if results.missing:
        raise EvaluationError(
            f"Expected a result of every task, but {', '.join(results.missing)} have none: "
            f"{next(iter(results.missing.values()))} Then go on with: {again}"
        )


def _config(model: str | None, given: dict[str, Any]) -> "evals.EvalConfig":
    """Return the evaluation that the options describe, once its methods and its options are known to be sound."""
    from lpes_evo.config import nested
    from lpes_evo.evals import make_arms
    from lpes_evo.scales import load_scales

    chosen = MODEL.chosen(given) | EVALUATION.chosen(given)
    if model is None or "tasks" not in chosen:
        raise ConfigError(
            "Expected a model and --tasks, such as: lpes-evo eval tiny --tasks recall. Or --resume FOLDER to go on "
            "with an evaluation."
        )
    config = evals.EvalConfig(**nested({"model.name": model, **chosen}))
    make_arms(None if config.scales is None else load_scales(config.scales), config.methods)
    config.refuse_idle_options()
    return config


def _finished(folder: "EvalFolder") -> Any:
    """Return the results of a folder that needs no further work, else ``None``; damaged results are made anew."""
    from lpes_evo.evals import load_results

    if not folder.results.exists():
        return None
    try:
        results = load_results(folder.results)
    except JournalError:
        return None

    failed = any(arm.n_failed for task in results.tasks for arm in task.arms.values())
    return None if failed or results.missing else results


def _print_comparison(folder: "EvalFolder", against: Path, *, force: bool) -> None:
    """Print the scores of two evaluations side by side, with the paired differences."""
    from lpes_evo.evals import EvalFolder, compare_evaluations

    columns = ("task", "arm", "here", "there", "here minus there", "p")
    table = Table(f"{folder.path} against {against}", columns, names=("task", "arm"))
    for row in compare_evaluations(folder, EvalFolder(against), force=force):
        compared = ["different data" if not row.same_data else "", ""]
        if row.difference is not None:
            found = row.difference
            compared = [difference_text(found.value, found.low, found.high), p_text(found.p_value)]
        table.add_row(row.task, row.arm, f"{row.here:.3f}", f"{row.there:.3f}", *compared)
    table.print()
