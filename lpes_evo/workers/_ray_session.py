"""The connection of this process to a Ray cluster, which all pools of the process share.

An address is probed before ``ray.init``, since Ray's own errors were tried and come late or not at all. Where nothing
answers, Ray 2.60 waited for more than five minutes by default, and for 41 seconds with a single retry. With shorter
time limits of its own it ended the program without an exception.
"""

import logging
import os
import re
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lpes_evo.errors import ConfigError, install_command
from lpes_evo.workers._devices import environment

LOCAL = "local"

_PROBE_SECONDS = 10.0
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray reads these variables when it is imported. The pool itself reports the loss of workers.
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
    "RAY_SCHEDULER_EVENTS": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
# Ray uses HTTP/2, whose clients first send a preface and a SETTINGS frame, here an empty one (RFC 9113, section 3.4).
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_SETTINGS = 4

_lock = threading.Lock()
_n_users = 0


def import_ray() -> Any:
    """Return the package `ray`.

    Raises:
        ConfigError: Ray is not installed.
    """
    try:
        with environment(_QUIET):
            import ray
    except ImportError as error:
        raise ConfigError(
            "Expected Ray to be installed for workers on a Ray cluster, but it is not. "
            f"Run in the clone: {install_command('ray')}"
        ) from error
    return ray


def connect(address: str, n_cpus: int | None) -> bool:
    """Connect this process to a cluster, unless it is connected already.

    Args:
        address: ``local`` for a cluster on this machine that ends with the connection, ``auto`` for the cluster that
            runs on this machine, or ``host:port``.
        n_cpus: Least number of CPUs of a local cluster; ``None`` for those of the machine.

    Returns:
        Whether `disconnect` must be called; false if the caller had connected the process before.

    Raises:
        ConfigError: Nothing answers at the address, or something that is not a Ray cluster of this version.
    """
    global _n_users
    ray = import_ray()

    with _lock:
        if ray.is_initialized():
            _check_same(address, ray.get_runtime_context().gcs_address)
            _n_users += _n_users > 0
            return _n_users > 0

        address = os.environ.get("RAY_ADDRESS", address) if address == "auto" else address
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL}

        if address == LOCAL:
            options |= {"include_dashboard": False, "num_cpus": max(n_cpus or 1, os.cpu_count() or 1)}
        elif address != "auto":
            _probe(address)

        try:
            with environment(_QUIET), _kept_handler():
                ray.init(address=address, **options)
        except Exception as error:  # Ray raises Exception itself if the machine is too slow to start it
            remedy = ""
            if address not in (LOCAL, "auto") and "RAY_AUTH_MODE" not in os.environ:
                # No exception of Ray names this cause, and Ray sends its token only if it is told to.
                remedy = ". If ray start said that token authentication is enabled, set RAY_AUTH_MODE=token."
            raise ConfigError(
                f"Expected a Ray cluster at {address!r} that this machine is part of, but Ray says: "
                f"{' '.join(str(error).split()):.300}{remedy}"
            ) from error

        _n_users = 1
        return True


def disconnect() -> None:
    """End the use of the connection by one pool; the last pool closes it, which ends a local cluster."""
    global _n_users
    with _lock:
        _n_users -= 1
        if not _n_users:
            with _kept_handler():
                import_ray().shutdown()


def _check_same(address: str, connected: str) -> None:
    if address not in (LOCAL, "auto") and address.rpartition(":")[2] != connected.rpartition(":")[2]:
        raise ConfigError(
            f"Expected the Ray cluster {connected} that this process is connected to, but got {address!r}. "
            "Call ray.shutdown() first, or use auto."
        )


def _probe(address: str) -> None:
    """Check that something answers at an address as Ray would, since Ray itself waits for minutes.

    Raises:
        ConfigError: The address is not valid, nothing answers, or the answer is not HTTP/2.
    """
    match = re.fullmatch(r"\[?([\w.:-]+?)\]?:(\d{1,5})", address)
    if match is None or int(match[2]) > 65535:
        raise ConfigError(
            f"Expected the address of a Ray cluster: local, auto or host:port (such as 10.0.0.1:6379), but got "
            f"{address!r}."
        )

    try:
        with socket.create_connection((match[1], int(match[2])), _PROBE_SECONDS) as channel:
            channel.sendall(_PREFACE)
            head = channel.recv(9)
    except OSError as error:
        raise ConfigError(
            f"Expected a Ray cluster at {address!r}, but nothing answers there within {_PROBE_SECONDS:g} s: {error}. "
            "Start one with: ray start --head"
        ) from error

    if len(head) < 4 or head[3] != _SETTINGS:
        raise ConfigError(
            f"Expected a Ray cluster at {address!r}, but what answers there is something else. The port is the one "
            "that ray start --head prints, 6379 by default."
        )


@contextmanager
def _kept_handler() -> Iterator[None]:
    """Restore the caller's handler of SIGTERM, which Ray replaces."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if handler is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)
