"""Writing of ``report.html`` from the folder of a run."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import jinja2

from lpes_evo.errors import StorageError
from lpes_evo.page._cost import read_cost
from lpes_evo.page._drift import DRIFT_FOLDER, drift_folder, kept_drift, load_drift, measure_drift_of
from lpes_evo.page._pictures import convergence_pictures, curve_pictures, drift_pictures, result_pictures
from lpes_evo.page._run import RunContents, read_run
from lpes_evo.page._tables import (
    cost_table,
    drift_tables,
    position_table,
    report_difference,
    result_table,
    settings_table,
    versions_table,
)
from lpes_evo.runs import CONSTANT, LPES, UNTOUCHED, tasks_table, warnings_of
from lpes_evo.storage import make_folder, provenance, write_atomic

_PACKAGES = ("matplotlib", "jinja2")
_FACTS = ("revision", "dtype", "attention", "device", "device_name", "n_layers")
_HASHES = ("config", "weights", "search_data", "report_data")

_SEARCH = "Search, as it was started"
_RESUME = "Go on with an unfinished run"
_CONVERGENCE = "Convergence as pictures"
_DRIFT = "Drift, in a folder of its own"


@dataclass(frozen=True)
class Page:
    """A page that was written.

    Attributes:
        path: The file.
        missing: What the page cannot show of the run, as lines for people; empty for a finished run with drift.
    """

    path: Path
    missing: tuple[str, ...]


def write_page(
    run: Path,
    output: Path | None = None,
    *,
    drift: Path | Literal["measure"] | None = "measure",
    device: str = "auto",
    on_input: Callable[[int, int], None] | None = None,
) -> Page:
    """Write a run as one HTML file that needs no other file, no script and no network.

    A run that is not finished gives a page with what there is so far. The same run, drift and versions give the same
    bytes.

    Args:
        run: The run folder, as the commands of the page name it.
        output: The file; ``report.html`` in the run folder when ``None``.
        drift: A folder of ``lpes-evo drift`` on the scales of this run; or ``"measure"`` to measure it once on the
            model of a finished run; or ``None`` to leave it out. A measured drift is kept in the folder ``drift`` of
            the run. For a run that is read-only, it is kept beside the page, in a folder with the name of the page and
            ``-drift``.
        device: Device of the model where drift is measured: ``auto``, ``cpu``, ``cuda:N`` or ``mps``.
        on_input: Called with the number of inputs that are done and the number of all inputs, while drift is measured.

    Returns:
        The file, and what it does not show.

    Raises:
        JournalError: The folder holds no run or none whose search has begun, or a file of it is damaged.
        ScalesError: ``scales.json`` is not valid, or drift or model are those of other scales.
        ConfigError: The configuration of the run or the drift is not valid.
        ModelError: The model, of which drift is to be measured, cannot be loaded.
        StorageError: The file cannot be written, or is there and is no page.
    """
    path = output if output is not None else run / "report.html"
    contents = read_run(run)
    _check_replaceable(path)
    # A measurement of drift can take long, and would be lost with a page that cannot be written.
    make_folder(path.parent)

    summary, kept = None, None
    if isinstance(drift, Path):
        summary = load_drift(drift, contents)
    elif drift is not None and contents.summary is not None:
        own = drift_folder(contents, path)
        kept = kept_drift(run / DRIFT_FOLDER, own)
        if kept is None:
            measure_drift_of(contents, own, device=device, on_input=on_input)
            kept = own
        summary = load_drift(kept, contents)

    missing = _missing(contents, summary)
    page = _render(
        contents, summary, missing, drift_folder=drift if isinstance(drift, Path) else None, kept=kept
    )
    # Paths and edited files can hold lone surrogates, for which UTF-8 has no bytes.
    write_atomic(path, page.encode(errors="backslashreplace"))
    return Page(path, missing)


def _check_replaceable(path: Path) -> None:
    """Refuse to replace anything but a page, such as a journal or a device.

    Raises:
        StorageError: The file exists and is no HTML, or it cannot be looked at.
    """
    try:
        is_there, is_folder = path.exists(), path.is_dir()
        is_page = path.is_file() and _is_page(path)
    except OSError as error:
        raise StorageError(
            f"Expected a file to write the page to, but the system said of {path}: {error.strerror}. "
            "Name another --output."
        ) from error

    if is_folder:
        raise StorageError(
            f"Expected a file to write the page to, but {path} is a folder. Name a file in it."
        )
    if is_there and not is_page:
        raise StorageError(
            f"Expected a new file or an earlier page to replace, but {path} is something else, which would be lost. "
            "Name another --output."
        )


def _is_page(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(64).lstrip().lower().startswith(b"<!doctype html>")


def _missing(run: RunContents, drift: dict[str, Any] | None) -> tuple[str, ...]:
    """Return what the page of a run cannot show, as lines for people."""
    resume = shlex.join(run.resume_command)
    lines = []

    if run.scales is None:
        search = run.config.search
        lines.append(
            f"The search has not ended: {len(run.trace)} of at most {search.max_evaluations - search.max_gradients} "
            f"evaluations are in the journal. Go on with: {resume}"
        )
    elif run.summary is None:
        lines.append(
            f"The measurement on held-out examples is not finished: {run.n_measured} vectors of scales are measured. "
            f"Go on with: {resume}"
        )

    if drift is None and run.summary is not None:
        lines.append(
            f"Representational drift was left out. Measure it with: {shlex.join(_report_command(run))}"
        )
    return tuple(lines)


def _report_command(run: RunContents, *options: str) -> tuple[str, ...]:
    return "lpes-evo", "report", str(run.folder.path), *options


def _render(
    run: RunContents,
    drift: dict[str, Any] | None,
    missing: tuple[str, ...],
    *,
    drift_folder: Path | None,
    kept: Path | None,
) -> str:
    """Return the page of a run.

    Args:
        run: The run.
        drift: The drift of its scales; ``None`` to leave it out.
        missing: What the page cannot show.
        drift_folder: The folder of the drift that the user named.
        kept: The folder of the drift that this or an earlier page measured.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("lpes_evo.page"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    commands = _commands(run, drift is not None, drift_folder)
    page_versions = provenance.package_versions() | {name: metadata.version(name) for name in _PACKAGES}

    values: dict[str, Any] = {
        "run": run,
        "config": run.config,
        "missing": missing,
        "fitness": run.scales.fitness if run.scales is not None else run.trace.best[-1:].tolist(),
        "curve_pictures": curve_pictures(run, commands[_SEARCH]),
        "best_scales": [] if run.best is None else run.runs.space.decode([run.best])[0].tolist(),
        "convergence_pictures": convergence_pictures(run, commands[_CONVERGENCE]),
        "cost_table": cost_table(run, *read_cost(run)),
        "settings": settings_table(run),
        "facts": {name: run.record[name] for name in _FACTS if run.record.get(name) is not None},
        "hashes": {name: run.record[name] for name in _HASHES if run.record.get(name) is not None},
        "versions": versions_table(run.record.get("versions", {}), page_versions),
        "commands": commands,
    }

    # The measurement on held-out examples comes after the search.
    values |= {
        "findings": [] if run.summary is None else _findings(run.summary),
        "warnings": [] if run.summary is None else warnings_of(run.summary),
        "result": None if run.summary is None else result_table(run.summary),
        "has_positions": run.summary is None or _has_positions(run.summary),
        "positions": position_table(run.summary) if run.summary and _has_positions(run.summary) else None,
        "by_task": tasks_table(run.summary) if run.summary is not None and run.summary.get("tasks") else None,
        "result_pictures": result_pictures(run, commands[_SEARCH]),
    }

    values |= {
        "drift": drift,
        "drift_tables": () if drift is None else drift_tables(drift),
        "drift_pictures": [] if drift is None else drift_pictures(drift),
        "drift_command": commands[_DRIFT],
        "drift_is_kept": kept is not None,
        "drift_folder": "" if kept is None else kept.name,
        "drift_place": "of the run" if kept == run.folder.path / DRIFT_FOLDER else "beside this page",
        "report_with_drift": shlex.join(_report_command(run)),
    }
    return environment.get_template("page.html").render(values)


def _commands(run: RunContents, has_drift: bool, drift_folder: Path | None) -> dict[str, str]:
    """Return the commands that made the run and the page, and those that go on from there, by what they do."""
    folder = str(run.folder.path)
    search = ["lpes-evo", "search", "--config", str(run.folder.config)]

    # The options that give this very page again.
    options: list[str] = []
    if has_drift and drift_folder is not None:
        options = ["--drift", str(drift_folder)]
    elif not has_drift and run.summary is not None:
        options = ["--no-drift"]

    commands = {
        _SEARCH: run.record.get("command") or shlex.join(search),
        "The same search again": shlex.join([*search, "--output", "FOLDER"]),
        _RESUME: shlex.join(run.resume_command),
        "The result as a table": shlex.join(["lpes-evo", "show", folder]),
        _CONVERGENCE: shlex.join(["lpes-evo", "convergence", folder]),
        _DRIFT: shlex.join(
            ["lpes-evo", "drift", run.config.model.name, "--scales", folder, "--output", "FOLDER"]
        ),
        "This page": shlex.join(_report_command(run, *options)),
    }
    if run.summary is not None:
        commands.pop(_RESUME)
    return commands


def _has_positions(summary: dict[str, Any]) -> bool:
    """Return whether the held-out examples have gold positions."""
    return bool(summary["methods"][LPES]["positions"])


def _findings(summary: dict[str, Any]) -> list[str]:
    """Return the result in sentences that claim no more than the intervals do."""
    methods, found = summary["methods"], []

    lpes, untouched = methods[LPES], methods[UNTOUCHED]
    measure = summary.get("measure", "accuracy")
    if measure == "accuracy":
        found.append(
            f"Of {lpes['n']} held-out examples the model answers {100 * untouched['accuracy']:.1f} % right untouched "
            f"and {100 * lpes['accuracy']:.1f} % under the found scales."
        )
    else:
        found.append(
            f"On {lpes['n']} held-out examples the {measure} is {untouched['accuracy']:.3f} untouched and "
            f"{lpes['accuracy']:.3f} under the found scales."
        )

    for name, label in ((UNTOUCHED, "the untouched model"), (CONSTANT, "the best single scale")):
        difference = summary["differences"].get(name)
        if difference is None:
            continue
        low, high = difference["low"], difference["high"]
        verdict = "better than" if low > 0 else "worse than" if high < 0 else "not shown to differ from"
        found.append(f"LPES is {verdict} {label}: {report_difference(difference)}, paired, 95 %.")
    return found
