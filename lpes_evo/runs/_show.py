"""show_run: the result of a run as a table for people."""

import shlex
from pathlib import Path
from typing import Any

from rich.console import Console

from lpes_evo.errors import JournalError
from lpes_evo.reporting import Table, difference_text, interval_text, say
from lpes_evo.runs._folder import RunFolder
from lpes_evo.runs._report_record import LPES, UNTOUCHED, load_report
from lpes_evo.runs._warnings import warnings_of
from lpes_evo.scales import load_scales


def show_run(path: Path, console: Console) -> None:
    """Print accuracy by gold position before and after, the scales, and where the pictures are.

    Args:
        path: The folder of a finished run.
        console: Where to print.

    Raises:
        JournalError: The folder holds no finished run, or its scales are not those that were measured.
        ScalesError: Its ``scales.json`` is not valid.
    """
    folder = RunFolder(path)
    folder.load_config()
    summary = load_report(folder.report)
    scales = load_scales(folder.scales)
    methods = summary["methods"]

    if methods[LPES]["scales"] != list(scales.scales):
        raise JournalError(
            f"Expected the scales of {folder.scales} to be those measured in {folder.report}, but they are others. "
            f"Write both again with: lpes-evo search --resume {shlex.quote(str(path))}"
        )

    shuffles = summary.get("shuffles")
    measure = summary.get("measure", "accuracy")
    title = f"{measure.capitalize()} on held-out examples: {scales.task}, {scales.model} (95 % intervals)"
    table = Table(title, ["position", *methods, *(["shuffles"] if shuffles else [])])

    for index, row in enumerate(methods[LPES]["positions"]):
        cells = [_accuracy(method["positions"][index]) for method in methods.values()]
        if shuffles:
            cells.append(f"{shuffles['positions'][index]['accuracy']:.3f}")
        table.add_row(f"{row['position']:.3f}  n={row['n']}", *cells)

    table.add_section()
    overall = [_accuracy(method) for method in methods.values()]
    if shuffles:
        overall.append(
            interval_text(
                shuffles["median_accuracy"],
                shuffles["least_accuracy"],
                shuffles["largest_accuracy"],
                limits=".2f",
            )
        )
    table.add_row(f"all  n={methods[LPES]['n']}", *overall)
    table.print(console)

    if shuffles:
        say(
            f"shuffles: {shuffles['n_shuffles']} random orders of the LPES scales; mean by position, "
            "over all positions their median and range",
            console,
        )
    for name, difference in summary["differences"].items():
        text = difference_text(difference["difference"], difference["low"], difference["high"])
        say(f"lpes - {name}: {text} (paired bootstrap, 95 %)", console)
    if summary.get("tasks"):
        tasks_table(summary).print(console)
    for warning in warnings_of(summary):
        say(warning, console)

    say("scales: " + " ".join(f"{scale:.3f}" for scale in scales.scales), console)
    say(f"Run folder: {path}", console)
    for picture in folder.pictures:
        say(f"  {picture}", console)


def tasks_table(summary: dict[str, Any]) -> Table:
    """Return the held-out measurement of each task and guard as a table.

    Args:
        summary: The content of ``report.json`` of a run on several tasks, or with guards.
    """
    table = Table(
        "Held-out examples by task and guard: found scales minus untouched (95 % intervals)",
        ["task", "n", "accuracy, untouched", "accuracy, change", "nats per token, change", "allowed loss"],
    )

    for name, row in summary["tasks"].items():
        change, untouched = row["differences"][UNTOUCHED], row["methods"][UNTOUCHED]
        is_guard = row.get("tolerance") is not None
        table.add_row(
            f"{name} (guard)" if is_guard else f"{name} (weight {row['weight']:g})",
            str(row["n"]),
            _accuracy(untouched) if "accuracy" in untouched else "",
            *(
                difference_text(change[metric]["difference"], change[metric]["low"], change[metric]["high"])
                if metric in change
                else ""
                for metric in ("accuracy", "log_probability")
            ),
            f"{row['tolerance']:g} nats" if is_guard else "",
        )
    return table


def show_scales(source: str | Path, console: Console) -> None:
    """Print scales that stand by themselves, without a run.

    Args:
        source: A ``scales.json``, a folder with one, or a repository of the hub.
        console: Where to print.

    Raises:
        ScalesError: There are none, or they are not valid.
    """
    scales = load_scales(source)
    fitness = " ".join(f"{value:.4f}" for value in scales.fitness) or "none"
    points = " ".join(f"({x:g}, {y:g})" for x, y in scales.control_points)
    guards = ", ".join(
        f"{guard.name} changed by {guard.change:+.4f} nats per token ({guard.tolerance:g} may be lost)"
        for guard in scales.guards
    )

    say(f"Scales of {source}: found on {scales.model} with the task {scales.task}", console)
    say(f"fitness on the search data: {fitness}", console)
    if guards:
        say(f"guards on the search data: {guards}", console)
    if set(scales.scales) == {1.0}:
        say("The search found nothing better than the untouched model: these scales are all 1.", console)
    say(f"curve: {scales.curve} of the control points {points}", console)
    say(
        f"scales of {scales.n_layers} layers: " + " ".join(f"{scale:.3f}" for scale in scales.scales), console
    )


def _accuracy(row: dict[str, float]) -> str:
    """Return an accuracy with its interval as a cell of the table."""
    return interval_text(row["accuracy"], row["low"], row["high"], limits=".2f")
