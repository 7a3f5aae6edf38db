"""Host: the class of an actor of Ray, which imports nothing heavy before the spec does.

This module is sent to the actor by value, so that the actor chooses where it imports the package from. Hence the module
has no imports of the package at its top.
"""

import dataclasses
import os
import socket
import sys
import time
from typing import Any


class Host:
    """The target of one worker. Messages and work are sent as bytes, as they are between processes.

    Args:
        strangers: Folders that this process must not import from.
    """

    def __init__(self, strangers: list[str]) -> None:
        for folder in strangers:
            # Only the first entry is removed. A later one was added by the user.
            if folder in sys.path:
                sys.path.remove(folder)
        from lpes_evo.workers import _message, _steps

        self._message = _message
        self._steps = _steps
        self._target: Any = None

    def make(self, spec: bytes, device: str) -> bytes:
        """Make the target, and return a message with the place of this actor."""
        self._target, message = self._message.make_target(spec, device)
        if device != "cpu":
            visible = os.environ.get("CUDA_VISIBLE_DEVICES", "?").split(",")
            device = "+".join(f"cuda:{entry}" for entry in visible)
        return dataclasses.replace(message, text=f"{device} of {socket.gethostname()}").encode()

    def work(self, request: bytes) -> bytes:
        """Do a piece of work."""
        return self._message.answer(request, self._target).encode()

    def beat(self, seconds: float) -> tuple[int, str]:
        """Return the number of steps of the work and its news, after a delay; it shows that this process is alive."""
        time.sleep(seconds)
        return self._steps.n_steps(), self._steps.take_news()
