"""Drift of the scales of a run: measured on its model, or read from the folder where it was kept."""

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lpes_evo.analysis import DriftReport
from lpes_evo.errors import ConfigError, ScalesError
from lpes_evo.page._run import RunContents
from lpes_evo.storage import WorkFolder, make_folder, remove_leftovers

DRIFT_FOLDER = "drift"
"""Folder within the folder of the run that keeps the drift measured for a page."""

_FILE = "drift.json"
_N_DRAWS = 20


def load_drift(path: Path, run: RunContents) -> dict[str, Any]:
    """Read the drift that ``lpes-evo drift`` measured of the scales of a run.

    Args:
        path: A folder of ``lpes-evo drift``, or its ``drift.json``.
        run: The run.

    Returns:
        The result of `lpes_evo.analysis.summarise_drift`, with the facts of the analysis.

    Raises:
        ConfigError: The file is missing, damaged or edited.
        ScalesError: It is about other scales, or the run has none yet.
    """
    if run.scales is None:
        raise ScalesError(
            f"Expected a run with scales to show the drift of, but the search in {run.folder.path} has not ended. "
            f"Leave out --drift, or finish it with: lpes-evo search --resume {shlex.quote(str(run.folder.path))}"
        )

    file = path / _FILE if path.is_dir() else path
    if not file.exists():
        raise ConfigError(
            f"Expected a folder of 'lpes-evo drift' with {file}, but it cannot be read: No such file or directory. "
            f"Make one with 'lpes-evo drift {run.config.model.name} --scales {run.folder.path} --output FOLDER'."
        )

    summary = DriftReport.load(file).to_json()
    if summary["scales"] != list(run.scales.scales):
        raise ScalesError(
            f"Expected the drift in {file} to be that of the scales of {run.folder.path}, but it is that of others. "
            "Move the file away, or name another --drift."
        )
    return summary


def drift_folder(run: RunContents, page: Path) -> Path:
    """Return the folder for the drift that a page measures: in the run, or beside the page if the run is read-only.

    Args:
        run: The run.
        page: The file of the page.
    """
    if os.access(run.folder.path, os.W_OK):
        return run.folder.path / DRIFT_FOLDER
    return page.with_name(f"{page.stem}-{DRIFT_FOLDER}")


def kept_drift(*folders: Path) -> Path | None:
    """Return the first of several folders that holds the drift of an earlier page; ``None`` where none does."""
    return next((folder for folder in folders if (folder / _FILE).is_file()), None)


def measure_drift_of(
    run: RunContents,
    folder: Path,
    *,
    device: str = "auto",
    on_input: Callable[[int, int], None] | None = None,
) -> None:
    """Measure the drift of the scales of a finished run on its model, as ``lpes-evo drift`` does, and keep it.

    Args:
        run: The run.
        folder: Folder for the drift.
        device: Device of the model.
        on_input: Called with the number of inputs that are done and the number of all inputs.

    Raises:
        LpesError: The model cannot be loaded or is of another depth, another process works beside the folder, or a file
            cannot be written.
    """
    from lpes_evo.analysis import AnalysisRequest, prepare, report_drift

    with WorkFolder(folder.parent).locked():
        # Another page may have measured it in the meantime.
        if kept_drift(folder) is not None:
            return

        request = AnalysisRequest(model=run.config.model.name, scales=run.folder.path, device=device)
        subject = prepare(request)
        make_folder(folder)
        remove_leftovers(folder)

        def tell(n_done: int) -> None:
            if on_input is not None:
                on_input(n_done, len(subject.inputs))

        report_drift(subject, folder, n_draws=_N_DRAWS, on_input=tell)
