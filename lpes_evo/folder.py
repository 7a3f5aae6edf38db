"""Folders that work is done in: their lock, and the files of a run."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import yaml

from lpes_evo._files import make_folder, write_atomic
from lpes_evo.config import RunConfig, load_config
from lpes_evo.errors import ConfigError, JournalError, StorageError
from lpes_evo.journal import read_header
from lpes_evo.provenance import RunProvenance
from lpes_evo.storage import FileLock, parse_yaml, read_text, remove_leftovers


@dataclass(frozen=True)
class WorkFolder:
    """A folder that one process at a time works in.

    Attributes:
        path: The folder.
    """

    LOCK: ClassVar[str] = ".lock"
    """Name of the file that is locked."""

    path: Path

    @contextmanager
    def claimed(self, *in_use: Path, refusal: str) -> Iterator[None]:
        """Make the folder for new work, and keep others out while its first files are written.

        Args:
            in_use: Files of which none may be there.
            refusal: What the message says of a folder where one is, and how to go on there.

        Raises:
            JournalError: The folder holds one of these files, cannot be made, or another process works in it.
        """
        try:
            make_folder(self.path)
        except StorageError as error:
            raise JournalError(str(error)) from error
        with self.locked():
            if any(file.exists() for file in in_use):
                raise JournalError(
                    f"Expected a new folder, but {self.path} {refusal}. Or choose another --output."
                )
            yield

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep every other process out of the folder for the length of a block.

        What a killed process left of files that it was writing is removed first.

        Raises:
            JournalError: Another process works in the folder; the message says which, and on which host.
            StorageError: The folder cannot be written, or its file system gives no locks.
        """
        lock = FileLock(self.path / self.LOCK)
        lock.acquire(str(self.path))
        try:
            remove_leftovers(self.path)
            yield
        finally:
            lock.release()


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
        """Write the configuration, and a record of where the run was made once it is known.

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
        """Return where and with what the run was made; empty in one that never got so far.

        Returns:
            The values of `lpes_evo.provenance.describe`.

        Raises:
            JournalError: The folder holds no run, or the record was edited or is missing although the search has begun.
            ConfigError: The configuration is not valid.
        """
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
        # The configuration itself is compared where it is loaded.
        strange = [name for name in found.keys() & header.keys() - {"config"} if found[name] != header[name]]
        if strange:
            raise JournalError(
                f"Expected 'provenance' in {self.config} to fit the journal beside it, but {min(strange)} is another. "
                "The file was edited; restore it."
            )
        return found
