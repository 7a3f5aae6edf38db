"""What runs in a worker process; it imports nothing heavy before the spec does."""

import os
import threading
from typing import Any

import dill

from lpes_evo.workers._outcome import Failure
from lpes_evo.workers._pack import unpack
from lpes_evo.workers._pool import NO_TARGET, perform
from lpes_evo.workers._slots import Message

_BEAT_SECONDS = 1.0


def serve(connection: Any, spec: bytes, device: str) -> None:
    """Make the target, then work until the pool goes away.

    Args:
        connection: The pipe to the pool.
        spec: The spec, pickled by dill.
        device: What this process calls its device.
    """
    channel = _Channel(connection)
    with channel.beating():
        try:
            make = unpack(spec)
            target = NO_TARGET if make is None else make(device)
        except Exception as error:  # it is raised again where the pool was asked for
            channel.send(Message("refused", failure=Failure.of(error)))
            return
    channel.send(Message("ready"))
    while True:
        try:
            request = connection.recv_bytes()
        except (EOFError, OSError):
            return
        with channel.beating():
            channel.send(_answer(request, target))


def _answer(request: bytes, target: Any) -> Message:
    try:
        function, arguments = unpack(request)
    except Exception as error:  # such as a module that only the pool's process has
        return Message("done", failure=Failure.of(error))
    value, failure, seconds = perform(function, target, arguments)
    return Message("done", value=value, failure=failure, seconds=seconds)


class _Channel:
    """Sends messages, and signs of life while this process is busy."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._lock = threading.Lock()

    def send(self, message: Message) -> None:
        """Send a message; without a pool at the other end, end this process at once."""
        try:
            data = dill.dumps(message)
        except Exception as error:  # whatever the pickling of a user's value raises
            data = dill.dumps(Message("done", failure=Failure.of(error)))
        with self._lock:
            try:
                self._connection.send_bytes(data)
            except OSError:
                os._exit(1)

    def beating(self) -> "_Beat":
        """Return a context in which signs of life are sent."""
        return _Beat(self)


class _Beat:
    """Says every second that this process is alive, which also tells it when the pool has died."""

    def __init__(self, channel: _Channel) -> None:
        self._channel = channel
        self._over = threading.Event()

    def __enter__(self) -> None:
        threading.Thread(target=self._run, daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def _run(self) -> None:
        while not self._over.wait(_BEAT_SECONDS):
            self._channel.send(Message("alive"))
