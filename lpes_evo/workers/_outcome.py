"""Completion and Failure: the outcome of a piece of work."""

import traceback
from dataclasses import dataclass
from typing import Any, Literal

from lpes_evo import errors
from lpes_evo.errors import EvaluationError, LpesError

_MOST_LETTERS = 2000


@dataclass(frozen=True)
class Failure:
    """The reason why a piece of work gave no value.

    Attributes:
        kind: ``exception``: the work raised it. ``killed``: the worker has ended. ``hung``: the worker exceeded a
            limit.
        error: Class name of the exception; empty for the other kinds.
        message: The text of the failure, one line.
        traceback: The traceback of an exception, else the message.
        final: Whether another try would end in the same way.
        poisons: Whether the worker cannot be trusted afterwards, for example after an error of its GPU.
    """

    kind: Literal["exception", "killed", "hung"]
    error: str
    message: str
    traceback: str
    final: bool = False
    poisons: bool = True

    @classmethod
    def of(cls, error: BaseException) -> "Failure":
        """Return the failure that describes an exception, in a form that can be sent between processes."""
        try:
            text = " ".join(str(error).split())[:_MOST_LETTERS]
        except Exception:  # an exception of a user whose own text cannot be made
            text = "(an exception without readable text)"

        return cls(
            "exception",
            type(error).__name__,
            text,
            "".join(traceback.format_exception(type(error), error, error.__traceback__)),
            final=isinstance(error, LpesError),
            poisons=isinstance(error, MemoryError) or "CUDA" in text or "out of memory" in text,
        )

    def to_error(self, what: str = "the work of a worker to succeed") -> LpesError:
        """Return an exception for this failure, of the same class if the worker raised an error of this package.

        Args:
            what: The expectation that the message states.
        """
        kind = getattr(errors, self.error, None)
        if isinstance(kind, type) and issubclass(kind, LpesError):
            raised: LpesError = kind(self.message)
        else:
            text = f"{self.error}: {self.message}" if self.error else self.message
            raised = EvaluationError(f"Expected {what}, but got {text}")
        if self.traceback.startswith("Traceback"):
            raised.__cause__ = _InWorkerError(f"\n{self.traceback}")
        return raised


@dataclass(frozen=True)
class Completion:
    """A finished piece of work.

    Attributes:
        ticket: The ticket that `Pool.submit` returned for the work.
        value: The return value of the function; ``None`` after a failure.
        failure: The reason why there is no value, else ``None``.
        seconds: Duration of the last try in the worker, in seconds.
        worker: Name of the worker that finished the work.
        attempts: Number of tries.
    """

    ticket: int
    value: Any
    failure: Failure | None
    seconds: float
    worker: str
    attempts: int


class _InWorkerError(Exception):
    """The traceback of a worker, shown above the error that is raised in the process of the pool."""
