"""The command ``lpes-evo eval``."""

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lpes_evo.cli._process import told_how_to_go_on
from lpes_evo.errors import ConfigError, EvaluationError, JournalError
from lpes_evo.reporting import Table, console, difference_text, p_text, say

if TYPE_CHECKING:
    from lpes_evo.evals import EvalFolder


def evaluate(
    model: Annotated[
        str | None,
        typer.Argument(help="Hub id, folder, LoRA adapter, .gguf file, or 'tiny'.", show_default=False),
    ] = None,
    tasks: Annotated[
        str | None,
        typer.Option("--tasks", help="Names of tasks with commas between, such as kv,mdqa,leval:tpo."),
    ] = None,
    scales: Annotated[
        Path | None,
        typer.Option(
            "--scales", metavar="RUN_OR_FILE", help="Scales to judge; without, the untouched model alone."
        ),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            "--methods", help="Methods with commas between, such as baseline,lpes,pi:1.5,yarn:4,ms-poe."
        ),
    ] = None,
    positions: Annotated[
        str | None, typer.Option("--positions", help="Gold positions; 0,0.25,0.5,0.75,1 by default.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", help="Folder with the data files of the tasks.")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", help="Most examples, at each position where a task has positions."),
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Seed of every draw.")] = None,
    shots: Annotated[
        int | None,
        typer.Option(
            "--shots", help="Solved examples in the prompts of mmlu, ceval-valid and other lm: tasks."
        ),
    ] = None,
    teacher_forcing: Annotated[
        bool,
        typer.Option(
            "--teacher-forcing", help="One forward pass instead of generation, where the metric allows it."
        ),
    ] = False,
    over_length: Annotated[
        str | None,
        typer.Option(
            "--over-length", help="Examples beyond the window: error, skip, or cut their documents."
        ),
    ] = None,
    max_length: Annotated[
        int | None, typer.Option("--max-length", help="A window in tokens smaller than the model's own.")
    ] = None,
    batch_tokens: Annotated[
        int | None,
        typer.Option("--batch-tokens", help="Tokens of one batch; by default chosen by the device."),
    ] = None,
    chat_template: Annotated[
        bool | None,
        typer.Option(
            "--chat-template/--no-chat-template", help="Use the model's chat template, if it has one."
        ),
    ] = None,
    dtype: Annotated[str | None, typer.Option("--dtype", help="auto, float32, bfloat16 or float16.")] = None,
    attention: Annotated[
        str | None, typer.Option("--attention", help="Attention backend, such as sdpa or eager.")
    ] = None,
    revision: Annotated[
        str | None, typer.Option("--revision", help="Revision of the model on the hub.")
    ] = None,
    devices: Annotated[
        str,
        typer.Option(
            "--devices",
            help="One worker for each: auto (all CUDA GPUs), cuda:0,cuda:1, mps, cpu, cpu:2; or in-process.",
        ),
    ] = "auto",
    ray: Annotated[
        str | None,
        typer.Option(
            "--ray", metavar="ADDRESS", help="Use every GPU of a Ray cluster: host:port, auto or local."
        ),
    ] = None,
    batch_limit: Annotated[
        float | None,
        typer.Option(
            "--batch-limit",
            metavar="SECONDS",
            help="When a forward pass of a batch counts as hung; never by default.",
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", help="New folder; runs/eval-NAME-TIME by default.")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option("--resume", help="Folder of an evaluation to go on with.")
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option("--against", metavar="FOLDER", help="Finished evaluation to compare the result with."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="With --against: show scores of different data side by side.")
    ] = False,
    reporter: Annotated[
        list[str] | None,
        typer.Option(
            "--reporter",
            metavar="FILE.py:CLASS",
            help="A Reporter of your own, beside ours; may be repeated.",
        ),
    ] = None,
) -> None:
    """Measure a model, untouched, under scales and other methods, on benchmarks, with intervals and tests."""
    from lpes_evo.evals import (
        EvalConfig,
        EvalFolder,
        load_results,
        make_arms,
        print_results,
        run_evaluation,
    )
    from lpes_evo.reporting import make_reporter
    from lpes_evo.scales import load_scales

    # A reporter of the user that cannot be made is told before any work.
    reporters = make_reporter(console, reporter or ())
    settings: dict[str, Any] = {
        "scales": None if scales is None else str(scales),
        "methods": _split(methods),
        "tasks": _split(tasks),
        "positions": _numbers(positions),
        "data": None if data is None else str(data),
        "limit": limit,
        "seed": seed,
        "shots": shots,
        "teacher_forcing": teacher_forcing or None,
        "over_length": over_length,
        "max_length": max_length,
        "batch_tokens": batch_tokens,
        "chat_template": chat_template,
    }
    model_settings = {"name": model, "dtype": dtype, "attention": attention, "revision": revision}
    given = {name: value for name, value in settings.items() if value is not None}
    given_model = {name: value for name, value in model_settings.items() if value is not None}
    if force and against is None:
        raise ConfigError("Expected --force only with --against, which it is for. Leave it out.")
    if against is not None:
        load_results(against)
    if resume is not None:
        _refuse_beside_resume([*given, *given_model, *(["output"] if output is not None else [])])
        folder = EvalFolder(resume)
        config = folder.load_config()
    else:
        if model is None or tasks is None:
            raise ConfigError(
                "Expected a model and --tasks, such as: lpes-evo eval tiny --tasks recall. Or --resume FOLDER to go on "
                "with an evaluation."
            )
        config = EvalConfig(**(given | {"model": given_model}))
        # Before there is a folder: what is wrong with the methods and the options.
        make_arms(None if scales is None else load_scales(scales), config.methods)
        config.refuse_idle_options()
        name = f"eval-{Path(model).stem[:60]}-{time.strftime('%Y%m%d-%H%M%S')}"
        folder = EvalFolder(output or Path("runs") / name)
        folder.create(config)
    again = f"lpes-evo eval --resume {shlex.quote(str(folder.path))}"
    results = _finished(folder) if resume is not None else None
    if results is None:
        with told_how_to_go_on(f"Stopped. Finished answers are safe; go on with: {again}"):
            results = run_evaluation(
                config,
                folder,
                devices=devices,
                ray_address=ray,
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


def _split(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(part.strip() for part in text.split(","))


def _numbers(text: str | None) -> tuple[float, ...] | None:
    parts = _split(text)
    try:
        return None if parts is None else tuple(float(part) for part in parts)
    except ValueError as error:
        raise ConfigError(
            f"Expected --positions to be numbers with commas between, such as 0,0.5,1, but got {text!r}."
        ) from error


def _refuse_beside_resume(names: list[str]) -> None:
    if names:
        raise ConfigError(
            f"Expected --resume alone, since an evaluation keeps its configuration, but got {', '.join(names)} too. "
            "Leave them out, or start a new evaluation."
        )


def _finished(folder: "EvalFolder") -> Any:
    """Return the results of a folder where nothing is missing, else ``None``; damaged ones are made anew."""
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
