"""Draws: random draws that are the same on every platform and with every Python version.

The modules `random` and `numpy` promise a stable stream for few of their methods. Tasks therefore draw from SHA-256 in
counter mode: equal labels give equal bytes on every machine, and different labels give independent streams.
"""

import hashlib
import uuid
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Draws:
    """A stream of random draws that is determined by its labels.

    Args:
        *labels: The purpose of the draws; the representations of the labels name the stream.
    """

    def __init__(self, *labels: str | int | float) -> None:
        self._key = "/".join(repr(label) for label in labels).encode()
        self._counter = 0
        self._buffer = b""

    def take(self, n_bytes: int) -> bytes:
        """Return the next ``n_bytes`` bytes of the stream."""
        while len(self._buffer) < n_bytes:
            self._buffer += hashlib.sha256(self._key + b"#%d" % self._counter).digest()
            self._counter += 1
        taken, self._buffer = self._buffer[:n_bytes], self._buffer[n_bytes:]
        return taken

    def below(self, limit: int) -> int:
        """Return an integer that is uniform on ``0 .. limit - 1``."""
        # Rejecting the incomplete last interval keeps the draw uniform; it happens once in 2**32 draws at
        # most.
        bound = (1 << 64) - (1 << 64) % limit
        while True:
            value = int.from_bytes(self.take(8), "big")
            if value < bound:
                return value % limit

    def sample(self, items: Sequence[T], n_items: int) -> list[T]:
        """Return ``n_items`` different items in random order."""
        pool = list(items)
        for index in range(n_items):
            other = index + self.below(len(pool) - index)
            pool[index], pool[other] = pool[other], pool[index]
        return pool[:n_items]

    def uuid(self) -> str:
        """Return a random UUID of version 4."""
        return str(uuid.UUID(bytes=self.take(16), version=4))
