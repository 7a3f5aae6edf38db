"""The form in which work crosses to a worker."""

import pickle
from typing import Any

import dill

from lpes_evo.errors import ConfigError

_MOST_BYTES = 1 << 28


def pack(value: Any, what: str) -> bytes:
    """Return a value in the form that crosses to a worker: by dill, so that it may come from a notebook or a function.

    Args:
        value: The value.
        what: What messages call it.

    Returns:
        Its bytes.

    Raises:
        ConfigError: It cannot cross, or is far larger than a description of work.
    """
    try:
        data: bytes = dill.dumps(value, recurse=True)
    except (pickle.PicklingError, TypeError, AttributeError, ValueError, RecursionError, OSError) as error:
        raise ConfigError(
            f"Expected {what} to be something that can cross to a worker process, but it cannot: {error}. Move what it "
            "uses to a module that can be imported, and make locks, files and models inside the spec."
        ) from error
    if len(data) > _MOST_BYTES:
        raise ConfigError(
            f"Expected {what} to be small, but it takes {len(data) >> 20} MiB. Load models and data inside the spec, "
            "where the worker runs it."
        )
    return data


def unpack(data: bytes) -> Any:
    """Return what `pack` was given; only bytes from the pipe between a pool and its own workers come here."""
    return dill.loads(data)  # noqa: S301
