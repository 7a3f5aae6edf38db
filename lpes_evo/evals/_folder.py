"""EvalFolder: the folder of an evaluation, its files and its configuration."""

import hashlib
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lpes_evo.config import hash_values, settings_from, settings_hash
from lpes_evo.errors import ConfigError, JournalError
from lpes_evo.evals._config import EvalConfig
from lpes_evo.runs import RunFolder
from lpes_evo.storage import WorkFolder, parse_yaml, read_header, read_text, write_atomic

_LONGEST_NAME = 200


@dataclass(frozen=True)
class EvalFolder(WorkFolder):
    """The files of an evaluation.

    Attributes:
        path: The folder.
    """

    @property
    def config(self) -> Path:
        """Resolved configuration and provenance."""
        return self.path / "config.yaml"

    @property
    def scales(self) -> Path:
        """The scales that are judged, as they were when the evaluation began."""
        return self.path / "scales.json"

    @property
    def answers(self) -> Path:
        """One line for each answer."""
        return self.path / "answers.jsonl"

    @property
    def results(self) -> Path:
        """Scores, intervals and differences."""
        return self.path / "results.json"

    @property
    def markdown(self) -> Path:
        """The table for a document."""
        return self.path / "results.md"

    @property
    def csv(self) -> Path:
        """The table for a spreadsheet."""
        return self.path / "results.csv"

    def picture(self, task: str) -> Path:
        """Return where the picture of a task with positions is."""
        letters = "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in task)
        if len(letters.encode()) > _LONGEST_NAME:
            # File systems take 255 bytes, the temporary name of the file included.
            letters = hashlib.sha256(task.encode()).hexdigest()
        return self.path / f"positions-{letters}.png"

    def create(self, config: EvalConfig) -> None:
        """Make the folder for a new evaluation and write its configuration.

        Args:
            config: The configuration.

        Raises:
            JournalError: The folder already holds a run or an evaluation, cannot be made, or another process works in
                it.
            StorageError: The configuration cannot be written.
        """
        in_use = (self.answers, RunFolder(self.path).journal)
        again = f"lpes-evo eval --resume {shlex.quote(str(self.path))}"
        with self.claimed(*in_use, refusal=f"is in use already. Continue an evaluation with: {again}"):
            self.write_config(config)

    def write_config(self, config: EvalConfig, record: dict[str, Any] | None = None) -> None:
        """Write the configuration, and a record of where the evaluation was made once it is known.

        Raises:
            StorageError: The file cannot be written.
        """
        values = {"eval": config.model_dump(mode="json")} | ({} if record is None else {"provenance": record})
        write_atomic(self.config, yaml.safe_dump(values, sort_keys=False))

    def load_config(self) -> EvalConfig:
        """Return the configuration of the evaluation in this folder.

        Raises:
            JournalError: The folder holds no evaluation, or its configuration is not the one it was begun with.
            ConfigError: Its configuration is not valid.
        """
        text = read_text(
            self.config, "a folder of an evaluation with config.yaml at", JournalError, "Check the path."
        )
        values = parse_yaml(text, str(self.config), ConfigError, "Restore the file.")

        settings = values.get("eval") if isinstance(values, dict) else None
        if not isinstance(settings, dict) or not all(isinstance(key, str) for key in settings):
            raise JournalError(
                f"Expected {self.config} to hold the configuration of an evaluation under the key eval, but it does "
                "not. Name a folder that 'lpes-evo eval' made."
            )

        config = settings_from(self.config, EvalConfig, settings)
        self._check_unchanged(config, settings)
        return config

    def _check_unchanged(self, config: EvalConfig, settings: dict[str, Any]) -> None:
        """Refuse a configuration that is not the one that the answers were begun with.

        Raises:
            JournalError: The file was edited or truncated, or the answers are damaged.
        """
        recorded = read_header(self.answers).get("config")
        # A version with other defaults still has the values as they were written.
        as_written = {name: value for name, value in settings.items() if name != "methods"}
        if recorded not in (None, settings_hash(config, exclude={"methods"}), hash_values(as_written)):
            raise JournalError(
                f"Expected {self.config} to belong to this evaluation, but its config is not the one that "
                f"{self.answers.name} was begun with. The file was edited or truncated; restore it."
            )
