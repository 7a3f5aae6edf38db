"""WorkFolder: a folder that one process at a time works in, protected by a lock."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from lpes_evo.errors import JournalError, StorageError
from lpes_evo.storage._files import make_folder
from lpes_evo.storage._leftovers import remove_leftovers
from lpes_evo.storage._locks import FileLock


@dataclass(frozen=True)
class WorkFolder:
    """A folder that one process at a time works in.

    Attributes:
        path: The folder.
    """

    LOCK: ClassVar[str] = ".lock"
    """Name of the lock file."""

    path: Path

    @contextmanager
    def claimed(self, *in_use: Path, refusal: str) -> Iterator[None]:
        """Create the folder for new work, and keep other processes out while its first files are written.

        Args:
            in_use: Files that must not exist yet.
            refusal: Clause of the message about a folder where one exists, with the way to continue there.

        Raises:
            JournalError: The folder holds one of these files, cannot be created, or another process works in it.
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
        """Keep other processes out of the folder for the length of a block.

        Temporary files that a killed process has left are removed first.

        Raises:
            JournalError: Another process works in the folder; the message names the process and its host.
            StorageError: The folder cannot be written, or its file system supports no locks.
        """
        lock = FileLock(self.path / self.LOCK)
        lock.acquire(str(self.path))
        try:
            remove_leftovers(self.path)
            yield
        finally:
            lock.release()
