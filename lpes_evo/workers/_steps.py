"""Steps of the work of this process, which its signs of life tell to the pool.

A thread gives signs of life also where the work itself hangs, in a kernel of a GPU for instance. Steps tell the two
apart: a long evaluation goes on from one forward pass to the next, and a hung one does not.
"""

_n_steps = 0


def mark_step() -> None:
    """Take note that the work of this process has done a step, such as a forward pass.

    The limit of time of a pool holds from one step to the next. Work that marks no step is a single one.
    """
    global _n_steps
    _n_steps += 1


def n_steps() -> int:
    """Return how many steps this process has done."""
    return _n_steps
