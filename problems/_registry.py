"""Tasks by name."""

import inspect
from collections.abc import Callable
from typing import Any

from lpes_evo.errors import TaskError
from lpes_evo.problems._key_value import KeyValueTask
from lpes_evo.problems._needle import NeedleTask
from lpes_evo.problems._recall import RecallTask
from lpes_evo.problems._task import Task

TASKS: dict[str, Callable[..., Task]] = {task.name: task for task in (KeyValueTask, NeedleTask, RecallTask)}


def make_task(name: str, **options: Any) -> Task:
    """Make a task by its name.

    Args:
        name: ``kv``, ``needle`` or ``recall``.
        **options: Arguments of the task's class.

    Returns:
        The task.

    Raises:
        TaskError: The name or an option is unknown, or the task refuses the value of an option.
    """
    if not isinstance(name, str) or name not in TASKS:
        raise TaskError(f"Expected the task to be one of {', '.join(sorted(TASKS))}, but got {name!r:.80}.")
    known = list(inspect.signature(TASKS[name]).parameters)
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise TaskError(
            f"Expected options of the task {name!r} to be among {', '.join(known)}, "
            f"but got {', '.join(unknown)}."
        )
    return TASKS[name](**options)
