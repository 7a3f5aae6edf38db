"""The command ``lpes-evo score``."""

from pathlib import Path
from typing import Annotated, Any

import typer

from lpes_evo.errors import TaskError
from lpes_evo.reporting import interval_text, say


def score(
    task: Annotated[
        str, typer.Argument(metavar="TASK", help="Task, such as leval:tpo, or my_task.py:MyTask.")
    ],
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="answers.jsonl of an evaluation; JSON lines with id and output; or L-Eval's own.",
        ),
    ],
    data: Annotated[Path | None, typer.Option("--data", help="Folder with the task's data.")] = None,
    positions: Annotated[
        str | None,
        typer.Option("--positions", help="Gold positions of the file; 0,0.25,0.5,0.75,1 by default."),
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", help="Limit that the file was made with.")] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Seed that the file was made with; 0 by default.")
    ] = None,
    system: Annotated[
        str | None,
        typer.Option("--system", help="Whose answers, where a file holds those of several systems or arms."),
    ] = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="Score what is there, count what is not.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Score a finished prediction file, without a model."""
    from lpes_evo.evals import DataRequest, score_predictions
    from lpes_evo.storage import to_json

    options: dict[str, Any] = {
        "folder": data,
        "positions": _positions(positions),
        "limit": limit,
        "seed": seed,
    }
    given = {name: value for name, value in options.items() if value is not None}
    request = DataRequest(**given) if given else None
    result = score_predictions(task, file, request, partial=partial, system=system)
    if as_json:
        say(to_json(result.to_dict(), indent=1))
        return
    say(
        f"{result.task}: {result.metric} {interval_text(result.score, result.low, result.high, '.4f')}, n = {result.n}"
    )
    for name, value in result.parts.items() if len(result.parts) > 1 else ():
        say(f"  mean {name}: {value:.4f}")
    for position, row in result.positions.items():
        say(
            f"  position {position:g}: {interval_text(row['score'], row['low'], row['high'], '.4f')}, n = {row['n']}"
        )
    if result.n_missing:
        say(f"  {result.n_missing} examples have no answer in the file and are left out.")
    for warning in result.warnings:
        say(f"  warning: {warning}")


def _positions(text: str | None) -> tuple[float, ...] | None:
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise TaskError(
            f"Expected --positions to be numbers such as 0,0.5,1, but got {text!r:.80}."
        ) from error
