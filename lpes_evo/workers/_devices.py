"""Which devices workers run on, and the environment that gives each worker its own."""

import os
import re
from dataclasses import dataclass, field
from importlib import metadata

from lpes_evo.errors import ConfigError

_THREAD_LIMITS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_MOST_WORKERS = 1024


@dataclass(frozen=True)
class Device:
    """The device of one worker.

    Attributes:
        name: What people call it: ``cpu`` or ``cuda:N``, N counted among the GPUs the user made visible.
        local_name: What the worker's own torch calls it: ``cpu``, or ``cuda:0`` for the only GPU it sees.
        environment: Variables set for the worker before torch is imported.
    """

    name: str
    local_name: str
    environment: dict[str, str] = field(default_factory=dict)


def parse_devices(text: str) -> tuple[Device, ...]:
    """Read a list of devices.

    ``CUDA_VISIBLE_DEVICES`` of the user is kept: ``cuda:1`` is the second entry of that list, whether it holds indices
    or UUIDs, and the worker sees that entry alone. Workers share the cores of this process evenly.

    Args:
        text: ``auto`` (all GPUs, else one worker on the CPU), ``cuda`` (all GPUs), ``cuda:0,cuda:1``, ``cpu``, or
            ``cpu:2`` for two workers on the CPU; several of them separated by commas.

    Returns:
        One device for each worker.

    Raises:
        ConfigError: An entry is unknown, a GPU is not among the visible ones, or there are no GPUs.
    """
    names = [name for entry in str(text).split(",") for name in _expand(entry.strip(), text)]
    if len(names) > _MOST_WORKERS:
        raise ConfigError(f"Expected at most {_MOST_WORKERS} workers on one machine, but got {len(names)}.")
    n_threads = str(max(1, _n_cores() // len(names)))
    return tuple(_device(name, n_threads) for name in names)


def _expand(entry: str, text: str) -> list[str]:
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
    raise ConfigError(
        f"Expected devices such as auto, cuda:0,cuda:1, cpu or cpu:2 (two CPU workers), but got {text!r:.80}."
    )


def _device(name: str, n_threads: str) -> Device:
    threads = {limit: _at_most(os.environ.get(limit), n_threads) for limit in _THREAD_LIMITS}
    threads["TOKENIZERS_PARALLELISM"] = "false"
    if name == "cpu":
        return Device(name, name, threads | {"CUDA_VISIBLE_DEVICES": ""})
    index = int(name.partition(":")[2])
    visible = _visible_gpus()
    if visible is not None and index >= len(visible):
        raise ConfigError(
            f"Expected a GPU among the {len(visible)} of CUDA_VISIBLE_DEVICES={','.join(visible)}, but got {name!r}. "
            "GPUs are counted from cuda:0 within that list."
        )
    entry = str(index) if visible is None else visible[index]
    return Device(name, "cuda:0", threads | {"CUDA_VISIBLE_DEVICES": entry})


def _visible_gpus() -> list[str] | None:
    """Return the entries of ``CUDA_VISIBLE_DEVICES``, or ``None`` where it is not set."""
    value = os.environ.get("CUDA_VISIBLE_DEVICES")
    return None if value is None else [entry.strip() for entry in value.split(",") if entry.strip()]


def _n_gpus() -> int:
    # The import takes seconds, and a build for the CPU has nothing to tell.
    if metadata.version("torch").endswith("+cpu"):
        return 0
    import torch

    return torch.cuda.device_count()


def _n_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _at_most(limit: str | None, share: str) -> str:
    """Return the smaller of the user's own thread limit and a fair share."""
    return limit if limit is not None and limit.isdigit() and 0 < int(limit) < int(share) else share
