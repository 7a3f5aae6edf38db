"""`make_pool`: the pool that a command line asks for."""

from collections.abc import Callable
from typing import Any

from lpes_evo.errors import ConfigError
from lpes_evo.workers._devices import parse_devices
from lpes_evo.workers._local import LocalPool
from lpes_evo.workers._pool import Pool
from lpes_evo.workers._process import DevicePool

IN_PROCESS = "in-process"


def make_pool(
    spec: Callable[[str], Any],
    devices: str = "auto",
    *,
    ray_address: str | None = None,
    gpus_per_worker: int | None = None,
    work_limit: float | None = None,
    on_event: Callable[[str], None] | None = None,
) -> Pool:
    """Make the pool that a command line asks for.

    Args:
        spec: Makes the target of a worker from the name of its device.
        devices: The devices, see `parse_devices`; ``in-process`` for no worker process.
        ray_address: Address of a Ray cluster, or ``local``. The GPUs of the cluster replace ``devices``, which may
            still be ``cpu:N`` for N actors without a GPU.
        gpus_per_worker: GPUs of each worker on a Ray cluster; ``None`` for one.
        work_limit: Seconds after which a piece of work counts as hung; ``None`` for a limit that follows the work
            seen so far.
        on_event: Called with one line about each lost or replaced worker.

    Returns:
        The pool.

    Raises:
        ConfigError: The devices are not valid, a limit is set without a worker process, or GPUs per worker without a
            Ray cluster.
        LpesError: The target cannot be made.
    """
    pool: Pool
    if gpus_per_worker is not None and ray_address is None:
        raise ConfigError(
            f"Expected GPUs per worker with a Ray cluster alone, but got {gpus_per_worker!r:.80} without one. Name "
            "groups of this machine, as in --devices cuda:0+cuda:1, or --devices auto:2."
        )

    if ray_address is not None:
        from lpes_evo.workers._ray import RayPool

        pool = RayPool(
            ray_address,
            spec,
            devices=devices,
            gpus_per_worker=gpus_per_worker,
            work_limit=work_limit,
            on_event=on_event,
        )
    elif devices == IN_PROCESS:
        if work_limit is not None:
            raise ConfigError(
                f"Expected no limit of time in this process, which cannot stop its own work, but got {work_limit!r}. "
                "Leave it out, or use worker processes such as --devices cpu."
            )
        pool = LocalPool(spec)
    else:
        pool = DevicePool(parse_devices(devices), spec, work_limit=work_limit, on_event=on_event)

    return pool
