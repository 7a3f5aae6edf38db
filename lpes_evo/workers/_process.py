"""A pool with one process per device, on `multiprocess`."""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import multiprocess
from multiprocess import connection as connections

from lpes_evo.errors import ConfigError
from lpes_evo.workers._child import serve
from lpes_evo.workers._devices import Device, parse_devices
from lpes_evo.workers._outcome import Failure
from lpes_evo.workers._pack import pack, unpack
from lpes_evo.workers._slots import Message, SlotPool, Worker

_starting = threading.Lock()


class DevicePool(SlotPool):
    """One process per device, each with a target of its own; lost processes are replaced on the same device.

    Processes are started by `multiprocess` from a spawn context of its own, so that the start method of the caller
    stays as it is. Each sees exactly one GPU. Functions and specs may be defined in a notebook or a function: they
    cross by value, with the names they use.

    Args:
        devices: The devices, or text for `parse_devices`.
        spec: Makes the target in each worker from the name of its device; it crosses to the worker, so it should say
            how the model is loaded instead of holding one. ``None`` for functions that need no target.
        work_limit: Seconds after which a piece of work counts as hung. ``None`` follows the work itself: 20 times the
            longest seen so far but at least two minutes, and an hour until three are seen.
        silence_limit: Seconds without a sign of life after which a busy or starting worker counts as hung.
        on_event: Hears of lost and replaced workers.

    Raises:
        ConfigError: The devices are not valid, the spec cannot cross to a worker, or the caller is itself a
            worker that is being started: a script without the guard ``if __name__ == "__main__"``.
        LpesError: The target cannot be made; of the class that the spec raised.
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
        if getattr(multiprocess.process.current_process(), "_inheriting", False):
            raise ConfigError(
                "Expected workers to be started by the main program, but a worker that imports it would start them "
                "again. Put the script's work under: if __name__ == '__main__':"
            )
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
        self._start_all()

    def _start(self, number: int) -> Worker:
        device = self._devices[number]
        ours, theirs = self._context.Pipe()
        process = self._context.Process(
            target=serve,
            args=(theirs, self._spec, device.local_name),
            name=self._slots[number].name,
            daemon=True,
        )
        with _starting, _environment(device.environment), _without_interrupts():
            process.start()
        theirs.close()
        return _ProcessWorker(process, ours)

    def _await(self, workers: Sequence[Worker], timeout: float) -> Sequence[Worker]:
        by_connection = {
            worker.connection: worker for worker in workers if isinstance(worker, _ProcessWorker)
        }
        return [by_connection[ready] for ready in connections.wait(list(by_connection), timeout)]


class _ProcessWorker:
    """A process and the pipe to it."""

    def __init__(self, process: Any, connection: Any) -> None:
        self.process = process
        self.connection = connection

    def send(self, request: bytes) -> None:
        """Give it a piece of work; where it is gone, the pipe says so to `receive`."""
        with suppress(OSError):
            self.connection.send_bytes(request)

    def receive(self) -> Message:
        """Return the next message, or that the process is gone."""
        try:
            data = self.connection.recv_bytes()
        except (EOFError, OSError):
            return Message("gone", text=self._end())
        try:
            message = unpack(data)
        except Exception as error:  # whatever the unpickling of a user's value raises
            return Message("done", failure=Failure.of(error))
        return message if isinstance(message, Message) else Message("alive")

    def kill(self) -> None:
        """Kill the process and wait until it is gone."""
        self.process.kill()
        self.process.join()
        self.connection.close()

    def _end(self) -> str:
        """Say how the process ended."""
        self.process.join(5)
        code = self.process.exitcode
        if code is None:
            return "closed its pipe"
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"ended with exit code {code}"


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Set environment variables while a process starts, which takes them over before it imports anything."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Start a process deaf to the interrupt key, which reaches the whole terminal: the parent alone answers it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
