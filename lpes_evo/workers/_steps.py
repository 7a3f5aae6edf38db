"""`mark_step`: the steps of the work of this process, which its signs of life report to the pool.

The thread of the signs of life runs on if the work itself hangs, for instance in a kernel of a GPU. Steps distinguish
the two cases: a long evaluation proceeds from one forward pass to the next, and a hung evaluation does not.
"""

_n_steps = 0


def mark_step() -> None:
    """Record that the work of this process has completed a step, such as a forward pass.

    The time limit of a pool holds from one step to the next. Work that marks no step is a single step.
    """
    global _n_steps
    _n_steps += 1


def n_steps() -> int:
    """Return the number of steps that this process has completed."""
    return _n_steps
