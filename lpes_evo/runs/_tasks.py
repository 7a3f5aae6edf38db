"""The tasks of a run: their examples for a split, and the problem that scores them."""

from dataclasses import replace
from pathlib import Path

from lpes_evo.config import RunConfig
from lpes_evo.errors import TaskError
from lpes_evo.models import LoadedModel
from lpes_evo.problems import (
    DataRequest,
    Example,
    MixtureProblem,
    ModelProblem,
    Split,
    Task,
    TaskMix,
    examples_of,
    make_task,
)


def mix_of(config: RunConfig) -> TaskMix:
    """Return the tasks and the guards of a run.

    Raises:
        TaskError: The texts of the configuration do not name tasks and guards.
    """
    return TaskMix.parse(config.task.name, config.guards)


def tasks_of(config: RunConfig) -> dict[str, Task]:
    """Return the tasks of a run by name, the searched ones first, then the guards.

    Raises:
        TaskError: A task cannot be made, there are options beside several tasks, or a data folder that no task reads.
    """
    mix = mix_of(config)
    if len(mix.weights) > 1 and config.task.options:
        raise TaskError(
            f"Expected no task.options beside several tasks, since they belong to one, but got "
            f"{', '.join(config.task.options)}. Write them into the names, such as needle:8+filler=3."
        )
    searched = {name: make_task(name, **config.task.options) for name in mix.weights}
    tasks = searched | {name: make_task(name) for name in mix.tolerances}
    if config.task.data is not None and not any(task.reads_data for task in tasks.values()):
        raise TaskError(
            f"Expected no data folder for {', '.join(tasks)}, where no task reads one, but got {config.task.data}. "
            "Leave --data out."
        )
    return tasks


def examples_by_task(config: RunConfig, split: Split) -> dict[str, tuple[Example, ...]]:
    """Draw the examples of one split of every task of a run.

    Args:
        config: The configuration.
        split: ``search`` for the examples that steer the search, ``report`` for the held-out ones.

    Returns:
        The examples of each task, the searched ones first, then the guards.

    Raises:
        TaskError: A task or its data are not valid, or it has no such split.
    """
    settings = config.examples if split == "search" else config.report
    folder = None if config.task.data is None else Path(config.task.data)
    request = DataRequest(
        positions=settings.positions,
        limit=settings.n_per_position,
        seed=config.seed,
        split=split,
        exact=True,
    )
    return {
        name: examples_of(task, replace(request, folder=folder if task.reads_data else None))
        for name, task in tasks_of(config).items()
    }


def problem_of(
    loaded: LoadedModel, examples: dict[str, tuple[Example, ...]], config: RunConfig
) -> ModelProblem | MixtureProblem:
    """Return the problem of some examples, scored as the configuration says; guards are scored in nats.

    Args:
        loaded: The model.
        examples: The examples of each task.
        config: The configuration.

    Raises:
        TaskError: The examples cannot be scored.
    """
    mix, task = mix_of(config), config.task
    tasks = tasks_of(config)
    parts = {
        name: ModelProblem(
            loaded,
            rows,
            task=tasks[name],
            metric=task.metric if name in mix.weights else "log_probability",
            chat_template=task.chat_template,
            over_length=task.over_length,
            batch_tokens=task.batch_tokens,
            share_prefixes=task.share_prefixes,
            checkpointing=task.checkpointing,
        )
        for name, rows in examples.items()
    }

    if mix.is_single:
        (only,) = parts.values()
        return only
    return MixtureProblem(
        {name: parts[name] for name in mix.weights},
        mix.weights,
        guarded={name: parts[name] for name in mix.tolerances},
        tolerances=mix.tolerances,
    )
