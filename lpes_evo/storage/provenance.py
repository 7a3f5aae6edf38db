"""RunProvenance: the data, model, device, command and versions of a run, with which others can repeat it."""

import platform
import sys
from importlib import metadata
from typing import Any, ClassVar

from lpes_evo.storage._record import Record

_PACKAGES = ("lpes-evo", "torch", "transformers", "numpy", "scipy", "deap", "tokenizers")


class RunProvenance(Record):
    """The data, model, device, command and versions of a run, as under ``provenance`` in its ``config.yaml``.

    Attributes:
        config: SHA-256 of the configuration.
        search_data: SHA-256 of the search examples.
        report_data: SHA-256 of the held-out examples.
        weights: SHA-256 of the weights of the model.
        dtype: ``float32``, ``bfloat16`` or ``float16``.
        attention: Attention backend.
        device: Kind of device, ``cpu`` or ``cuda``.
        revision: Revision on the hub that was asked for.
        n_layers: Number of decoder layers.
        command: The command that started the run.
        versions: Versions of Python and of packages, by name.
        device_name: Product name of the device; the first runs did not record it.
        base: Name of the base model if the model is an adapter.
        notes: Corrections that were made while the model was loaded.
    """

    WHAT: ClassVar[str] = "a record of where a run was made"
    REMEDY: ClassVar[str] = "The file was edited or truncated; restore it."

    config: str
    search_data: str
    report_data: str
    weights: str
    dtype: str
    attention: str
    device: str
    revision: str | None
    n_layers: int
    command: str
    versions: dict[str, str]
    device_name: str | None = None
    base: str | None = None
    notes: tuple[str, ...] = ()


def package_versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that a result depends on."""
    return {
        "python": platform.python_version(),
        **{package: metadata.version(package) for package in _PACKAGES},
    }


def command_line() -> str:
    """Return the command that started this process, without the folder of the program."""
    program = sys.argv[0].replace("\\", "/").rpartition("/")[2]
    return " ".join([program, *sys.argv[1:]])


def describe(**facts: Any) -> dict[str, Any]:
    """Return a record of this run: the given facts, the command and the versions."""
    return {**facts, "command": command_line(), "versions": package_versions()}
