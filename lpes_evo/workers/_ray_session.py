"""The connection of this process to a Ray cluster, which the pools of a process share."""

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
    # Ray reads these when it is imported. The pool says itself what happens to workers.
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
    "RAY_SCHEDULER_EVENTS": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
# What a client of HTTP/2, which Ray speaks, says first: the preface and an empty SETTINGS frame (RFC 9113, 3.4).
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_SETTINGS = 4

_lock = threading.Lock()
_n_users = 0


def import_ray() -> Any:
    """Return the package `ray`.

    Raises:
        ConfigError: It is not installed.
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
    """Connect this process to a cluster, unless it is connected.

    Args:
        address: ``local`` for a cluster of this machine that lives as long as the connection, ``auto`` for the one
            that runs on this machine, or ``host:port``.
        n_cpus: CPUs that a local cluster has at least; ``None`` for those of the machine.

    Returns:
        Whether `disconnect` must be called; not where the caller had connected the process before.

    Raises:
        ConfigError: Nothing answers there, or something that is not a Ray cluster of this version.
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
        except Exception as error:  # Ray raises that class itself when a machine is too slow to start it
            remedy = ""
            if address not in (LOCAL, "auto") and "RAY_AUTH_MODE" not in os.environ:
                # Ray names this cause in no exception, and sends its token to no address unless it is told to.
                remedy = ". If ray start said that token authentication is enabled, set RAY_AUTH_MODE=token."
            raise ConfigError(
                f"Expected a Ray cluster at {address!r} that this machine is part of, but Ray says: "
                f"{' '.join(str(error).split()):.300}{remedy}"
            ) from error

        _n_users = 1
        return True


def disconnect() -> None:
    """Give up a connection; the last one ends a local cluster."""
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
    """See that something answers as Ray would, since Ray itself waits for minutes."""
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
    """Keep what the caller does on SIGTERM, which Ray would set."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if handler is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)
