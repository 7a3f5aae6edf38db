"""What runs in an actor of Ray; it imports nothing heavy before the spec does.

This module crosses to the actor by value, so that the actor chooses where it imports the package from. Hence it imports
nothing of the package at its top.
"""

import dataclasses
import os
import socket
import sys
import time
from typing import Any


class Host:
    """Holds the target of one worker. Messages and work cross as bytes, as they do between processes.

    Args:
        strangers: Folders that this process must not import from.
    """

    def __init__(self, strangers: list[str]) -> None:
        for folder in strangers:
            # The folder may stand there once more, further behind, by the wish of the user.
            if folder in sys.path:
                sys.path.remove(folder)
        from lpes_evo.workers import _message, _steps

        self._message = _message
        self._n_steps = _steps.n_steps
        self._target: Any = None

    def make(self, spec: bytes, device: str) -> bytes:
        """Make the target, and say where this is."""
        self._target, message = self._message.make_target(spec, device)
        if device != "cpu":
            device = f"cuda:{os.environ.get('CUDA_VISIBLE_DEVICES', '?')}"
        return dataclasses.replace(message, text=f"{device} of {socket.gethostname()}").encode()

    def work(self, request: bytes) -> bytes:
        """Do a piece of work."""
        return self._message.answer(request, self._target).encode()

    def beat(self, seconds: float) -> int:
        """Return after a while how many steps the work has done; that it does shows that this process is alive."""
        time.sleep(seconds)
        return self._n_steps()
