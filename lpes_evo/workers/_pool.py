"""Pool: the interface of all pools, with their queue of work items, their retries and their completions."""

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
"""Number of tries of a piece of work: the first one and two retries."""

TARGET_MADE = "the spec to make the target of a worker"
"""The expectation that messages about a spec state."""

_log = logging.getLogger(__name__)


@dataclass
class WorkItem:
    """A piece of work that is not finished.

    Attributes:
        ticket: Number of the work.
        request: Function and arguments, in the form of `Pool._pack`.
        label: Name of the work for the user, such as ``candidate 14``.
        limited: Whether the time limit of the pool holds for the work.
        attempts: Number of tries so far.
    """

    ticket: int
    request: Any
    label: str
    limited: bool
    attempts: int = 0

    @property
    def name(self) -> str:
        """Name of the work in messages."""
        return self.label or f"work {self.ticket}"


@dataclass(frozen=True)
class Usage:
    """The time that a worker was busy.

    Attributes:
        worker: Name of the worker.
        n_done: Number of pieces of work that it finished.
        busy_seconds: Time that it spent on work, failed tries included, in seconds.
        ready_seconds: Time since it was first ready, in seconds.
    """

    worker: str
    n_done: int
    busy_seconds: float
    ready_seconds: float

    @property
    def share(self) -> float:
        """Busy time as a share of the ready time."""
        return self.busy_seconds / self.ready_seconds if self.ready_seconds else 0.0


class Pool(ABC):
    """A queue of work for targets in workers.

    `wait` returns completions as they are finished, and `map` returns results in order. A piece of work that raises an
    exception, or whose worker is killed or hangs, is tried again at most twice. After that it is finished with a
    `Failure`, and other work is not affected. An error of this package (`LpesError`) is final, since another try would
    give the same.

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
        """Number of pieces of work that were submitted and not yet returned by `wait`."""
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
            *arguments: Small values, which are sent to the worker.
            label: Name of the work in messages.
            first: Whether the work goes to the front of the queue.
            limited: Whether the time limit of the pool holds for the work.

        Returns:
            The ticket of the work.

        Raises:
            ConfigError: The pool is closed, or the function or an argument cannot be sent to a worker.
        """
        self._check_open()
        item = WorkItem(next(self._tickets), self._pack(function, arguments), label, limited)
        self._queue.insert(0 if first else len(self._queue), item)
        self._n_pending += 1
        self._deal()
        return item.ticket

    def wait(self) -> Completion:
        """Wait for the next piece of work that is finished.

        Returns:
            The completion, successful or failed.

        Raises:
            ConfigError: Nothing is pending, or the pool is closed.
            EvaluationError: No worker could be started again.
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
        """Run one piece of work without a time limit, and return its value.

        Args:
            function: Called as ``function(target, *arguments)`` in a worker.
            *arguments: Small values, which are sent to the worker.
            label: Name of the work in messages.

        Returns:
            The return value of the function.

        Raises:
            LpesError: The work failed. The class is that of the error of the function, if it is one of this package.
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
        """Run a function for each individual, as ``map`` in a DEAP toolbox does.

        Args:
            function: Called as ``function(target, individual)`` in a worker, or as ``function(individual)`` if the
                pool was made without a spec.
            *iterables: The individuals.

        Returns:
            The return value of the function for each individual, in the order of the individuals.

        Raises:
            EvaluationError: An individual failed. The error is raised after all others are finished, and names it.
            ConfigError: Other work is pending, or the function or an individual cannot be sent to a worker.
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
            # After an interrupted cell of a notebook, for example, the next call must find no work of this one.
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
        """Return the usage of each worker."""
        return []

    def close(self) -> None:
        """End all workers and drop unfinished work; a second call does nothing."""
        self._closed = True
        self._queue.clear()
        self._n_pending = len(self._finished)
        self._end()

    @abstractmethod
    def _end(self) -> None:
        """End all workers."""

    def _pack(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """Return function and arguments in the form that is sent to a worker."""
        return function, arguments

    @abstractmethod
    def _deal(self) -> None:
        """Give queued work to idle workers, without waiting."""

    @abstractmethod
    def _work(self) -> None:
        """Wait a short time for events of the workers, and handle them."""

    def _check_open(self) -> None:
        if self._closed:
            raise ConfigError("Expected an open pool, but it was closed. Make a new one.")

    def _drop(self, tickets: Sequence[int]) -> None:
        """Forget work that is no longer waited for; the results of work that has begun are discarded."""
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
        target: The first argument of the function; `NO_TARGET` if the pool has no spec.
        arguments: The other arguments of the function.

    Returns:
        The value, the failure or ``None``, and the duration in seconds.
    """
    start = time.perf_counter()
    try:
        value = function(*arguments) if target is NO_TARGET else function(target, *arguments)
    except KeyboardInterrupt:  # the wish of the user, and not a fault of the work
        raise
    # Whatever the work of one candidate raises, it must not end a search of hours.
    except BaseException as error:
        return None, Failure.of(error), time.perf_counter() - start
    return value, None, time.perf_counter() - start


NO_TARGET = object()
"""The target of a pool without a spec."""
