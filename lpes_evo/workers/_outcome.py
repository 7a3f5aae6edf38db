"""What comes back from a worker: a value, or a failure that says what happened."""

import traceback
from dataclasses import dataclass
from typing import Any, Literal

from lpes_evo import errors
from lpes_evo.errors import EvaluationError, LpesError

_MOST_LETTERS = 2000


@dataclass(frozen=True)
class Failure:
    """Why a piece of work gave no value.

    Attributes:
        kind: ``exception`` raised by the work, worker ``killed`` by the system, or ``hung`` beyond its limit.
        error: Name of the exception's class; empty for the other kinds.
        message: One line.
        traceback: The traceback of an exception, else the message.
        final: Whether another try would end the same way.
        poisons: Whether the worker cannot be trusted afterwards, such as after an error of its GPU.
    """

    kind: Literal["exception", "killed", "hung"]
    error: str
    message: str
    traceback: str
    final: bool = False
    poisons: bool = True

    @classmethod
    def of(cls, error: BaseException) -> "Failure":
        """Describe an exception, in a form that crosses between processes."""
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
        """Return an exception that says this; of the same class where the worker raised one of ours.

        Args:
            what: What was expected.
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
        ticket: What `Pool.submit` returned for it.
        value: What the function returned; ``None`` after a failure.
        failure: Why there is no value, else ``None``.
        seconds: Time the work took in the worker, the last try alone.
        worker: Name of the worker that finished it.
        attempts: How often it was tried.
    """

    ticket: int
    value: Any
    failure: Failure | None
    seconds: float
    worker: str
    attempts: int


class _InWorkerError(Exception):
    """Shows the traceback of a worker above the error that tells of it."""
