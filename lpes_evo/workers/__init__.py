"""Pools of workers: one process per device, one actor per GPU of a cluster, or this process alone.

A pool holds a *target* in every worker, made there by a *spec*: a callable that takes the name of the worker's device
and returns, for example, a problem with its model loaded. Work is a function of the target and of small arguments.
All pools have one interface: `submit` and `wait`, `call`, and `map`, which takes the place of ``map`` in a DEAP
toolbox.
"""

from typing import TYPE_CHECKING

from lpes_evo._lazy import lazy_names

if TYPE_CHECKING:
    from lpes_evo.workers._devices import Device, parse_devices
    from lpes_evo.workers._local import LocalPool
    from lpes_evo.workers._make import make_pool
    from lpes_evo.workers._outcome import Completion, Failure
    from lpes_evo.workers._pool import Pool, Usage
    from lpes_evo.workers._process import DevicePool
    from lpes_evo.workers._ray import RayPool
    from lpes_evo.workers._steps import mark_step

__all__ = [
    "Completion",
    "Device",
    "DevicePool",
    "Failure",
    "LocalPool",
    "Pool",
    "RayPool",
    "Usage",
    "make_pool",
    "mark_step",
    "parse_devices",
]

_MODULES = {
    "Completion": "_outcome",
    "Device": "_devices",
    "DevicePool": "_process",
    "Failure": "_outcome",
    "LocalPool": "_local",
    "Pool": "_pool",
    "RayPool": "_ray",
    "Usage": "_pool",
    "make_pool": "_make",
    "mark_step": "_steps",
    "parse_devices": "_devices",
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
