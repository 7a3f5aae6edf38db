"""The errors of lpes-evo, one class for each kind of fault.

Every class derives from `LpesError` and from the builtin error that a caller would expect. So both ``except LpesError``
and ``except ValueError`` work.
"""

from lpes_evo.operators import CurveError, LpesError

__all__ = [
    "ConfigError",
    "CurveError",
    "EvaluationError",
    "JournalError",
    "LpesError",
    "ModelError",
    "ScalesError",
    "SearchOrderError",
    "StorageError",
    "TaskError",
    "UnsupportedModelError",
    "install_command",
]


class ConfigError(LpesError, ValueError):
    """A configuration value or key is not valid."""


class ScalesError(LpesError, ValueError):
    """A vector of scales or a ``scales.json`` file is not valid, or belongs to another model."""


class TaskError(LpesError, ValueError):
    """A task, its data file or one of its examples is not valid."""


class ModelError(LpesError, ValueError):
    """A model or tokenizer could not be loaded, or its weights are not sound."""


class UnsupportedModelError(ModelError, TypeError):
    """The architecture has no rotary embedding that can be scaled layer by layer."""


class SearchOrderError(LpesError, RuntimeError):
    """The methods of a search were called in the wrong order, or with results that do not match its candidates."""


class JournalError(LpesError, RuntimeError):
    """A run folder or its journal is damaged, or belongs to another configuration."""


class StorageError(LpesError, OSError):
    """A file of a run cannot be read or written, for example because the disk is full."""

    exit_code = 1


class EvaluationError(LpesError, RuntimeError):
    """Too many evaluations in a row failed; the run was stopped."""

    exit_code = 1


def install_command(extra: str) -> str:
    """Return the command that installs an extra of this package, for the remedy of an error.

    Args:
        extra: Name of the extra, as in ``pyproject.toml``.
    """
    return f"pip install '.[{extra}]'"
