"""Pools of workers: one process per device, one actor per GPU of a cluster, or this process alone.

A pool holds a *target* in every worker, made there by a *spec*: a callable that takes the name of the worker's device
and returns, for example, a problem with its model loaded. Work is a function of the target and of small arguments.
All pools have one interface: `submit` and `wait`, `call`, and `map`, which takes the place of ``map`` in a DEAP
toolbox.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
