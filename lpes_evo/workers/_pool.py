"""What all pools share: tickets, dealing, retries and the replacement of workers."""

import itertools
import logging
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from lpes_evo.errors import ConfigError, EvaluationError
from lpes_evo.workers._outcome import Completion, Failure

MAX_ATTEMPTS = 3
"""A piece of work is tried again at most twice."""

TARGET_MADE = "the spec to make the target of a worker"
"""What messages expect of a spec."""

_log = logging.getLogger(__name__)


@dataclass
class WorkItem:
    """A piece of work on its way.

    Attributes:
        ticket: Its number.
        request: Function and arguments, in the form that `Pool._pack` gives them.
        label: What people call it, such as ``candidate 14``.
        limited: Whether the limit of time holds for it.
        attempts: Tries so far.
    """

    ticket: int
    request: Any
    label: str
    limited: bool
    attempts: int = 0

    @property
    def name(self) -> str:
        """What messages call it."""
        return self.label or f"work {self.ticket}"


@dataclass(frozen=True)
class Usage:
    """How busy a worker was.

    Attributes:
        worker: Its name.
        n_done: Pieces of work it finished.
        busy_seconds: Time it spent on them, also on those that failed.
        ready_seconds: Time since it was first ready.
    """

    worker: str
    n_done: int
    busy_seconds: float
    ready_seconds: float

    @property
    def share(self) -> float:
        """Busy time as a share of the time it was ready."""
        return self.busy_seconds / self.ready_seconds if self.ready_seconds else 0.0


class Pool(ABC):
    """Work for targets that live in workers.

    Results come as they are finished; `map` and `call` put them in order. A piece of work that raises, whose worker is
    killed or hangs, is tried again at most twice, then finished with a `Failure`; the others keep their work. Errors
    of this package (`LpesError`) are judgements that another try would not change, and are not tried again.

    Attributes:
        on_event: Called with one line when a worker is lost, replaced or given up; logs a warning by default.
        n_workers: Number of workers.
    """

    n_workers: int = 1

    def __init__(self) -> None:
        self.on_event: Callable[[str], None] = _log.warning
        self._queue: deque[WorkItem] = deque()
        self._finished: deque[Completion] = deque()
        self._tickets = itertools.count()
        self._n_pending = 0
        self._dropped: set[int] = set()
        self._closed = False

    def __enter__(self) -> "Pool":
        """Return the pool."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the pool."""
        self.close()

    @property
    def n_pending(self) -> int:
        """Pieces of work that were submitted and not yet returned by `wait`."""
        return self._n_pending

    def submit(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        label: str = "",
        first: bool = False,
        limited: bool = True,
    ) -> int:
        """Put a piece of work in the queue.

        Args:
            function: Called as ``function(target, *arguments)`` in a worker.
            *arguments: Small values, which cross to the worker.
            label: What messages call it.
            first: Whether it goes to the front of the queue.
            limited: Whether the pool's limit of time holds for it.

        Returns:
            Its ticket.

        Raises:
            ConfigError: The pool is closed, or the function or an argument cannot cross to a worker.
        """
        self._check_open()
        item = WorkItem(next(self._tickets), self._pack(function, arguments), label, limited)
        self._queue.insert(0 if first else len(self._queue), item)
        self._n_pending += 1
        self._deal()
        return item.ticket

    def wait(self) -> Completion:
        """Return the next finished piece of work.

        Returns:
            The completion, successful or failed.

        Raises:
            ConfigError: Nothing is pending, or the pool is closed.
            EvaluationError: No worker can be started any more.
            LpesError: A worker could not make its target.
        """
        if not self._n_pending:
            self._check_open()
            raise ConfigError("Expected submitted work to wait for, but there is none. Call submit first.")
        while not self._finished:
            self._work()
        self._n_pending -= 1
        return self._finished.popleft()

    def call(self, function: Callable[..., Any], *arguments: Any, label: str = "") -> Any:
        """Run one piece of work without a limit of time and return its value.

        Args:
            function: Called as ``function(target, *arguments)`` in a worker.
            *arguments: Small values.
            label: What messages call it.

        Returns:
            What the function returned.

        Raises:
            LpesError: It failed; of the class that the function raised where that is one of this package.
        """
        ticket = self.submit(function, *arguments, label=label, first=True, limited=False)
        others = []
        try:
            while (completion := self.wait()).ticket != ticket:
                others.append(completion)
        except BaseException:
            self._drop([ticket])
            raise
        finally:
            self._finished.extendleft(reversed(others))
            self._n_pending += len(others)

        if completion.failure is not None:
            raise completion.failure.to_error()
        return completion.value

    def map(self, function: Callable[..., Any], *iterables: Iterable[Any]) -> list[Any]:
        """Take the place of ``map`` in a DEAP toolbox: results keep the order of the individuals.

        Args:
            function: Called as ``function(target, individual)`` in a worker; as ``function(individual)`` where the
                pool was made without a spec.
            *iterables: The individuals.

        Returns:
            What the function returned for each of them.

        Raises:
            EvaluationError: An individual failed, after all the others are finished; the message names it.
            ConfigError: Other work is pending, or the function or an individual cannot cross to a worker.
        """
        if self._n_pending:
            raise ConfigError(f"Expected no pending work beside map, but got {self._n_pending}. Wait first.")

        tickets: list[int] = []
        done: dict[int, Completion] = {}
        try:
            for index, item in enumerate(zip(*iterables, strict=True)):
                tickets.append(self.submit(function, *item, label=f"individual {index}"))
            for _ in tickets:
                completion = self.wait()
                done[completion.ticket] = completion
        except BaseException:
            # Such as an interrupted cell of a notebook: the next call starts with a clean slate.
            self._drop([ticket for ticket in tickets if ticket not in done])
            raise

        for index, ticket in enumerate(tickets):
            failure = done[ticket].failure
            if failure is not None:
                raise EvaluationError(
                    f"Expected every individual to be evaluated, but individual {index} failed: "
                    f"{failure.to_error()}"
                )

        return [done[ticket].value for ticket in tickets]

    def usage(self) -> Sequence[Usage]:
        """Return how busy each worker was."""
        return []

    def close(self) -> None:
        """End all workers and drop the work that is not done; closing twice is closing once."""
        self._closed = True
        self._queue.clear()
        self._n_pending = len(self._finished)
        self._end()

    @abstractmethod
    def _end(self) -> None:
        """End all workers that there are."""

    def _pack(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """Return function and arguments in the form that goes to a worker."""
        return function, arguments

    @abstractmethod
    def _deal(self) -> None:
        """Give queued work to idle workers, without waiting."""

    @abstractmethod
    def _work(self) -> None:
        """Wait until something happens, and act on it."""

    def _check_open(self) -> None:
        if self._closed:
            raise ConfigError("Expected an open pool, but it was closed. Make a new one.")

    def _drop(self, tickets: Sequence[int]) -> None:
        """Forget work that nobody waits for any more; what a worker has begun, it finishes for nothing."""
        if self._closed:
            return
        dropped = set(tickets)
        queued = {item.ticket for item in self._queue} & dropped
        finished = {completion.ticket for completion in self._finished} & dropped
        self._queue = deque(item for item in self._queue if item.ticket not in queued)
        self._finished = deque(done for done in self._finished if done.ticket not in finished)
        self._dropped |= dropped - queued - finished
        self._n_pending -= len(dropped)

    def _finish(
        self, item: WorkItem, worker: str, seconds: float, value: Any, failure: Failure | None
    ) -> None:
        if item.ticket in self._dropped:
            self._dropped.remove(item.ticket)
            return
        self._finished.append(Completion(item.ticket, value, failure, seconds, worker, item.attempts))


def perform(
    function: Callable[..., Any], target: Any, arguments: tuple[Any, ...]
) -> tuple[Any, Failure | None, float]:
    """Run one try of a piece of work.

    Args:
        function: The function.
        target: Its first argument; `NO_TARGET` where the pool has no spec.
        arguments: Its other arguments.

    Returns:
        Value, failure and seconds.
    """
    start = time.perf_counter()
    try:
        value = function(*arguments) if target is NO_TARGET else function(target, *arguments)
    except KeyboardInterrupt:  # the user's wish, and no fault of the work
        raise
    # One bad candidate must not end a search of hours, whatever its work raises.
    except BaseException as error:
        return None, Failure.of(error), time.perf_counter() - start
    return value, None, time.perf_counter() - start


NO_TARGET = object()
"""Stands for the target of a pool without a spec."""
