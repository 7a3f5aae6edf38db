"""Device: the device or the devices of a worker, and the environment variables that restrict the worker to them."""

import itertools
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata

from lpes_evo.accelerators import device_kind, devices_of, mps_fault
from lpes_evo.errors import ConfigError

_THREAD_LIMITS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
MOST_WORKERS = 1024


@dataclass(frozen=True)
class Device:
    """The device of one worker, or the group of devices that its model is spread over.

    Attributes:
        name: Name for the user: ``cpu``, ``mps``, or ``cuda:N``, where N counts the GPUs that the user made visible; a
            group is ``cuda:2+cuda:3``.
        local_name: Name in the worker: ``cpu``, ``mps``, or ``cuda:0`` for the only GPU that is visible; a group is
            ``cuda:0+cuda:1``.
        environment: Variables that are set for the worker before torch is imported.
    """

    name: str
    local_name: str
    environment: dict[str, str] = field(default_factory=dict)


def parse_devices(text: str) -> tuple[Device, ...]:
    """Read a list of devices.

    ``CUDA_VISIBLE_DEVICES`` of the user is respected: ``cuda:1`` is the second entry of that list of indices or UUIDs,
    and the worker sees this entry alone. Workers share the cores of this process evenly.

    Args:
        text: ``auto`` (all CUDA devices, else one worker on the CPU), ``cuda`` (all CUDA devices), ``cuda:0,cuda:1``,
            ``mps`` (Apple's GPU), ``cpu``, or ``cpu:2`` for two workers on the CPU; several entries are separated by
            commas. ``+`` joins GPUs to the group of one worker, as in ``cuda:0+cuda:1``; ``auto:2`` makes groups of
            two of all CUDA devices. ``cpu+cpu`` is one worker that spreads its model over one CPU, to try it out.

    Returns:
        One device or group for each worker.

    Raises:
        ConfigError: An entry is unknown, a GPU is not among the visible ones, or there is no GPU of the kind. Or GPUs
            are left over when groups are made, or a GPU stands in a group twice.
    """
    names = [name for entry in str(text).split(",") for name in _expand(entry.strip(), text)]
    if len(names) > MOST_WORKERS:
        raise ConfigError(f"Expected at most {MOST_WORKERS} workers on one machine, but got {len(names)}.")
    threads = thread_limits(max(1, _n_cores() // len(names)))
    return tuple(_device(name, threads) for name in names)


def thread_limits(n_threads: int) -> dict[str, str]:
    """Return the environment that limits a worker to a number of threads, or to the user's own limit if it is lower.

    A limit for OpenMP also holds for libraries without their own limit, as it does without a pool.

    Args:
        n_threads: Number of threads.
    """
    variables = {"TOKENIZERS_PARALLELISM": "false"}
    for limit in _THREAD_LIMITS:
        own = os.environ.get(limit) or os.environ.get(_THREAD_LIMITS[0], "")
        variables[limit] = own if own.isdigit() and 0 < int(own) < n_threads else str(n_threads)
    return variables


@contextmanager
def environment(variables: dict[str, str]) -> Iterator[None]:
    """Set environment variables for the processes that start inside the context."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _expand(entry: str, text: str) -> list[str]:
    """Return the names of the devices and groups that an entry stands for."""
    if re.fullmatch(r"auto:[1-9]\d{0,3}", entry):
        return _groups(int(entry.partition(":")[2]))
    if re.fullmatch(r"cpu(\+cpu)+", entry):
        return [entry]
    if re.fullmatch(r"cuda:\d{1,4}(\+cuda:\d{1,4})+", entry):
        names = devices_of(entry)
        if len(set(names)) < len(names):
            raise ConfigError(f"Expected a group to name each GPU once, but got {entry!r:.80}.")
        return [entry]

    if entry in ("auto", "cuda"):
        gpus = [f"cuda:{index}" for index in range(_n_gpus())]
        if not gpus and entry == "cuda":
            raise ConfigError(
                "Expected a CUDA device, but torch sees none. Use --devices cpu, or see CUDA_VISIBLE_DEVICES and "
                "the driver."
            )
        return gpus or ["cpu"]

    if re.fullmatch(r"cpu(:[1-9]\d{0,4})?", entry):
        return ["cpu"] * int(entry.partition(":")[2] or 1)
    if re.fullmatch(r"cuda:\d{1,4}", entry):
        return [entry]

    if entry in ("mps", "mps:0"):
        fault = mps_fault()
        if fault is not None:
            raise ConfigError(f"Expected Apple's GPU for the device {entry}, but {fault}. Use --devices cpu.")
        return ["mps"]

    raise ConfigError(
        "Expected devices such as auto, cuda:0,cuda:1, mps, cpu or cpu:2 (two CPU workers), or groups such as "
        f"cuda:0+cuda:1 or auto:2, but got {text!r:.80}."
    )


def _groups(size: int) -> list[str]:
    """Return the names of groups of all GPUs.

    Args:
        size: GPUs of a group.

    Raises:
        ConfigError: There are fewer GPUs, or some are left over.
    """
    n_gpus = _n_gpus()
    if not n_gpus or n_gpus % size:
        remedy = (
            "Name the groups, as in cuda:0+cuda:1, to leave some out." if n_gpus else "Use --devices cpu."
        )
        raise ConfigError(
            f"Expected GPUs that make groups of {size} without a remainder, but torch sees {n_gpus}. {remedy}"
        )
    return ["+".join(f"cuda:{first + place}" for place in range(size)) for first in range(0, n_gpus, size)]


def _device(name: str, threads: dict[str, str]) -> Device:
    if device_kind(name) in ("cpu", "mps"):
        return Device(name, name, threads | {"CUDA_VISIBLE_DEVICES": ""})

    gpus = devices_of(name)
    visible = ",".join(map(_visible_entry, gpus))
    local_name = "+".join(f"cuda:{place}" for place in range(len(gpus)))
    return Device(name, local_name, threads | {"CUDA_VISIBLE_DEVICES": visible})


def _visible_entry(name: str) -> str:
    """Return the entry of ``CUDA_VISIBLE_DEVICES`` that a GPU stands for.

    Raises:
        ConfigError: The list has no such entry.
    """
    index = int(name.partition(":")[2])
    visible = _visible_gpus()
    if visible is not None and index >= len(visible):
        raise ConfigError(
            f"Expected a GPU among the {len(visible)} of CUDA_VISIBLE_DEVICES={','.join(visible)!r}, but got {name!r}. "
            "GPUs are counted from cuda:0 within that list."
        )
    return str(index) if visible is None else visible[index]


def _visible_gpus() -> list[str] | None:
    """Return the entries of ``CUDA_VISIBLE_DEVICES``, or ``None`` where it is not set."""
    value = os.environ.get("CUDA_VISIBLE_DEVICES")
    if value is None:
        return None
    entries = [entry.strip() for entry in value.split(",") if entry.strip()]
    # CUDA ignores everything after an invalid entry, which is usually -1.
    return list(itertools.takewhile(lambda entry: not entry.startswith("-"), entries))


def _n_gpus() -> int:
    # The import takes seconds, and a build for the CPU sees no GPU.
    if metadata.version("torch").endswith("+cpu"):
        return 0
    import torch

    return torch.cuda.device_count()


def _n_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
