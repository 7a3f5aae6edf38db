"""`mark_step` and `tell`: the steps and the news of this process, which its signs of life report to the pool.

The thread of the signs of life runs on if the work itself hangs, for instance in a kernel of a GPU. Steps distinguish
the two cases: a long evaluation proceeds from one forward pass to the next, and a hung evaluation does not.
"""

_n_steps = 0
_news = ""


def mark_step() -> None:
    """Record that the work of this process has completed a step, such as a forward pass.

    The time limit of a pool holds from one step to the next. Work that marks no step is a single step.
    """
    global _n_steps
    _n_steps += 1


def n_steps() -> int:
    """Return the number of steps that this process has completed."""
    return _n_steps


def tell(text: str) -> None:
    """Tell the pool how far this worker is, such as with the weights of a large model.

    The next sign of life carries the text, and the pool passes it to its ``on_event`` behind the name of the worker. Of
    several texts between two signs of life, the newest counts. A process that is no worker tells nobody.

    Args:
        text: A line for people that goes on from the name of the worker, such as ``has loaded 40 %``.
    """
    global _news
    _news = text


def take_news() -> str:
    """Return the text that `tell` has left since the last call; empty without one."""
    global _news
    text, _news = _news, ""
    return text
