"""DevicePool: one worker process per device, on `multiprocess`.

Messages are sent through a `multiprocess.connection.Connection`, whose calls block. The pool must not block when a
worker is stopped in the middle of a message, so each worker has two threads in this process that send and receive.
"""

import os
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Any

import multiprocess
from multiprocess import resource_tracker

from lpes_evo.errors import ConfigError
from lpes_evo.workers._child import ADVANCED, ALIVE, serve
from lpes_evo.workers._devices import Device, environment, parse_devices
from lpes_evo.workers._message import Message
from lpes_evo.workers._pack import pack
from lpes_evo.workers._slots import Slot, SlotPool

_BURY_SECONDS = 10.0
_LOOK_SECONDS = 1.0

_starting = threading.Lock()
_BEATS = {ALIVE: Message("alive"), ADVANCED: Message("advanced")}


class DevicePool(SlotPool):
    """A pool with one process per device, each with its own target; a lost process is replaced on the same device.

    `multiprocess` starts the processes from a separate spawn context, so that the start method of the caller is
    unchanged. Each process sees exactly one GPU. Functions and specs may be defined in a script, a notebook or a
    function, since they are sent by value, together with the names that they use. So workers do not run the script of
    the caller again, and the script needs no ``__main__`` guard.

    Args:
        devices: The devices, or a text for `parse_devices`.
        spec: Makes the target in each worker from the name of its device. The spec is sent to the worker, so it should
            load a model instead of holding one. ``None`` for functions that need no target.
        work_limit: Seconds after which work that is still alive counts as hung, from one step to the next, see
            `lpes_evo.workers.mark_step`. ``None`` follows the work itself: 20 times the longest piece seen so far but
            at least two minutes, and an hour until three are seen.
        silence_limit: Seconds without a sign of life after which a busy worker counts as hung, at least 3; ten times
            as many for a worker that makes its target.
        on_event: Called with one line about each lost or replaced worker.

    Raises:
        ConfigError: The devices are not valid, or the spec cannot be sent to a worker.
        LpesError: The target cannot be made. The class is that of the error of the spec, or else `EvaluationError`.
        EvaluationError: The workers die before they are ready.
    """

    def __init__(
        self,
        devices: str | Sequence[Device],
        spec: Callable[[str], Any] | None = None,
        *,
        work_limit: float | None = None,
        silence_limit: float = 60.0,
        on_event: Callable[[str], None] | None = None,
    ) -> None:
        self._devices = parse_devices(devices) if isinstance(devices, str) else tuple(devices)
        if not self._devices:
            raise ConfigError("Expected at least one device, but got none.")

        super().__init__(
            [device.name for device in self._devices],
            work_limit=work_limit,
            silence_limit=silence_limit,
            on_event=on_event,
        )
        self._context = multiprocess.get_context("spawn")
        self._spec = pack(spec, "the spec of the pool")
        self._inbox: deque[tuple[_ProcessWorker, bytes | None]] = deque()
        self._has_arrived = threading.Event()
        self._looked_at = 0.0
        self._start_all()

    def _start(self, slot: Slot) -> "_ProcessWorker":
        device = self._devices[slot.number]
        ours, theirs = self._context.Pipe()

        try:
            process = self._context.Process(
                target=serve, args=(theirs, device.local_name, os.getpid()), name=slot.name, daemon=True
            )
            with _starting, environment(device.environment), _without_interrupts(), _without_script():
                process.start()
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()

        worker = _ProcessWorker(process, ours, self._deliver)
        worker.send(self._spec)
        return worker

    def _listen(self, timeout: float) -> Iterator[tuple["_ProcessWorker", Message]]:
        self._has_arrived.wait(timeout)
        self._has_arrived.clear()
        while self._inbox:
            worker, frame = self._inbox.popleft()

            # Messages of a worker that was replaced are out of date.
            if id(worker) in self._slot_of:
                yield worker, worker.read(frame)

        # A process that the work has forked may hold the connection to a dead worker open, so its end does not come.
        if time.monotonic() - self._looked_at > _LOOK_SECONDS:
            self._looked_at = time.monotonic()
            for slot in self._slots:
                if isinstance(slot.worker, _ProcessWorker) and not slot.worker.is_alive():
                    slot.worker.hang_up()

    def _deliver(self, worker: "_ProcessWorker", frame: bytes | None) -> None:
        self._inbox.append((worker, frame))
        self._has_arrived.set()


class _ProcessWorker:
    """A process, the connection to it, and the threads that send and receive.

    Args:
        process: The process, which has been started.
        connection: The connection to the process.
        deliver: Called in a thread with this worker and each frame that the process sends, and with ``None`` at the
            end of the connection.
    """

    is_placed = True

    def __init__(
        self, process: Any, connection: Any, deliver: Callable[["_ProcessWorker", bytes | None], None]
    ) -> None:
        self.process = process
        self._connection = connection
        self._deliver = deliver
        self._requests: SimpleQueue[bytes | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=run, name=f"{run.__name__} {process.name}", daemon=True)
            for run in (self._send_all, self._receive_all)
        ]

        # An interrupt must reach the main thread, which alone wakes up by it.
        with _without_interrupts():
            for thread in self._threads:
                thread.start()

    def is_alive(self) -> bool:
        return self.process.exitcode is None

    def send(self, request: bytes) -> None:
        self._requests.put(request)

    def read(self, frame: bytes | None) -> Message:
        """Return the message of a frame; ``None`` stands for the end of the connection."""
        if frame is None:
            return self._gone()
        return _BEATS[frame] if frame in _BEATS else Message.decode(frame)

    def hang_up(self) -> None:
        """End the connection in both directions, also if another process holds its other end open."""
        with socket.socket(fileno=os.dup(self._connection.fileno())) as channel, suppress(OSError):
            channel.shutdown(socket.SHUT_RDWR)

    def kill(self) -> None:
        self.process.kill()
        self.hang_up()

    def bury(self) -> None:
        self._requests.put(None)
        for thread in self._threads:
            thread.join()
        self._connection.close()

        # A process that waits for a broken driver cannot be ended, and must not hold up the others.
        self.process.join(_BURY_SECONDS)
        if self.process.exitcode is not None:
            self.process.close()

    def _send_all(self) -> None:
        with suppress(OSError):  # the process is gone, which the other thread reports
            while (request := self._requests.get()) is not None:
                self._connection.send_bytes(request)

    def _receive_all(self) -> None:
        with suppress(EOFError, OSError):
            while True:
                self._deliver(self, self._connection.recv_bytes())
        self._deliver(self, None)

    def _gone(self) -> Message:
        """Return a message about the end of the process."""
        self.process.join(_BURY_SECONDS)
        code = self.process.exitcode
        if code is None:
            return Message("gone", text="closed its connection")
        if code < 0:
            return Message("gone", text=f"was killed by {_signal_name(-code)}")
        return Message("gone", text=f"ended with exit code {code}")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal has no name
        return f"signal {number}"


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Block signals that reach a whole terminal or job in processes and threads that start inside the context.

    The main thread of this process alone answers these signals.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    # Otherwise the tracker would be started together with the first process, and would unblock interrupts.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP, signal.SIGUSR1})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _without_script() -> Iterator[None]:
    """Keep processes that start here from running the script of this one, which multiprocess finds by these names."""
    script = vars(sys.modules["__main__"])
    before: dict[str, Any] = {name: script[name] for name in ("__file__", "__spec__") if name in script}
    script.pop("__file__", None)
    script["__spec__"] = None
    try:
        yield
    finally:
        script.update(before)
