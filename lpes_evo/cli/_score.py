"""The command ``lpes-evo score``."""

from pathlib import Path
from typing import Annotated, Any

import typer

from lpes_evo import evals
from lpes_evo.cli._settings import SettingOptions, add_command
from lpes_evo.reporting import interval_text, say

MADE_WITH = SettingOptions(
    lambda: evals.EvalConfig,
    "As the file was made with",
    only=("positions", "data", "limit", "seed"),
    extra={"data": {"metavar": "FOLDER"}},
)


def add_score_command(app: typer.Typer) -> None:
    """Add the command of this module to the command line."""
    add_command(app, score, MADE_WITH)


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
    system: Annotated[
        str | None,
        typer.Option("--system", help="Whose answers, where a file holds those of several systems or arms."),
    ] = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="Score what is there, count what is not.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    **given: Any,
) -> None:
    """Score a finished prediction file, without a model."""
    from lpes_evo.evals import DataRequest, score_predictions
    from lpes_evo.storage import to_json

    chosen = MADE_WITH.chosen(given)
    if "data" in chosen:
        chosen["folder"] = Path(chosen.pop("data"))
    request = DataRequest(**chosen) if chosen else None
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
