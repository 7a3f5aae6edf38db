"""`serve`: the loop of a worker process, which imports nothing heavy before the spec does.

The process watches its parent by the id of the parent. `multiprocess.parent_process` was tried instead, and a worker
then outlived a killed program whose forked child held the pipe of that sentinel open.
"""

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from lpes_evo.workers._message import Message, answer, make_target
from lpes_evo.workers._slots import BEAT_SECONDS
from lpes_evo.workers._steps import n_steps, take_news

ALIVE = b""
"""The frame that says that a worker is alive."""

ADVANCED = b"+"
"""The frame that says that a worker is alive, and that its work has completed a step since the last sign of life."""


def serve(connection: Any, device: str, parent: int) -> None:
    """Make the target, work until the pool closes the connection, and end this process.

    Args:
        connection: The connection to the pool, whose first message is the packed spec.
        device: Name of the device within this process.
        parent: Process id of the pool.
    """
    voice = _Voice(connection, parent)
    try:
        spec = connection.recv_bytes()

        with voice.busy():
            target, message = make_target(spec, device)
            voice.send(message.encode())

        while message.kind != "refused":
            request = connection.recv_bytes()
            with voice.busy():
                message = answer(request, target)
                voice.send(message.encode())
    except (EOFError, OSError):
        pass

    # The pool is gone, or knows that there is no target. Threads that the spec has started must not keep this process
    # alive.
    os._exit(0)


def _flush() -> None:
    """Flush the output of the work, since this process will be killed and would lose it."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):
            stream.flush()


class _Voice:
    """The sending side of a worker: its answers, and a sign of life every second while it is busy.

    The thread that sends the signs of life also ends a worker whose pool has died. A closed connection shows that the
    pool is gone, unless a process that the pool's process has forked holds the connection open. A new parent process
    shows it in every case.
    """

    def __init__(self, connection: Any, parent: int) -> None:
        self._connection = connection
        self._parent = parent
        self._sending = threading.Lock()
        self._is_busy = False
        threading.Thread(target=self._beat, name="heartbeat", daemon=True).start()

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Return a context in which signs of life are sent."""
        self._is_busy = True
        try:
            yield
        finally:
            self._is_busy = False

    def send(self, frame: bytes) -> None:
        """Send an answer, after the output of the work.

        Raises:
            OSError: The pool is gone.
        """
        _flush()
        with self._sending:
            self._connection.send_bytes(frame)

    def _beat(self) -> None:
        n_told = n_steps()
        while True:
            time.sleep(BEAT_SECONDS)
            n_done = n_steps()

            # An answer that is being sent is a sign of life itself.
            if self._is_busy and self._sending.acquire(blocking=False):
                try:
                    news = take_news()
                    plain = ALIVE if n_done == n_told else ADVANCED
                    self._connection.send_bytes(Message("told", text=news).encode() if news else plain)
                    n_told = n_done
                except OSError:
                    os._exit(1)
                finally:
                    self._sending.release()

            if os.getppid() != self._parent:
                os._exit(1)
