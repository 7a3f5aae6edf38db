"""RunFolder: the files of a run."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lpes_evo.config import RunConfig, load_config
from lpes_evo.errors import ConfigError, JournalError
from lpes_evo.storage import RunProvenance, WorkFolder, parse_yaml, read_header, read_text, write_atomic


@dataclass(frozen=True)
class RunFolder(WorkFolder):
    """The files of a run.

    Attributes:
        path: The folder.
    """

    @property
    def config(self) -> Path:
        """Resolved configuration and provenance."""
        return self.path / "config.yaml"

    @property
    def journal(self) -> Path:
        """One line for each evaluation of the search."""
        return self.path / "journal.jsonl"

    @property
    def report_journal(self) -> Path:
        """One line for each vector of scales measured on held-out data."""
        return self.path / "report.jsonl"

    @property
    def scales(self) -> Path:
        """The result."""
        return self.path / "scales.json"

    @property
    def history(self) -> Path:
        """One row for each generation."""
        return self.path / "history.csv"

    @property
    def report(self) -> Path:
        """Accuracies on held-out data."""
        return self.path / "report.json"

    @property
    def pictures(self) -> tuple[Path, Path, Path]:
        """Convergence, curve, accuracy by position."""
        return self.path / "convergence.png", self.path / "curve.png", self.path / "positions.png"

    def create(self, config: RunConfig) -> None:
        """Make the folder for a new run and write its configuration.

        Args:
            config: The configuration.

        Raises:
            JournalError: The folder already holds a journal, cannot be made, or another process works in it.
            StorageError: The configuration cannot be written.
        """
        refusal = (
            f"already holds a run. Continue it with: lpes-evo search --resume {shlex.quote(str(self.path))}"
        )
        with self.claimed(self.journal, refusal=refusal):
            self.write_config(config)

    def write_config(self, config: RunConfig, record: dict[str, Any] | None = None) -> None:
        """Write the configuration, and the record of where the run was made, once the record is known.

        Raises:
            StorageError: The file cannot be written.
        """
        values = config.model_dump(mode="json") | ({} if record is None else {"provenance": record})
        write_atomic(self.config, yaml.safe_dump(values, sort_keys=False))

    def load_config(self) -> RunConfig:
        """Return the configuration of the run in this folder.

        Raises:
            JournalError: The folder holds no run, or the configuration is not what the run was started with.
            ConfigError: The configuration is not valid.
        """
        if not self.config.is_file():
            raise JournalError(
                f"Expected a run folder with config.yaml, but {self.path} has none. Check the path."
            )
        return load_config(file=self.config)

    def load_record(self) -> dict[str, Any]:
        """Return the record of where and with what the run was made; it is empty until the model has been loaded.

        Returns:
            The values of `lpes_evo.storage.describe`.

        Raises:
            JournalError: The folder holds no run, or the record was edited or is missing although the search has begun.
            ConfigError: The configuration is not valid.
        """
        # A configuration that was edited is refused first.
        self.load_config()

        text = read_text(self.config, "a run folder with", JournalError, "Check the path.")
        record = parse_yaml(text, str(self.config), ConfigError, "Restore the file.").get("provenance")

        if record is None:
            if "config" in read_header(self.journal):
                raise JournalError(
                    f"Expected {self.config} to say under 'provenance' where the run was made, but it does not. "
                    "The file was truncated or edited; restore it."
                )
            return {}

        found = RunProvenance.of(record, f"'provenance' in {self.config}").to_json()
        header = read_header(self.journal)
        # The configuration itself was compared where it was loaded.
        strange = [name for name in found.keys() & header.keys() - {"config"} if found[name] != header[name]]
        if strange:
            raise JournalError(
                f"Expected 'provenance' in {self.config} to fit the journal beside it, but {min(strange)} is another. "
                "The file was edited; restore it."
            )
        return found
