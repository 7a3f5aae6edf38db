"""A pool that is this process alone: for notebooks, debugging, and models that are loaded already."""

from collections.abc import Callable
from typing import Any

from lpes_evo.workers._pool import MAX_ATTEMPTS, NO_TARGET, Pool, Usage, perform


class LocalPool(Pool):
    """Does all work in this process, when it is waited for.

    It has the interface and the retries of `DevicePool`, but cannot outlive a kill or a hang.

    Args:
        spec: Makes the target, called with ``device``; ``None`` for functions that need none.
        device: Name of the device.
    """

    def __init__(self, spec: Callable[[str], Any] | None = None, device: str = "auto") -> None:
        super().__init__()
        self._target = NO_TARGET if spec is None else spec(device)
        self._n_done = 0
        self._seconds = 0.0

    def usage(self) -> list[Usage]:
        """Return how long this process worked; it is always busy while it is waited for."""
        return [Usage("this process", self._n_done, self._seconds, self._seconds)]

    def close(self) -> None:
        """Drop the target and the work that was not done."""
        self._closed = True
        self._target = NO_TARGET
        self._queue.clear()

    def _deal(self) -> None:
        """Do nothing: work is done when it is waited for."""

    def _work(self) -> None:
        job = self._queue.popleft()
        function, arguments = job.request
        while True:
            job.attempts += 1
            value, failure, seconds = perform(function, self._target, arguments)
            self._seconds += seconds
            if failure is None or failure.final or job.attempts >= MAX_ATTEMPTS:
                break
        self._n_done += failure is None
        self._finish(job, "this process", seconds, value, failure)
