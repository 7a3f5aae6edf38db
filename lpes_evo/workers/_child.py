"""What runs in a worker process; it imports nothing heavy before the spec does."""

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from lpes_evo.workers._message import answer, make_target
from lpes_evo.workers._slots import BEAT_SECONDS
from lpes_evo.workers._steps import n_steps

ALIVE = b""
"""The frame that says only that a worker is alive."""

ADVANCED = b"+"
"""The frame that says that a worker is alive, and that its work has done a step since the last sign of life."""


def serve(connection: Any, device: str, parent: int) -> None:
    """Make the target, then work until the pool goes away, and end this process.

    Args:
        connection: The connection to the pool, on which the packed spec comes first.
        device: What this process calls its device.
        parent: The process of the pool.
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

    # The pool is gone, or knows that there is no target. Threads that the spec left behind must not keep this process.
    os._exit(0)


def _flush() -> None:
    """Bring out what the work has printed: this process will be killed."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):
            stream.flush()


class _Voice:
    """Speaks for a worker: sends its answers, and every second that it is alive while it is busy.

    The thread of the signs of life ends a worker whose pool has died. A closed connection tells that the pool is gone,
    unless a process that the pool's own has forked holds it open; the parent of this process tells it always.
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
        """Send an answer, after what the work has printed.

        Raises:
            OSError: The pool is gone.
        """
        _flush()
        with self._sending:
            self._connection.send_bytes(frame)

    def _beat(self) -> None:
        told = n_steps()
        while True:
            time.sleep(BEAT_SECONDS)
            done = n_steps()

            # An answer that is on its way is a sign of life itself.
            if self._is_busy and self._sending.acquire(blocking=False):
                try:
                    self._connection.send_bytes(ALIVE if done == told else ADVANCED)
                    told = done
                except OSError:
                    os._exit(1)
                finally:
                    self._sending.release()

            if os.getppid() != self._parent:
                os._exit(1)
