"""DevicePool: one worker process per device, on `multiprocess`.

Messages travel through a `multiprocess.connection.Connection`, whose calls wait. A pool must not wait for a worker
that is stopped in the middle of a message, so two threads beside each worker do the waiting.
"""

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
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
    """One process per device, each with a target of its own; lost processes are replaced on the same device.

    Processes are started by `multiprocess` from a spawn context of its own, so that the start method of the caller
    stays as it is. Each sees exactly one GPU. Functions and specs may be defined in a script, a notebook or a
    function: they cross by value, with the names they use. So workers do not run the caller's script again, and it
    needs no guard.

    Args:
        devices: The devices, or text for `parse_devices`.
        spec: Makes the target in each worker from the name of its device; it crosses to the worker, so it should say
            how the model is loaded instead of holding one. ``None`` for functions that need no target.
        work_limit: Seconds after which work that is still alive counts as hung, from one step to the next, see
            `lpes_evo.workers.mark_step`. ``None`` follows the work itself: 20 times the longest piece seen so far but
            at least two minutes, and an hour until three are seen.
        silence_limit: Seconds without a sign of life after which a busy worker counts as hung, at least 3; ten times
            as many for a worker that makes its target.
        on_event: Hears of lost and replaced workers.

    Raises:
        ConfigError: The devices are not valid, or the spec cannot cross to a worker.
        LpesError: The target cannot be made; of the class that the spec raised, else an `EvaluationError`.
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
        self._inbox: SimpleQueue[tuple[_ProcessWorker, bytes | None]] = SimpleQueue()
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

        worker = _ProcessWorker(process, ours, self._inbox)
        worker.send(self._spec)
        return worker

    def _listen(self, timeout: float) -> Iterator[tuple["_ProcessWorker", Message]]:
        with suppress(Empty):
            worker, frame = self._inbox.get(timeout=timeout)
            while True:
                # What a worker said before it was replaced counts no more.
                if id(worker) in self._slot_of:
                    yield worker, worker.read(frame)
                worker, frame = self._inbox.get_nowait()

        # A process that the work has forked may hold the connection to a dead worker open.
        if time.monotonic() - self._looked_at > _LOOK_SECONDS:
            self._looked_at = time.monotonic()
            for slot in self._slots:
                if isinstance(slot.worker, _ProcessWorker) and not slot.worker.is_alive():
                    slot.worker.hang_up()


class _ProcessWorker:
    """A process, the connection to it, and the threads that send and receive.

    Args:
        process: The process, which is started.
        connection: The connection to it.
        inbox: Takes what the process says, and ``None`` at the end of it.
    """

    is_placed = True

    def __init__(
        self, process: Any, connection: Any, inbox: "SimpleQueue[tuple[_ProcessWorker, bytes | None]]"
    ) -> None:
        self.process = process
        self._connection = connection
        self._inbox = inbox
        self._requests: SimpleQueue[bytes | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=run, name=f"{run.__name__} {process.name}", daemon=True)
            for run in (self._send_all, self._receive_all)
        ]
        for thread in self._threads:
            thread.start()

    def is_alive(self) -> bool:
        return self.process.exitcode is None

    def send(self, request: bytes) -> None:
        self._requests.put(request)

    def read(self, frame: bytes | None) -> Message:
        """Return what a frame says; ``None`` stands for the end of the connection."""
        if frame is None:
            return self._gone()
        return _BEATS[frame] if frame in _BEATS else Message.decode(frame)

    def hang_up(self) -> None:
        """End the connection in both directions, also where another process holds its other end open."""
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
        with suppress(OSError):  # the process is gone, which the other thread tells
            while (request := self._requests.get()) is not None:
                self._connection.send_bytes(request)

    def _receive_all(self) -> None:
        with suppress(EOFError, OSError):
            while True:
                self._inbox.put((self, self._connection.recv_bytes()))
        self._inbox.put((self, None))

    def _gone(self) -> Message:
        """Say how the process ended."""
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
    """Start a process deaf to signals that reach a whole terminal or job: the parent alone answers them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    # It is started together with the first process otherwise, and lets interrupts in when it is.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP, signal.SIGUSR1})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _without_script() -> Iterator[None]:
    """Keep a process that starts from running the script of this one, which multiprocess finds by these names."""
    script = vars(sys.modules["__main__"])
    before: dict[str, Any] = {name: script[name] for name in ("__file__", "__spec__") if name in script}
    script.pop("__file__", None)
    script["__spec__"] = None
    try:
        yield
    finally:
        script.update(before)
