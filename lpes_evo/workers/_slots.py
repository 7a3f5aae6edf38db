"""Pools whose workers can be lost: slots, dealing, retries, limits of time."""

import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from lpes_evo.errors import ConfigError, EvaluationError
from lpes_evo.workers._outcome import Failure
from lpes_evo.workers._pack import pack
from lpes_evo.workers._pool import MAX_ATTEMPTS, Job, Pool, Usage

_MAX_FAILED_STARTS = 3
_TICK = 0.5
_FIRST_LIMIT, _LEAST_LIMIT, _LIMIT_FACTOR = 3600.0, 120.0, 20


@dataclass(frozen=True)
class Message:
    """What a worker says.

    Attributes:
        kind: ``ready`` to work; ``refused``: its target cannot be made; ``alive``; ``done`` with a piece of work;
            ``gone``: the worker is no more.
        value: What the work returned.
        failure: Why there is no value, or why the target could not be made.
        seconds: Time of the work.
        text: For a worker that is gone, how it ended.
    """

    kind: Literal["ready", "refused", "alive", "done", "gone"]
    value: Any = None
    failure: Failure | None = None
    seconds: float = 0.0
    text: str = ""


class Worker(Protocol):
    """A running worker."""

    def send(self, request: bytes) -> None:
        """Give it a packed piece of work; a worker that is gone says so in `receive`."""

    def receive(self) -> Message:
        """Return its next message; there is one, see `SlotPool._await`."""

    def kill(self) -> None:
        """End it at once."""


@dataclass
class Slot:
    """A place for a worker, which is filled again when the worker is lost.

    Attributes:
        name: What people call the place, such as ``worker 1 on cuda:1``.
        worker: Its worker; ``None`` once the slot is given up.
        is_ready: Whether the worker has made its target.
        job: What it works on.
        since: When the job, or the start, began.
        heard: When the worker last said anything.
    """

    name: str
    worker: Worker | None = None
    is_ready: bool = False
    job: Job | None = None
    since: float = 0.0
    heard: float = 0.0
    n_failed_starts: int = 0
    n_done: int = 0
    busy_seconds: float = 0.0
    first_ready: float | None = field(default=None)


class SlotPool(Pool):
    """A pool of workers that are watched and replaced.

    Args:
        names: One for each worker.
        work_limit: Seconds after which a piece of work counts as hung. ``None`` follows the work itself: 20 times the
            longest seen so far but at least two minutes, and an hour until three are seen.
        silence_limit: Seconds without a sign of life after which a busy or starting worker counts as hung.
        on_event: Hears of lost and replaced workers.
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        work_limit: float | None = None,
        silence_limit: float = 60.0,
        on_event: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__()
        for limit in (work_limit, silence_limit):
            if limit is not None and not limit > 0:
                raise ConfigError(f"Expected limits of time to be positive seconds, but got {limit!r}.")
        if on_event is not None:
            self.on_event = on_event
        self.n_workers = len(names)
        self._work_limit = work_limit
        self._silence_limit = silence_limit
        self._longest: float = 0.0
        self._n_seen = 0
        self._slots = [Slot(f"worker {number} on {name}") for number, name in enumerate(names)]

    def usage(self) -> list[Usage]:
        """Return how busy each worker was, losses of workers included."""
        now = time.monotonic()
        return [
            Usage(
                slot.name,
                slot.n_done,
                slot.busy_seconds,
                0.0 if slot.first_ready is None else now - slot.first_ready,
            )
            for slot in self._slots
        ]

    def close(self) -> None:
        """End all workers at once; they hold nothing that is not kept elsewhere."""
        self._closed = True
        self._queue.clear()
        for slot in self._slots:
            if slot.worker is not None:
                slot.worker.kill()
                slot.worker = None

    @abstractmethod
    def _start(self, number: int) -> Worker:
        """Start the worker of a slot, without waiting until it is ready."""

    @abstractmethod
    def _await(self, workers: Sequence[Worker], timeout: float) -> Sequence[Worker]:
        """Wait until a worker has a message, at most ``timeout`` seconds, and return those that have one."""

    def _start_all(self) -> None:
        """Start every worker, and return when the first is ready.

        Raises:
            LpesError: A worker could not make its target.
        """
        try:
            for number in range(len(self._slots)):
                self._fill(number)
            while not any(slot.is_ready for slot in self._slots):
                self._work()
        except BaseException:
            self.close()
            raise

    def _fill(self, number: int) -> None:
        slot = self._slots[number]
        slot.is_ready, slot.since = False, time.monotonic()
        slot.heard = slot.since
        try:
            slot.worker = self._start(number)
        except OSError as error:
            raise EvaluationError(
                f"Expected to start {slot.name}, but the system said: {error.strerror or error}. Free memory or "
                "processes, or use fewer workers."
            ) from error

    def _pack(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> bytes:
        return pack((function, arguments), "a function and its arguments")

    def _deal(self) -> None:
        for slot in self._slots:
            if not self._queue:
                return
            if slot.worker is not None and slot.is_ready and slot.job is None:
                slot.job = self._queue.popleft()
                slot.job.attempts += 1
                slot.since = slot.heard = time.monotonic()
                slot.worker.send(slot.job.request)

    def _work(self) -> None:
        self._deal()
        if all(slot.worker is None for slot in self._slots):
            raise EvaluationError(
                "Expected a worker that can be started, but all were given up. Mend the cause named above and go on "
                "with --resume."
            )
        # What was said while nobody listened comes first: a worker that has finished is not hung.
        timeout = _TICK
        while self._listen(timeout):
            timeout = 0.0
        self._look_for_hung()
        self._deal()

    def _listen(self, timeout: float) -> bool:
        """Hear one message of each worker that has one, and return whether there was any."""
        workers = {
            id(slot.worker): number for number, slot in enumerate(self._slots) if slot.worker is not None
        }
        ready = self._await([slot.worker for slot in self._slots if slot.worker is not None], timeout)
        for worker in ready:
            self._hear(workers[id(worker)], worker.receive())
        return bool(ready)

    def _hear(self, number: int, message: Message) -> None:
        slot = self._slots[number]
        slot.heard = time.monotonic()
        if message.kind == "ready":
            slot.is_ready, slot.n_failed_starts = True, 0
            if slot.first_ready is None:
                slot.first_ready = slot.heard
        elif message.kind == "refused":
            if slot.first_ready is None and message.failure is not None:
                raise message.failure.to_error()
            self._lose(number, f"could not start again: {message.failure and message.failure.message}")
        elif message.kind == "done":
            self._take_result(number, message)
        elif message.kind == "gone":
            self._lose(number, message.text)

    def _take_result(self, number: int, message: Message) -> None:
        slot = self._slots[number]
        job, slot.job = slot.job, None
        if job is None:
            return
        slot.busy_seconds += time.monotonic() - slot.since
        failure = message.failure
        if failure is None:
            slot.n_done += 1
            self._n_seen += 1
            self._longest = max(self._longest, message.seconds)
        self._settle(job, slot, message.seconds, message.value, failure)
        # The last try is made by a fresh worker: what the others left behind may be the cause.
        if (
            failure is not None
            and not failure.final
            and (failure.poisons or job.attempts == MAX_ATTEMPTS - 1)
        ):
            self._replace(number, f"is started anew after {failure.error}: {failure.message:.200}")

    def _settle(self, job: Job, slot: Slot, seconds: float, value: Any, failure: Failure | None) -> None:
        """Finish a job, or put it back in front of the queue for another try."""
        if failure is None or failure.final or job.attempts >= MAX_ATTEMPTS:
            self._finish(job, slot.name, seconds, value, failure)
        else:
            self._queue.appendleft(job)

    def _look_for_hung(self) -> None:
        now = time.monotonic()
        for number, slot in enumerate(self._slots):
            if slot.worker is None or (slot.is_ready and slot.job is None):
                continue
            if now - slot.heard > self._silence_limit:
                self._lose(number, f"gave no sign of life for {self._silence_limit:g} s", "hung")
            elif slot.job is not None and slot.job.limited and now - slot.since > self._limit():
                self._lose(number, f"was at work for more than {self._limit():.0f} s, the limit", "hung")

    def _limit(self) -> float:
        if self._work_limit is not None:
            return self._work_limit
        return _FIRST_LIMIT if self._n_seen < 3 else max(_LEAST_LIMIT, _LIMIT_FACTOR * self._longest)

    def _lose(self, number: int, how: str, kind: Literal["killed", "hung"] = "killed") -> None:
        """Take note that a worker is lost, give its job back, and fill its slot again."""
        slot = self._slots[number]
        job, slot.job = slot.job, None
        if not slot.is_ready:
            slot.n_failed_starts += 1
        if job is None:
            self._replace(number, how)
            return
        seconds = time.monotonic() - slot.since
        slot.busy_seconds += seconds
        name = job.label or f"work {job.ticket}"
        text = f"{slot.name} {how} while it worked on {name}, try {job.attempts} of {MAX_ATTEMPTS}"
        failure = Failure(kind, "", text, f"{text}\n", poisons=False)
        self._settle(job, slot, seconds, None, failure)
        self._replace(number, f"{how} while it worked on {name}, try {job.attempts} of {MAX_ATTEMPTS}")

    def _replace(self, number: int, how: str) -> None:
        slot = self._slots[number]
        if slot.worker is not None:
            slot.worker.kill()
            slot.worker = None
        if slot.n_failed_starts >= _MAX_FAILED_STARTS:
            self.on_event(f"{slot.name} {how}; given up after {slot.n_failed_starts} failed starts")
            return
        self.on_event(f"{slot.name} {how}; another is started in its place")
        self._fill(number)
