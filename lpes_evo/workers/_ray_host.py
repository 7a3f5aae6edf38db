"""What runs in an actor of Ray; it imports nothing heavy before the spec does."""

import dataclasses
import os
import socket
import time
from typing import Any

from lpes_evo.workers._message import answer, make_target


class Host:
    """Holds the target of one worker. Messages and work cross as bytes, as they do between processes."""

    def __init__(self) -> None:
        self._target: Any = None

    def make(self, spec: bytes, device: str) -> bytes:
        """Make the target, and say where this is."""
        self._target, message = make_target(spec, device)
        if device != "cpu":
            device = f"cuda:{os.environ.get('CUDA_VISIBLE_DEVICES', '?')}"
        return dataclasses.replace(message, text=f"{device} of {socket.gethostname()}").encode()

    def work(self, request: bytes) -> bytes:
        """Do a piece of work."""
        return answer(request, self._target).encode()

    def beat(self, seconds: float) -> None:
        """Return after a while; that it does shows that this process is alive."""
        time.sleep(seconds)
