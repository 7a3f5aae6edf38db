"""FileLock: a lock that gives one user, in this process or another, a file or a folder alone."""

import errno
import json
import os
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path

from lpes_evo.errors import JournalError, StorageError

if sys.platform != "win32":
    import fcntl

_LONGEST_RECORD = 1000


class FileLock:
    """A lock on an open file, which the system releases when the process ends.

    Args:
        file: The file that is locked.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self._descriptor = -1

    def acquire(self, whole: str) -> None:
        """Create the lock file, lock it, and write its holder into it.

        Args:
            whole: Name of the folder or file that the lock protects, for messages.

        Raises:
            JournalError: Another process, or another part of this process, holds the lock.
            StorageError: The file cannot be written, or its file system supports no locks.
        """
        try:
            descriptor = os.open(self.file, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            may_not = error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
            remedy = (
                "Choose a folder you may write to" if may_not else "See that its disk is sound and has space"
            )
            raise StorageError(
                f"Expected to write in {self.file.parent}, but the system said: {error.strerror}. {remedy}."
            ) from error

        try:
            lock_descriptor(descriptor, self.file, whole)
            holder = {
                "host": socket.gethostname(),
                "process": os.getpid(),
                "since": time.strftime("%Y-%m-%d %H:%M:%S %z"),
            }

            # A lock without the name of its holder still locks, so a full disk does no harm here.
            with suppress(OSError):
                os.ftruncate(descriptor, 0)
                os.write(descriptor, (json.dumps(holder) + "\n").encode())
        except BaseException:
            os.close(descriptor)
            raise

        self._descriptor = descriptor

    def release(self) -> None:
        """Release the lock; the file stays, since another process may have it open and wait."""
        if self._descriptor >= 0:
            with suppress(OSError):
                os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = -1


def lock_descriptor(
    descriptor: int, file: Path, whole: str, *, taken: str = "another process works in it"
) -> None:
    """Lock an open file for as long as the descriptor is open.

    Args:
        descriptor: The open file.
        file: Path of the file.
        whole: Name of the folder or file that the lock protects, for messages.
        taken: Clause of the message if the lock is taken.

    Raises:
        JournalError: Another process, or another part of this process, holds the lock.
        StorageError: The file system supports no locks.
    """
    if sys.platform == "win32":
        # Locks of Windows also exclude readers, so folders and journals are not locked there.
        return

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError) as error:
        # Some file systems report a lock of another process as a missing permission.
        holder = _holder(descriptor)
        gone = (
            f" If it is gone, as after the crash of its node, delete {file} and run again." if holder else ""
        )
        raise JournalError(
            f"Expected to have {whole} alone, but {taken}{holder}. Wait for it or stop it.{gone}"
        ) from error
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, "unknown")
        raise StorageError(
            f"Expected to lock {file}, but its file system gives no lock: {error.strerror or error} ({name}). Without "
            "one, two processes could write the same files. Choose a folder on a local disk, or have the file system "
            "mounted with locks, such as the option flock of Lustre or the lock daemon of NFS."
        ) from error


def _holder(descriptor: int) -> str:
    """Return the holder of a lock file as the end of a sentence; empty if the file does not name one."""
    try:
        values = json.loads(os.read(descriptor, _LONGEST_RECORD))
        return (
            f": process {values['process']:d} on host {values['host']!s:.100}, since {values['since']!s:.40}"
        )
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ""
