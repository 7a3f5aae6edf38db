"""Pools of workers: one process per device, one actor per GPU of a cluster, or this process alone.

A pool holds a *target* in every worker. The target is made in the worker by a *spec*: a callable that takes the name of
the worker's device and returns, for example, a problem with its model loaded. Work is a function of the target and of
small arguments. All pools have one interface: `submit` and `wait`, `call`, and `map`, which replaces ``map`` in a DEAP
toolbox.

The supervision of workers is our own, since no executor that was tried keeps its promises. A busy worker of pebble 5.2
or loky 3.7 outlives a program that is killed, and neither notices a stopped worker without a time limit. A pool of
pebble breaks in a script without a ``__main__`` guard, and one dead worker of loky fails all other work.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
