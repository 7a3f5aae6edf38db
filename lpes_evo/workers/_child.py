"""What runs in a worker process; it imports nothing heavy before the spec does."""

import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from lpes_evo.workers._message import answer, make_target
from lpes_evo.workers._slots import BEAT_SECONDS
from lpes_evo.workers._steps import n_steps
from lpes_evo.workers._stream import WorkerEnd

ALIVE = b""
"""The frame that says only that a worker is alive."""

ADVANCED = b"+"
"""The frame that says that a worker is alive, and that its work has done a step since the last sign of life."""


def serve(channel: socket.socket, device: str, parent: int) -> None:
    """Make the target, then work until the pool goes away, and end this process.

    Args:
        channel: The socket to the pool, on which the packed spec comes first.
        device: What this process calls its device.
        parent: The process of the pool.
    """
    stream = WorkerEnd(channel)
    beat = _Beat(stream, parent)
    try:
        spec = stream.receive()
        with beat.busy():
            target, message = make_target(spec, device)
            _flush()
            stream.send(message.encode())
        while message.kind != "refused":
            request = stream.receive()
            with beat.busy():
                message = answer(request, target)
                _flush()
                stream.send(message.encode())
    except (EOFError, OSError):
        pass
    # The pool is gone, or knows that there is no target. Threads that the spec left behind must not keep this process.
    os._exit(0)


def _flush() -> None:
    """Bring out what the work has printed: this process will be killed."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):
            stream.flush()


class _Beat:
    """Says every second that a busy worker is alive, and ends a worker whose pool has died.

    A closed socket tells that the pool is gone, unless a process that the pool's own has forked holds it open; the
    parent of this process tells it always.
    """

    def __init__(self, stream: WorkerEnd, parent: int) -> None:
        self._stream = stream
        self._parent = parent
        self._is_busy = False
        self._pause = threading.Event()
        threading.Thread(target=self._run, name="heartbeat", daemon=True).start()

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Return a context in which signs of life are sent."""
        self._is_busy = True
        try:
            yield
        finally:
            self._is_busy = False

    def _run(self) -> None:
        told = n_steps()
        while not self._pause.wait(BEAT_SECONDS):
            done = n_steps()
            try:
                if self._is_busy and self._stream.offer(ALIVE if done == told else ADVANCED):
                    told = done
            except OSError:
                os._exit(1)
            if os.getppid() != self._parent:
                os._exit(1)
