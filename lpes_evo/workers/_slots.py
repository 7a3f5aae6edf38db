"""SlotPool: a pool whose workers can be lost, with slots for them, retries and time limits.

Workers give signs of life, since the end of a process or of a connection is not enough: without signs of life, no
executor that was tried noticed a worker that was stopped.
"""

import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from lpes_evo.errors import ConfigError, EvaluationError
from lpes_evo.workers._message import Message
from lpes_evo.workers._outcome import Failure
from lpes_evo.workers._pack import pack
from lpes_evo.workers._pool import MAX_ATTEMPTS, TARGET_MADE, Pool, Usage, WorkItem

BEAT_SECONDS = 1.0
"""Seconds between two signs of life of a busy worker."""

_LEAST_SILENCE = 3 * BEAT_SECONDS
_START_FACTOR = 10
_MAX_FAILED_STARTS = 3
_RESTART_DELAYS = (0.0, 0.0, 2.0)
_TICK = 0.5
_FIRST_LIMIT, _LEAST_LIMIT, _LIMIT_FACTOR = 3600.0, 120.0, 20


class Worker(Protocol):
    """A running worker.

    Attributes:
        is_placed: Whether the worker has resources to run on; its silence counts from then on.
    """

    is_placed: bool

    def is_alive(self) -> bool:
        """Return whether the worker has not ended, as far as is known."""

    def send(self, request: bytes) -> None:
        """Send a packed piece of work, without waiting; `SlotPool._listen` reports a worker that is gone."""

    def kill(self) -> None:
        """End the worker at once, without waiting."""

    def bury(self) -> None:
        """Wait until a killed worker is gone, at most a few seconds, and free its resources."""


@dataclass
class Slot:
    """A place for a worker, which gets another worker when the first one is lost.

    Attributes:
        number: Index of the slot.
        name: Name for the user, such as ``worker 1 on cuda:1``.
        worker: The worker; ``None`` while the slot is empty.
        start_at: Time at which an empty slot gets a worker; ``None`` after the slot was given up.
        is_ready: Whether the worker has made its target.
        item: The work item that the worker works on.
        since: Time at which the work began.
        worked: Seconds since the work began, or since its last step, in which the pool listened.
        silent: Seconds without a sign of life in which the pool listened.
        n_failed_starts: Number of successive starts without a target.
        n_done: Number of pieces of work that workers of this slot have finished.
        busy_seconds: Time that workers of this slot spent on work, in seconds.
        first_ready: Time at which the slot first had a worker that was ready.
    """

    number: int
    name: str
    worker: Worker | None = None
    start_at: float | None = 0.0
    is_ready: bool = False
    item: WorkItem | None = None
    since: float = 0.0
    worked: float = 0.0
    silent: float = 0.0
    n_failed_starts: int = 0
    n_done: int = 0
    busy_seconds: float = 0.0
    first_ready: float | None = None


class SlotPool(Pool):
    """A pool that watches its workers and replaces lost ones.

    Args:
        names: Names of the devices, one for each worker.
        work_limit: Seconds after which work that is still alive counts as hung, from one step to the next, see
            `lpes_evo.workers.mark_step`. ``None`` follows the work itself: 20 times the longest piece seen so far but
            at least two minutes, and an hour until three are seen.
        silence_limit: Seconds without a sign of life after which a busy worker counts as hung, at least 3; ten times
            as many for a worker that makes its target, since loading a model may block the thread of its signs of life.
        on_event: Called with one line about each lost or replaced worker.
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
        if work_limit is not None and not work_limit > 0:
            raise ConfigError(f"Expected a limit of positive seconds for work, but got {work_limit!r}.")
        if not silence_limit >= _LEAST_SILENCE:
            raise ConfigError(
                f"Expected a limit of at least {_LEAST_SILENCE:g} seconds for silence, but got {silence_limit!r}: "
                f"workers give a sign of life every {BEAT_SECONDS:g} s."
            )

        if on_event is not None:
            self.on_event = on_event

        self.n_workers = len(names)
        self._work_limit = work_limit
        self._silence_limit = silence_limit
        self._longest = 0.0
        self._n_seen = 0
        self._listened = 0.0
        self._last_loss = ""
        self._slots = [Slot(number, f"worker {number} on {name}") for number, name in enumerate(names)]
        self._slot_of: dict[int, Slot] = {}

    def usage(self) -> list[Usage]:
        """Return the usage of each slot, with the work of lost workers."""
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

    def _end(self) -> None:
        workers = [slot.worker for slot in self._slots if slot.worker is not None]
        for slot in self._slots:
            slot.worker, slot.item, slot.start_at = None, None, None
        self._slot_of.clear()
        for worker in workers:
            worker.kill()
        for worker in workers:
            worker.bury()

    @abstractmethod
    def _start(self, slot: Slot) -> Worker:
        """Start a worker for a slot, without waiting until it is ready.

        Raises:
            OSError: The system cannot start the worker.
        """

    @abstractmethod
    def _listen(self, timeout: float) -> Iterable[tuple[Worker, Message]]:
        """Wait for messages of the workers, at most ``timeout`` seconds, and return all that have arrived."""

    def _start_all(self) -> None:
        """Start every worker, and return when the first is ready.

        Raises:
            LpesError: A worker could not make its target, or none could be started.
        """
        try:
            while not any(slot.is_ready for slot in self._slots):
                self._work()
        except BaseException:
            self.close()
            raise

    def _fill_due(self) -> None:
        now = time.monotonic()
        for slot in self._slots:
            if slot.worker is not None or slot.start_at is None or slot.start_at > now:
                continue

            slot.is_ready, slot.silent = False, 0.0
            try:
                slot.worker = self._start(slot)
            except OSError as error:
                slot.n_failed_starts += 1
                self._empty(slot, f"could not be started: {error.strerror or error}")
            else:
                self._slot_of[id(slot.worker)] = slot

    def _pack(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> bytes:
        return pack((function, arguments), "a function and its arguments")

    def _deal(self) -> None:
        for slot in self._slots:
            if not self._queue:
                return
            if slot.worker is None or not slot.is_ready or slot.item is not None:
                continue

            # A worker that has ended before must not cost the work a try.
            if slot.worker.is_alive():
                slot.item = self._queue.popleft()
                slot.item.attempts += 1
                slot.since, slot.worked, slot.silent = time.monotonic(), 0.0, 0.0
                slot.worker.send(slot.item.request)

    def _work(self) -> None:
        self._fill_due()
        self._deal()

        if all(slot.worker is None and slot.start_at is None for slot in self._slots):
            raise EvaluationError(
                f"Expected a worker that can be started, but all were given up; the last: {self._last_loss}. Mend "
                "the cause and start again."
            )

        # Messages that have arrived meanwhile come first, since a worker that has finished is not hung.
        for worker, message in self._listen(_TICK):
            slot = self._slot_of.get(id(worker))
            if slot is not None:
                slot.silent = 0.0
                self._hear(slot, message)

        self._look_for_hung()
        self._deal()

    def _hear(self, slot: Slot, message: Message) -> None:
        """Act on a message of the worker of a slot.

        Raises:
            LpesError: The first worker of the slot could not make its target.
        """
        if message.kind == "ready":
            slot.is_ready, slot.n_failed_starts = True, 0
            if message.text:
                slot.name = f"worker {slot.number} on {message.text}"
            if slot.first_ready is None:
                slot.first_ready = time.monotonic()

        elif message.kind == "refused":
            # No later start would succeed where the first one was refused, so the pool gives up at once.
            failure = message.failure
            if slot.first_ready is None and failure is not None:
                self.close()
                raise failure.to_error(TARGET_MADE)
            self._lose(slot, f"could not make its target: {failure and failure.message}")

        elif message.kind == "advanced":
            slot.worked = 0.0
        elif message.kind == "told":
            slot.worked = 0.0
            self.on_event(f"{slot.name} {message.text}")
        elif message.kind == "done":
            self._take_result(slot, message)
        elif message.kind == "gone":
            self._lose(slot, message.text)

    def _take_result(self, slot: Slot, message: Message) -> None:
        item, slot.item = slot.item, None
        if item is None:
            return

        slot.busy_seconds += time.monotonic() - slot.since
        failure = message.failure
        if failure is None:
            slot.n_done += 1
            if item.limited:
                self._n_seen += 1
                self._longest = max(self._longest, message.seconds)

        self._settle(item, slot, message.seconds, message.value, failure)

        # The state that earlier tries have left in the worker may be the cause, so the last try gets a new worker.
        if (
            failure is not None
            and not failure.final
            and (failure.poisons or item.attempts == MAX_ATTEMPTS - 1)
        ):
            self._empty(slot, f"failed on {item.name} with {failure.error}: {failure.message:.200}")

    def _settle(
        self, item: WorkItem, slot: Slot, seconds: float, value: Any, failure: Failure | None
    ) -> None:
        """Finish a work item, or put it back in front of the queue for another try."""
        if failure is None or failure.final or item.attempts >= MAX_ATTEMPTS or item.ticket in self._dropped:
            self._finish(item, slot.name, seconds, value, failure)
        else:
            self._queue.appendleft(item)

    def _look_for_hung(self) -> None:
        # Only time in which the pool listened counts, so that workers are kept when the pool was stopped or busy.
        now = time.monotonic()
        passed, self._listened = min(now - self._listened, 2 * _TICK), now
        for slot in self._slots:
            if slot.worker is None or not slot.worker.is_placed or (slot.is_ready and slot.item is None):
                continue

            slot.silent += passed
            slot.worked += passed
            silence_limit = self._silence_limit * (1 if slot.is_ready else _START_FACTOR)
            if slot.silent > silence_limit:
                self._lose(slot, f"gave no sign of life for {silence_limit:g} s", "hung")
            elif slot.item is not None and slot.item.limited and slot.worked > self._limit():
                self._lose(
                    slot, f"was at work for more than {self._limit():g} s, the limit of a step,", "hung"
                )

    def _limit(self) -> float:
        if self._work_limit is not None:
            return self._work_limit
        return _FIRST_LIMIT if self._n_seen < 3 else max(_LEAST_LIMIT, _LIMIT_FACTOR * self._longest)

    def _lose(self, slot: Slot, how: str, kind: Literal["killed", "hung"] = "killed") -> None:
        """Put the work item of a lost worker back, and have its slot filled again."""
        item, slot.item = slot.item, None
        if not slot.is_ready:
            slot.n_failed_starts += 1

        if item is not None:
            how += f" while it worked on {item.name}, try {item.attempts} of {MAX_ATTEMPTS}"
            seconds = time.monotonic() - slot.since
            slot.busy_seconds += seconds
            text = f"{slot.name} {how}"
            self._settle(item, slot, seconds, None, Failure(kind, "", text, f"{text}\n", poisons=False))

        self._empty(slot, how)

    def _empty(self, slot: Slot, how: str) -> None:
        """End the worker of a slot, and plan a new one, unless too many starts have failed."""
        worker, slot.worker = slot.worker, None
        if worker is not None:
            del self._slot_of[id(worker)]
            worker.kill()
            worker.bury()

        self._last_loss = f"{slot.name} {how}"
        if slot.n_failed_starts >= _MAX_FAILED_STARTS:
            slot.start_at = None
            self.on_event(f"{self._last_loss}; given up after {slot.n_failed_starts} failed starts")
        else:
            slot.start_at = time.monotonic() + _RESTART_DELAYS[slot.n_failed_starts]
            self.on_event(f"{self._last_loss}; another is started in its place")
