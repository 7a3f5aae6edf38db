"""Frames of bytes over the socket between a pool and a worker process.

The pool's end never blocks, not even when a worker is stopped in the middle of a frame; the worker's end waits.
"""

import select
import socket
import struct
import threading
from contextlib import suppress

_HEADER = struct.Struct(">Q")
_CHUNK = 1 << 16


class PoolEnd:
    """The end of the pool.

    Args:
        channel: The socket.
    """

    def __init__(self, channel: socket.socket) -> None:
        channel.setblocking(False)
        self._channel = channel
        self._incoming = bytearray()
        self._outgoing = memoryview(b"")

    def fileno(self) -> int:
        """Return the number of the socket, by which selectors watch it."""
        return self._channel.fileno()

    @property
    def has_more_to_send(self) -> bool:
        """Whether a frame is still on its way out, see `flush`."""
        return bool(self._outgoing)

    def send(self, frame: bytes) -> None:
        """Begin to send a frame after the one before is through; what the socket does not take goes by `flush`."""
        self._outgoing = memoryview(bytes(self._outgoing) + _HEADER.pack(len(frame)) + frame)
        self.flush()

    def flush(self) -> None:
        """Send what the socket takes now."""
        try:
            while self._outgoing:
                self._outgoing = self._outgoing[self._channel.send(self._outgoing) :]
        except BlockingIOError:
            return
        except OSError:  # the other end is gone, which `receive` tells
            self._outgoing = memoryview(b"")

    def receive(self) -> tuple[list[bytes], bool]:
        """Return the frames that are there, and whether the other end is closed."""
        is_closed = False
        try:
            while data := self._channel.recv(_CHUNK):
                self._incoming += data
            is_closed = True
        except BlockingIOError:
            pass
        except OSError:
            is_closed = True
        return self._frames(), is_closed

    def _frames(self) -> list[bytes]:
        frames, start = [], 0
        with memoryview(self._incoming) as view:
            while len(view) - start >= _HEADER.size:
                (length,) = _HEADER.unpack_from(view, start)
                end = start + _HEADER.size + length
                if len(view) < end:
                    break
                frames.append(bytes(view[start + _HEADER.size : end]))
                start = end
        del self._incoming[:start]
        return frames

    def close(self) -> None:
        """Close the socket."""
        self._channel.close()


class WorkerEnd:
    """The end of a worker; several threads may send.

    Args:
        channel: The socket.
    """

    def __init__(self, channel: socket.socket) -> None:
        channel.setblocking(True)
        self._channel = channel
        self._sending = threading.Lock()

    def send(self, frame: bytes) -> None:
        """Send a frame.

        Raises:
            OSError: The pool is gone.
        """
        with self._sending:
            self._channel.sendall(_HEADER.pack(len(frame)))
            self._channel.sendall(frame)

    def offer(self, frame: bytes) -> bool:
        """Send a short frame, unless that would have to wait, and return whether it was sent.

        Raises:
            OSError: The pool is gone.
        """
        if not self._sending.acquire(blocking=False):
            return False
        try:
            has_room = bool(select.select([], [self._channel], [], 0)[1])
            if has_room:
                self._channel.sendall(_HEADER.pack(len(frame)) + frame)
        finally:
            self._sending.release()
        return has_room

    def receive(self) -> bytes:
        """Wait for the next frame.

        Raises:
            EOFError: The pool is gone.
        """
        (length,) = _HEADER.unpack(self._exactly(_HEADER.size))
        return bytes(self._exactly(length))

    def _exactly(self, length: int) -> bytearray:
        data = bytearray(length)
        view = memoryview(data)
        while view:
            n_bytes = 0
            with suppress(ConnectionError):
                n_bytes = self._channel.recv_into(view)
            if not n_bytes:
                raise EOFError
            view = view[n_bytes:]
        return data
