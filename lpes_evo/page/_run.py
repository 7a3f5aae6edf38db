"""RunContents: everything that the folder of a run holds so far."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lpes_evo.comparison import Runs, Trace, read_runs
from lpes_evo.config import RunConfig, settings_hash
from lpes_evo.errors import JournalError, ScalesError
from lpes_evo.operators import BezierGenome
from lpes_evo.runs import LPES, REPORT_JOURNAL_FORMAT, RunFolder, load_report
from lpes_evo.scales import Scales, load_scales
from lpes_evo.storage import read_journal


@dataclass(frozen=True)
class RunContents:
    """The contents of the folder of a run.

    Attributes:
        folder: The files of the run.
        config: The configuration.
        record: Where and with what the run was made, see `lpes_evo.storage`; empty in a run that never got so far.
        runs: The search.
        scales: The result; ``None`` while the search goes on.
        summary: The measurement on held-out examples, see `lpes_evo.runs.summarise`; ``None`` until it is complete.
        n_measured: Number of vectors of scales that are measured on held-out examples.
    """

    folder: RunFolder
    config: RunConfig
    record: dict[str, Any]
    runs: Runs
    scales: Scales | None
    summary: dict[str, Any] | None
    n_measured: int

    @property
    def trace(self) -> Trace:
        """The evaluations of the search."""
        return self.runs.traces[0]

    @property
    def best(self) -> BezierGenome | None:
        """The control points of the result, or of the best evaluation so far; ``None`` before the first success."""
        if self.scales is not None:
            return BezierGenome(self.scales.control_points)

        if not np.isfinite(self.trace.fitness).any():
            return None
        return BezierGenome(map(tuple, self.trace.points[int(np.nanargmax(self.trace.fitness))].tolist()))

    @property
    def resume_command(self) -> tuple[str, ...]:
        """The command that goes on with the run."""
        return "lpes-evo", "search", "--resume", str(self.folder.path)

    @property
    def has_its_configuration(self) -> bool:
        """Whether the configuration is the one that the run was started with, value by value, as far as is known."""
        return self.record.get("config") in (None, settings_hash(self.config))


def read_run(path: Path) -> RunContents:
    """Read a run, finished or not, and check that its files belong together.

    Args:
        path: The run folder; nothing in it is changed.

    Returns:
        The contents of the folder.

    Raises:
        JournalError: The folder holds no run, the search has no evaluation yet, or a file is damaged.
        ConfigError: The configuration is not valid.
        ScalesError: ``scales.json`` is not valid or belongs to another run.
    """
    folder = RunFolder(path)
    config = folder.load_config()
    if not folder.journal.is_file():
        raise JournalError(
            f"Expected a run whose search has begun, but there is no {folder.journal} yet. "
            f"Go on with: lpes-evo search --resume {shlex.quote(str(path))}"
        )

    runs = read_runs([path])
    scales = load_scales(folder.scales, n_layers=runs.space.n_layers) if folder.scales.is_file() else None
    summary = load_report(folder.report) if folder.report.is_file() else None

    if summary is not None and (
        scales is None or summary["methods"][LPES].get("scales") != list(scales.scales)
    ):
        raise ScalesError(
            f"Expected the scales measured in {folder.report} to be those of {folder.scales}, but they are not. "
            f"Write both again with: lpes-evo search --resume {shlex.quote(str(path))}"
        )

    return RunContents(folder, config, folder.load_record(), runs, scales, summary, _n_measured(folder))


def _n_measured(folder: RunFolder) -> int:
    """Return the number of vectors in the journal of the measurement on held-out examples."""
    if not folder.report_journal.is_file():
        return 0
    return len(read_journal(folder.report_journal, kind=REPORT_JOURNAL_FORMAT).records)
