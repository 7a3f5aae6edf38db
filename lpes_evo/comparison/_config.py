"""ComparisonConfig and ComparisonFolder: the settings of a comparison, and the files of its folder."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, model_validator

from lpes_evo.comparison._arenas import arena_names
from lpes_evo.comparison._contestants import CONTESTANTS, REFERENCE
from lpes_evo.config import RunConfig, SearchSettings, Settings, settings_from
from lpes_evo.errors import JournalError
from lpes_evo.runs import RunFolder
from lpes_evo.storage import WorkFolder, parse_yaml, read_text, write_atomic


class ComparisonConfig(Settings):
    """A comparison of optimisers, or the ablation of ours.

    Attributes:
        kind: ``compare`` for optimisers, ``ablate`` for the default search on other curves.
        arenas: ``target``, ``rough``, ``brachistochrone``, ``model``.
        contestants: Optimisers (``ga``, ``plain-ga``, ``steady-state``, ``nsga2``, ``random``, ``cma-es``,
            ``cma-es-wide``, ``tpe``, ``free-ga``), or variants of the ablation (such as ``bezier-6``, ``linear-4``,
            ``amplitude-0.1``, ``x-free``); all of them when empty. The reference takes part in any case.
        n_evaluations: Number of evaluations of every search.
        n_seeds: Number of searches of every contestant in every arena, with the seeds from 0.
        run: Model, task, examples and curve of the arena ``model``; sizes and probabilities of our searches in all
            arenas. There is no racing, so that every evaluation of every contestant is a full one.
    """

    kind: Literal["compare", "ablate"] = "compare"
    arenas: tuple[str, ...] = Field(default=tuple(arena_names()), min_length=1)
    contestants: tuple[str, ...] = ()
    n_evaluations: int = Field(default=120, ge=1, le=100_000, strict=True)
    n_seeds: int = Field(default=5, ge=2, le=10_000, strict=True)
    run: RunConfig = RunConfig()

    @model_validator(mode="after")
    def _names_are_known(self) -> "ComparisonConfig":
        """Refuse names that are unknown, and fewer evaluations than a first population needs.

        Raises:
            ValueError: There are such names, or so few evaluations.
        """
        _check_names("arenas", self.arenas, arena_names())
        if self.kind == "compare":
            _check_names("contestants", self.contestants, list(CONTESTANTS))
        size = self.run.search.population_size
        if self.n_evaluations < size:
            raise ValueError(
                f"expected n_evaluations of at least search.population_size = {size}, but got {self.n_evaluations}"
            )
        return self

    @property
    def search(self) -> SearchSettings:
        """Sizes and probabilities of our searches, without racing."""
        return SearchSettings(**self.run.search.model_dump() | {"racing": False})

    @property
    def reference(self) -> str:
        """The contestant that all others are compared with."""
        return REFERENCE if self.kind == "compare" else "default"


def _check_names(what: str, names: tuple[str, ...], known: Any) -> None:
    """Refuse names that are unknown or come twice.

    Raises:
        ValueError: There is such a name.
    """
    unknown = [name for name in names if name not in known]
    if unknown or len(set(names)) != len(names):
        raise ValueError(
            f"expected {what} to be distinct names out of {', '.join(known)}, but got {', '.join(names)}"
        )


@dataclass(frozen=True)
class ComparisonFolder(WorkFolder):
    """The files of a comparison.

    Attributes:
        path: The folder.
    """

    @property
    def config(self) -> Path:
        """The configuration."""
        return self.path / "comparison.yaml"

    @property
    def results(self) -> Path:
        """Standings of every arena."""
        return self.path / "results.json"

    @property
    def markdown(self) -> Path:
        """The tables for a document."""
        return self.path / "results.md"

    def journal(self, arena: str, contestant: str, seed: int) -> Path:
        """Return the journal of one search."""
        return self.path / "journals" / arena / f"{contestant}-{seed}.jsonl"

    def held_out(self, arena: str) -> Path:
        """Return the journal of the measurement on held-out examples."""
        return self.path / "journals" / arena / "held-out.jsonl"

    def picture(self, name: str) -> Path:
        """Return the path of a picture, without its ending."""
        return self.path / name

    def create(self, config: ComparisonConfig) -> None:
        """Make the folder for a new comparison and write its configuration.

        Raises:
            JournalError: The folder already holds a comparison or a run, cannot be made, or is in use by another
                process.
            StorageError: The configuration cannot be written.
        """
        in_use = (self.config, RunFolder(self.path).journal)
        again = f"lpes-evo {config.kind} --resume {shlex.quote(str(self.path))}"
        with self.claimed(*in_use, refusal=f"is in use. Continue a comparison with: {again}"):
            write_atomic(self.config, yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False))

    def load_config(self) -> ComparisonConfig:
        """Return the configuration of the comparison in this folder.

        Raises:
            JournalError: The folder holds no comparison, or its configuration is no YAML.
            ConfigError: The configuration is not valid.
        """
        what = f"a comparison with {self.config.name} at"
        text = read_text(self.config, what, JournalError, "Check the path.")
        values = parse_yaml(text, str(self.config), JournalError, "Restore it.")
        if not isinstance(values, dict):
            raise JournalError(
                f"Expected {self.config} to be a mapping, but got {type(values).__name__}. Restore it."
            )

        named = {str(key): value for key, value in values.items()}
        return settings_from(self.config, ComparisonConfig, named)
