"""Where and with what a run was made, so that another can repeat it."""

import platform
import sys
from importlib import metadata
from typing import Any

_PACKAGES = ("lpes-evo", "torch", "transformers", "numpy", "scipy", "deap", "tokenizers")


def package_versions() -> dict[str, str]:
    """Return the versions of Python and of the packages a result depends on."""
    return {
        "python": platform.python_version(),
        **{package: metadata.version(package) for package in _PACKAGES},
    }


def command_line() -> str:
    """Return the command that started this process, without the folder of the program."""
    program = sys.argv[0].replace("\\", "/").rpartition("/")[2]
    return " ".join([program, *sys.argv[1:]])


def describe(**facts: Any) -> dict[str, Any]:
    """Return a record of this run: the facts given, the command and the versions."""
    return {**facts, "command": command_line(), "versions": package_versions()}
