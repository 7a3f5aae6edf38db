"""Loading of harness tasks, with the check that every question can be scored before any is asked."""

from pathlib import Path
from typing import Any

from lpes_evo.errors import TaskError
from lpes_evo.problems import is_folder


def load_tasks(name: str, include_path: Path | None) -> dict[str, Any]:
    """Load a task or a group of tasks with its data.

    Args:
        name: Name of the task in the harness.
        include_path: Folder with task files of the user, which go before those of the harness.

    Returns:
        The harness's task objects by their names; those of a group are its subjects.

    Raises:
        TaskError: The name is unknown, a task file is malformed, or its data cannot be read.
    """
    from datasets.exceptions import DatasetsError
    from lm_eval.tasks import TaskManager

    if include_path is not None and not is_folder(include_path):
        raise TaskError(f"Expected a folder with task files at {include_path}, but there is none.")

    try:
        manager = TaskManager(include_path=include_path)
        if name not in manager.task_index:
            raise TaskError(
                f"Expected a task that lm-evaluation-harness or a task file in the data folder has, but {name!r} is "
                "none. 'lm_eval ls tasks' lists those of the harness."
            )
        return dict(manager.load([name])["tasks"])
    except TaskError:
        raise
    except (OSError, DatasetsError) as error:
        raise no_data(error, name) from error
    except ImportError as error:
        raise TaskError(
            f"Expected the packages that task {name!r} of the harness uses, but one is missing: {_one_line(error)} "
            "Install it beside lm-eval."
        ) from error
    except Exception as error:
        # Task files hold templates and code of their own, which can raise anything.
        raise TaskError(
            f"Expected the harness to load task {name!r}, but it failed: {type(error).__name__}: {_one_line(error)} "
            "The task file is malformed, or its first question lacks a field or its label."
        ) from error


def no_data(error: Exception, name: str | None = None) -> TaskError:
    """Return the error for data that the harness could not get.

    Args:
        error: The error that the harness raised.
        name: The task, where it is known.

    Returns:
        The error, on one line, with a remedy.
    """
    task = "the harness's task" if name is None else f"task {name!r}"
    return TaskError(
        f"Expected the data of {task} from the hub or the disk, but it cannot be read: {_one_line(error)} Connect to "
        "the hub once, so that the data is kept, or name a folder of task files on local data: --data of "
        "lpes-evo eval, --include_path of lpes-lm-eval."
    )


def check_tasks(name: str, tasks: dict[str, Any], limit: int | None, n_shots: int | None) -> None:
    """Check that every question has prompt and label, and that the number of shots can be had.

    The harness scores a question without a label as wrong, and ignores a number of shots that a task file forbids.

    Args:
        name: Name of the task or group in the harness.
        tasks: The objects that `load_tasks` gave.
        limit: Most questions of each subject; ``None`` for all.
        n_shots: Number of solved examples in the prompt; ``None`` for that of the task file.

    Raises:
        TaskError: There are no questions, one has no label or one that is not among its choices, one lacks a field of
            the prompt, or the task file sets the number of shots to 0.
    """
    for subject, task in tasks.items():
        if n_shots and task.get_config("num_fewshot") == 0:
            raise TaskError(
                f"Expected task {subject!r} to take {n_shots} shots, but its task file allows none. Leave out the "
                "number of shots."
            )

        n_questions = 0
        for number, question in task.doc_iterator(limit=limit):
            n_questions += 1
            try:
                task.doc_to_text(question)
                fault = _label_fault(task, question)
            except Exception as error:
                # Templates of the task file make prompt and label of the fields of a question.
                fault = f"{type(error).__name__}: {_one_line(error)}"

            if fault:
                raise TaskError(
                    f"Expected every question of {subject!r} to have a prompt and a label, but question {number} "
                    f"cannot be scored: {fault} Choose a split with labels, or correct the data."
                )

        if not n_questions:
            raise TaskError(f"Expected questions in {subject!r} of task {name!r}, but its data has none.")


def _label_fault(task: Any, question: Any) -> str | None:
    """Return what is wrong with the label of a question, or ``None``."""
    if callable(task.config.process_results):
        # The task's own code scores the answer, with or without a label.
        return None
    if task.OUTPUT_TYPE != "multiple_choice":
        target = task.doc_to_target(question)
        if target is None or target in ("", []) or (isinstance(target, list) and None in target):
            return f"its label is {target!r}."
        return None

    choices = task.doc_to_choice(question)
    label = task.doc_to_text(question) if task.multiple_input else task.doc_to_target(question)
    for part in label if isinstance(label, list) and label else [label]:
        inside = 0 <= part < len(choices) if isinstance(part, (int, float)) else part in choices
        if not inside:
            return f"its label is {part!r:.60}, its choices are {choices!r:.120}."
    return None


def _one_line(error: BaseException) -> str:
    """Return the text of an error on one line of at most 300 characters, with a full stop."""
    text = " ".join(str(error).split())
    text = text if len(text) <= 300 else f"{text[:297]}..."
    return text if text.endswith(".") else f"{text}."
