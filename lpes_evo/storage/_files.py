"""`write_atomic`: files that are written so that a reader sees the old or the new content, and never a part of it."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from lpes_evo.errors import ConfigError, StorageError


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write ``content`` to a temporary file beside ``path``, flush it to the disk, and rename it.

    Args:
        path: The file to write; its folder must exist.
        content: Text (written as UTF-8) or bytes.

    Raises:
        StorageError: The file cannot be written.
    """
    data = content.encode() if isinstance(content, str) else content
    temporary = None
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp creates private files, but a result has the permissions of any new file.
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        raise StorageError(
            f"Expected to write {path}, but the system said: {error.strerror or error}. "
            "Free some space or choose a folder you may write to, then run the same command again."
        ) from error


def check_new_file(path: Path) -> None:
    """Check, before long work, that its result can be written to a new file.

    Args:
        path: The file.

    Raises:
        ConfigError: The path exists already, or its folder is missing or accepts no file of this name.
    """
    try:
        is_there, has_folder = path.exists(), path.absolute().parent.is_dir()
        if has_folder and not is_there:
            descriptor, temporary = tempfile.mkstemp(dir=path.absolute().parent, prefix=f".{path.name}.")
            os.close(descriptor)
            os.unlink(temporary)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"Expected a file to write the result to, but the system refuses {path!s:.200}: {reason}. "
            "Name another --output."
        ) from error

    if is_there:
        raise ConfigError(
            f"Expected a new file for the result, but {path} exists. Move it away or name another --output."
        )

    if not has_folder:
        raise ConfigError(f"Expected a folder for {path}, but there is none. Create it first.")


def make_folder(path: Path) -> None:
    """Create a folder and its parents, unless it exists.

    Args:
        path: The folder.

    Raises:
        StorageError: The folder cannot be created.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"Expected to make the folder {path}, but the system said: {error.strerror}. "
            "Choose an --output you may write to."
        ) from error


def _umask() -> int:
    """Return the umask of the process, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def to_json(value: Any, *, indent: int | None = None) -> str:
    """Return a value as strict ASCII JSON, in which floats round-trip exactly; NaN and infinity are refused.

    Args:
        value: Any value that `json` can write.
        indent: Spaces of indentation; ``None`` for one line.

    Returns:
        The JSON text.

    Raises:
        ValueError: The value holds a number that is not finite.
    """
    return json.dumps(value, indent=indent, allow_nan=False)
