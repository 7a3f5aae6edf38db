"""LocalPool: a pool in this process, for notebooks, debugging, and models that are loaded already."""

from collections.abc import Callable
from typing import Any

from lpes_evo.errors import LpesError
from lpes_evo.workers._outcome import Failure
from lpes_evo.workers._pool import MAX_ATTEMPTS, NO_TARGET, TARGET_MADE, Pool, Usage, perform


class LocalPool(Pool):
    """A pool that does all work in this process, at the time of `wait`.

    The pool has the interface and the retries of `DevicePool`, but does not survive a kill or a hang.

    Args:
        spec: Called with ``device`` to make the target; ``None`` for functions that need no target.
        device: Name of the device.

    Raises:
        LpesError: The target cannot be made. The class is that of the error of the spec, or else `EvaluationError`.
    """

    def __init__(self, spec: Callable[[str], Any] | None = None, device: str = "auto") -> None:
        super().__init__()
        self._target = NO_TARGET if spec is None else _make(spec, device)
        self._n_done = 0
        self._seconds = 0.0

    def usage(self) -> list[Usage]:
        """Return the usage of this process, whose ready time is its busy time."""
        return [Usage("this process", self._n_done, self._seconds, self._seconds)]

    def _end(self) -> None:
        self._target = NO_TARGET

    def _deal(self) -> None:
        """Do nothing, since the work is done in `_work`."""

    def _work(self) -> None:
        item = self._queue.popleft()
        function, arguments = item.request
        try:
            while True:
                item.attempts += 1
                value, failure, seconds = perform(function, self._target, arguments)
                self._seconds += seconds
                if failure is None or failure.final or item.attempts >= MAX_ATTEMPTS:
                    break
        except BaseException:  # an interrupt, after which the caller may wait again
            item.attempts -= 1
            self._queue.appendleft(item)
            raise

        self._n_done += failure is None
        self._finish(item, "this process", seconds, value, failure)


def _make(spec: Callable[[str], Any], device: str) -> Any:
    try:
        return spec(device)
    except (LpesError, KeyboardInterrupt):
        raise
    except BaseException as error:  # the spec of a user can raise anything
        raise Failure.of(error).to_error(TARGET_MADE) from error
