"""What workers of every kind say to their pool, and how they make their target and do their work."""

from dataclasses import dataclass
from typing import Any, Literal

import dill

from lpes_evo.errors import ConfigError
from lpes_evo.workers._outcome import Failure
from lpes_evo.workers._pack import unpack
from lpes_evo.workers._pool import NO_TARGET, perform


@dataclass(frozen=True)
class Message:
    """What a worker says.

    Attributes:
        kind: ``ready`` to work; ``refused``: its target cannot be made; ``alive``; ``advanced``: alive, and the work
            has done a step since the last sign of life; ``done`` with a piece of work; ``gone``: the worker is no
            more.
        value: What the work returned.
        failure: Why there is no value, or why the target could not be made.
        seconds: Time of the work.
        text: For a worker that is gone, how it ended; for one that is ready, where it runs, if that was not known.
    """

    kind: Literal["ready", "refused", "alive", "advanced", "done", "gone"]
    value: Any = None
    failure: Failure | None = None
    seconds: float = 0.0
    text: str = ""

    def encode(self) -> bytes:
        """Return the message as bytes; one whose value cannot cross becomes a failure that says so."""
        try:
            data: bytes = dill.dumps(self)
        except Exception as error:  # whatever the pickling of a user's value raises
            return Message("done", failure=_cannot_cross(error)).encode()
        return data

    @classmethod
    def decode(cls, data: bytes) -> "Message":
        """Read what `encode` gave; a value that cannot be read becomes a failure that says so."""
        try:
            message = unpack(data)
        except Exception as error:  # whatever the unpickling of a user's value raises
            return cls("done", failure=_cannot_cross(error))
        return message if isinstance(message, cls) else cls("alive")


def make_target(spec: bytes, device: str) -> tuple[Any, Message]:
    """Make what the work of a worker is done on.

    Args:
        spec: The spec, packed.
        device: What the worker calls its device.

    Returns:
        The target, and whether the worker is ready or refused.
    """
    try:
        make = unpack(spec)
    except Exception as error:  # such as a module that only the pool's process has
        return None, Message("refused", failure=_cannot_be_read("the spec of the pool", error))
    try:
        return NO_TARGET if make is None else make(device), Message("ready")
    except BaseException as error:  # it is raised again where the pool was asked for
        return None, Message("refused", failure=Failure.of(error))


def answer(request: bytes, target: Any) -> Message:
    """Do a packed piece of work on the target."""
    try:
        function, arguments = unpack(request)
    except Exception as error:  # such as a module that only the pool's process has
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
