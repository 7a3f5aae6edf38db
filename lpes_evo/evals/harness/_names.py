"""Names of the tasks that lm-evaluation-harness runs, and the check that it is installed."""

import importlib.util

from lpes_evo.errors import ConfigError, TaskError, install_command

HARNESS_TASKS = ("mmlu", "ceval-valid")
"""Tasks of the harness that go by their own name; any other is named with the prefix ``lm:``."""

_PREFIX = "lm:"


def is_harness_task(name: str) -> bool:
    """Return whether a task name belongs to the harness.

    Args:
        name: Name of a task, such as ``mmlu``, ``lm:hellaswag`` or ``kv``.

    Returns:
        Whether `run_harness` takes it; the harness may still not know it.
    """
    return name in HARNESS_TASKS or name.startswith(_PREFIX)


def harness_name(name: str) -> str:
    """Return the name of a task in the harness.

    Args:
        name: One of `HARNESS_TASKS`, or a name of the harness after ``lm:``.

    Returns:
        The name without prefix.

    Raises:
        TaskError: The name is not one of the harness.
    """
    if not isinstance(name, str) or not is_harness_task(name) or name == _PREFIX:
        raise TaskError(
            f"Expected {', '.join(HARNESS_TASKS)}, or {_PREFIX} and a name that 'lm_eval ls tasks' lists, but got "
            f"{name!r:.80}."
        )
    return name.removeprefix(_PREFIX)


def require_harness() -> None:
    """Check that lm-evaluation-harness and what it loads models with are installed.

    Raises:
        ConfigError: A package is missing.
    """
    missing = [
        package
        for package, module in (("lm-eval", "lm_eval"), ("accelerate", "accelerate"))
        if importlib.util.find_spec(module) is None
    ]
    if missing:
        raise ConfigError(
            f"Tasks of lm-evaluation-harness need {' and '.join(missing)}, not installed here. Run in the clone: "
            f"{install_command('eval')}"
        )
