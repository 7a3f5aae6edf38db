"""Message: a message of a worker to its pool, with the functions that make a target and answer a request."""

from dataclasses import dataclass
from typing import Any, Literal

import dill

from lpes_evo.errors import ConfigError
from lpes_evo.workers._outcome import Failure
from lpes_evo.workers._pack import unpack
from lpes_evo.workers._pool import NO_TARGET, perform


@dataclass(frozen=True)
class Message:
    """A message of a worker.

    Attributes:
        kind: ``ready``: the worker can work. ``refused``: its target cannot be made. ``alive``: a sign of life.
            ``advanced``: a sign of life, and the work has completed a step since the last one. ``told``: a sign of
            life with a line for people, which counts as a step. ``done``: a piece of work is finished. ``gone``: the
            worker has ended.
        value: The return value of the work.
        failure: The reason why there is no value, or why the target could not be made.
        seconds: Duration of the work in seconds.
        text: For ``told``, the line. For ``gone``, how the worker ended. For ``ready``, the place where it runs, if
            that was not known.
    """

    kind: Literal["ready", "refused", "alive", "advanced", "told", "done", "gone"]
    value: Any = None
    failure: Failure | None = None
    seconds: float = 0.0
    text: str = ""

    def encode(self) -> bytes:
        """Return the message as bytes; a message whose value cannot be pickled becomes a failure."""
        try:
            data: bytes = dill.dumps(self)
        except Exception as error:  # whatever the pickling of a user's value raises
            return Message("done", failure=_cannot_cross(error)).encode()
        return data

    @classmethod
    def decode(cls, data: bytes) -> "Message":
        """Return the message that `encode` turned into bytes; a value that cannot be unpickled becomes a failure."""
        try:
            message = unpack(data)
        except Exception as error:  # whatever the unpickling of a user's value raises
            return cls("done", failure=_cannot_cross(error))
        return message if isinstance(message, cls) else cls("alive")


def make_target(spec: bytes, device: str) -> tuple[Any, Message]:
    """Make the target of a worker.

    Args:
        spec: The packed spec.
        device: Name of the device within the worker.

    Returns:
        The target, and a message ``ready`` or ``refused``.
    """
    try:
        make = unpack(spec)
    except Exception as error:  # such as an import of a module that only the process of the pool has
        return None, Message("refused", failure=_cannot_be_read("the spec of the pool", error))

    try:
        return NO_TARGET if make is None else make(device), Message("ready")
    except BaseException as error:  # it is raised again in the process of the pool
        return None, Message("refused", failure=Failure.of(error))


def answer(request: bytes, target: Any) -> Message:
    """Do a packed piece of work on the target.

    Args:
        request: The packed function and its arguments.
        target: The target of the worker.

    Returns:
        A message ``done`` with the value or the failure.
    """
    try:
        function, arguments = unpack(request)
    except Exception as error:  # such as an import of a module that only the process of the pool has
        return Message("done", failure=_cannot_be_read("the function and its arguments", error))
    value, failure, seconds = perform(function, target, arguments)
    return Message("done", value=value, failure=failure, seconds=seconds)


def _cannot_cross(error: Exception) -> Failure:
    return Failure.of(
        ConfigError(
            f"Expected work to return something that can cross to the process of the pool, but it cannot: {error}. "
            "Return numbers, arrays, or lists and dicts of them."
        )
    )


def _cannot_be_read(what: str, error: Exception) -> Failure:
    return Failure.of(
        ConfigError(
            f"Expected a worker to be able to read {what}, but got {type(error).__name__}: {error}. Move what they use "
            "to a module that can be imported, and install it where the workers run."
        )
    )
