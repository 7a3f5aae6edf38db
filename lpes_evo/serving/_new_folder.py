"""New folders and files: written beside their place under another name, and put there whole or not at all."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lpes_evo.errors import ConfigError, JournalError, StorageError
from lpes_evo.storage import FileLock, make_folder

_MARK = ".lpes-export"
_LOCK = ".lock"


def check_new_folder(out: Path, source: Path | None) -> None:
    """Make sure, before long work, that a folder can be written.

    Args:
        out: The folder.
        source: Folder or file of the model, ``None`` for one on the hub.

    Raises:
        ConfigError: Something is there already, or the folder would be inside the model.
    """
    try:
        is_there = os.path.lexists(out)
        place, model = out.absolute().resolve(), None if source is None else source.absolute().resolve()
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"Expected a folder to write, but the system refuses {out!s:.200}: {error}. Name another one."
        ) from error
    if is_there:
        raise ConfigError(f"Expected a new folder, but {out} exists. Move it away or name another one.")
    if model is not None and model.is_dir() and model in place.parents:
        raise ConfigError(
            f"Expected a folder outside of the model, but {out} is inside {source}. Name one beside it."
        )


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """Return a context with an empty folder, which gets its name when the block ends.

    Until then the folder has another name, beside that one. It is removed where the block fails; what a killed process
    left there, the next one removes.

    Args:
        out: The folder that is to be.

    Yields:
        The folder to write into.

    Raises:
        StorageError: The folder cannot be made, flushed to the disk, or renamed.
        JournalError: Another process is writing the same folder.
    """
    with _unfinished(out) as folder:
        yield folder
        _flush(folder)
        (folder / _LOCK).unlink()
        os.rename(folder, out.absolute())
        _flush_name(out)


@contextmanager
def new_file(out: Path) -> Iterator[Path]:
    """Return a context with the path of a file, which gets its name when the block ends.

    Args:
        out: The file that is to be.

    Yields:
        The path to write to.

    Raises:
        StorageError: The file cannot be written, flushed to the disk, or renamed.
        JournalError: Another process is writing the same file.
    """
    with _unfinished(out) as folder:
        yield folder / out.name
        _flush_one(folder / out.name)
        os.rename(folder / out.name, out.absolute())
        _flush_name(out)


@contextmanager
def _unfinished(out: Path) -> Iterator[Path]:
    """Return a context with a locked folder beside ``out``, of which nothing is left when the block ends."""
    out = out.absolute()
    remove_unfinished(out.parent)

    folder = out.parent / f".{out.name}{_MARK}"
    make_folder(folder)
    lock = FileLock(folder / _LOCK)
    lock.acquire(str(out))

    try:
        yield folder
    except OSError as error:
        if isinstance(error, StorageError):
            raise
        raise StorageError(
            f"Expected to write {out}, but the system said: {error.strerror or error}. Nothing was left there. Free "
            "some space or choose a folder you may write to, then run the same command again."
        ) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        lock.release()


def remove_unfinished(parent: Path) -> None:
    """Remove the unfinished folders of killed processes.

    Args:
        parent: The folder in which they are; those of running processes are left alone.
    """
    with suppress(OSError):
        for folder in parent.glob(f".*{_MARK}"):
            lock = FileLock(folder / _LOCK)
            with suppress(JournalError, StorageError):
                lock.acquire(str(folder))
                shutil.rmtree(folder, ignore_errors=True)
                lock.release()


def _flush(folder: Path) -> None:
    """Flush the files of a folder, and the folder, to the disk."""
    for path in folder.rglob("*"):
        # A link to a file of the model was flushed when that one was written.
        if path.is_dir() or path.stat().st_nlink == 1:
            _flush_one(path)
    _flush_one(folder)


def _flush_name(out: Path) -> None:
    """Flush the folder that a name was put into, so that the name outlives a loss of power."""
    # What was written is there under its name by now, so that a fault is no reason to say otherwise.
    with suppress(OSError):
        _flush_one(out.absolute().parent)


def _flush_one(path: Path) -> None:
    if path.is_dir() and os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
