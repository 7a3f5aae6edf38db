"""The process of a command: signals that stop the process cleanly, and standard streams that may fail under it."""

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TextIO

from lpes_evo.reporting import error_console, say

INTERRUPTED = 128 + signal.SIGINT
"""Exit code of a command that the interrupt key has stopped."""

# Terminals hang up, and Slurm sends SIGUSR1 before it takes a machine away; Windows knows neither.
_STOPPING = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1") if hasattr(signal, name)
)


class Stopped(KeyboardInterrupt):
    """A signal that stops the command; it is raised where the program stands, so that every file is closed.

    Attributes:
        number: The number of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def stopping_signals() -> Iterator[Callable[[], int | None]]:
    """Return a context in which signals raise `Stopped`.

    A signal that is ignored when the command starts, such as SIGHUP under ``nohup``, stays ignored.

    Yields:
        A function that returns the number of the signal that has come, or ``None``.
    """
    received: list[int] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        # A second signal would interrupt the tidying up.
        for other in listened:
            signal.signal(other, signal.SIG_IGN)
        raise Stopped(number)

    listened = [number for number in _STOPPING if signal.getsignal(number) is not signal.SIG_IGN]
    for number in listened:
        signal.signal(number, stop)
    yield lambda: received[0] if received else None


@contextmanager
def told_how_to_go_on(line: str) -> Iterator[None]:
    """Return a context that prints a line when the work inside is stopped.

    Args:
        line: The line, which says what is safe and how to go on.
    """
    try:
        yield
    except KeyboardInterrupt:
        say(line, error_console)
        raise


class _Stream:
    """A standard stream whose failure does not end the work: all output after the first failure is dropped.

    Attributes:
        fault: The first failure; ``None`` before there is one.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.fault: OSError | ValueError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write a text, or drop it after a failure."""
        self._attempt(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        """Write what is buffered, or drop it after a failure."""
        self._attempt(self._stream.flush)

    def _attempt(self, action: Callable[[], Any]) -> None:
        """Do something with the stream unless it has failed, and remember its first failure."""
        if self.fault is not None:
            return
        try:
            action()
        except (OSError, ValueError) as error:  # a ValueError where code of a user has closed the stream
            self.fault = error
            # The rest of the buffer must not fail once more at the end of the process.
            with contextlib.suppress(OSError, ValueError), open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), self._stream.fileno())


def secure_streams() -> None:
    """Make the standard streams safe to write to, whatever the command was started with.

    A stream that was closed is opened to nowhere, so that no file of the command takes its number. A letter that the
    encoding of a stream lacks is written as an escape. Output to a stream that fails later is dropped, see
    `lost_output`.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, closefd=False))

    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
        setattr(sys, name, _Stream(stream))


def lost_output() -> str | None:
    """Return why the standard output was lost, or ``None``.

    A reader that has seen enough, such as ``head -1``, is no loss.
    """
    stream = sys.stdout
    if not isinstance(stream, _Stream):
        return None

    stream.flush()
    fault = stream.fault
    if fault is None or isinstance(fault, BrokenPipeError):
        return None
    return str(getattr(fault, "strerror", None) or fault)
