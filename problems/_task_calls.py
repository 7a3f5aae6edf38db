"""Guarded calls of a task's code, which may be a user's: each failure becomes one line that names its place."""

import math
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, get_args

import numpy as np
import numpy.typing as npt

from lpes_evo.errors import LpesError, TaskError
from lpes_evo.problems._checks import is_line
from lpes_evo.problems._example import Example, fault_of, short
from lpes_evo.problems._task import DataRequest, Kind, Task
from lpes_evo.user_code import error_text

T = TypeVar("T")

Headline = Callable[[npt.NDArray[np.float64]], float]
"""A function that condenses scores, ``(n_examples, n_parts)``, to the number that is reported."""

_OWN = "lpes_evo."


def check_attributes(task: Task) -> None:
    """Check the attributes of a task.

    Args:
        task: The task.

    Raises:
        TaskError: An attribute is missing or of a wrong type.
    """
    rules: dict[str, tuple[Callable[[Any], bool], str]] = {
        "name": (is_line, "a name on one line"),
        "metric": (is_line, "a name on one line"),
        "kind": (lambda kind: kind in get_args(Kind), f"one of {', '.join(get_args(Kind))}"),
        "parts": (
            lambda parts: isinstance(parts, tuple) and bool(parts) and all(map(is_line, parts)),
            "a tuple of names, such as ('score',)",
        ),
        "larger_is_better": (lambda value: isinstance(value, bool), "True or False"),
        "teacher_forcing": (lambda value: isinstance(value, bool), "True or False"),
        "reads_data": (lambda value: isinstance(value, bool), "True or False"),
        "splits_sources": (lambda value: isinstance(value, bool), "True or False"),
    }

    for name, (is_right, expected) in rules.items():
        value = _call(task, name, "be readable", partial(getattr, task, name, None), kind="attribute")
        if not is_right(value):
            raise TaskError(
                f"Expected the attribute {name} of {_label(task)} to be {expected}, but it is {short(value)}."
            )

    if task.kind == "likelihood" and len(task.parts) != 2:
        raise TaskError(
            f"Expected the attribute parts of {_label(task)} to name two numbers, since the scores of a likelihood "
            f"task are nats and tokens, but it is {short(task.parts)}. Set parts = ('nats', 'tokens')."
        )


def examples_of(task: Task, request: DataRequest) -> tuple[Example, ...]:
    """Let a task make its examples, and check every field of them.

    Args:
        task: The task.
        request: Which examples are wanted; an exact one is refused where there are fewer.

    Returns:
        The examples, at least one, each with an id of its own.

    Raises:
        TaskError: The request is not valid, data are missing or malformed, the task's code failed, or an example is
            not as `Example` describes it.
    """
    if not task.splits_sources:
        # Tasks of users that draw their data know two splits.
        request = replace(request, split=request.drawn_split)
    found = _call(task, "examples", "make the examples", lambda: list(task.examples(request)))

    for number, example in enumerate(found):
        if not isinstance(example, Example):
            raise TaskError(
                f"Expected the method examples of {_label(task)} to give a list of Example, but number {number} is "
                f"{short(example)}."
            )
        fault = _call(task, "examples", "give sound examples", partial(fault_of, example), number)
        if fault:
            raise TaskError(
                f"Expected every example of the task {task.name!r} to be sound, but the method examples of "
                f"{_label(task)} made {short(example.id)} with {fault}."
            )

    ids = {example.id for example in found}
    if not found or len(ids) < len(found):
        raise TaskError(
            f"Expected examples of the task {task.name!r} with an id each, but the method examples of {_label(task)} "
            f"made {len(found)} examples with {len(ids)} different ids."
        )

    _refuse_too_few(task, found, request)
    return tuple(found)


def _refuse_too_few(task: Task, examples: Sequence[Example], request: DataRequest) -> None:
    """Refuse examples that are fewer than an exact request asks for, at any position.

    Raises:
        TaskError: There are too few.
    """
    if not request.exact or request.limit is None:
        return
    for position, number in Counter(example.position for example in examples).items():
        if number < request.limit:
            where = "" if position is None else f" at position {position:g}"
            raise TaskError(
                f"Expected {request.limit} examples of the task {task.name!r}{where}, but its {request.split} split "
                f"has {number}. Ask for fewer examples or use more data."
            )


def score_output(task: Task, output: str, example: Example) -> tuple[float, ...]:
    """Let a task score an output.

    Args:
        task: The task.
        output: The output of the model.
        example: The example that it answers.

    Returns:
        One finite number for each of the task's parts.

    Raises:
        TaskError: The task's code failed, or gave something else.
    """
    return _call(
        task,
        "score",
        f"give one finite number for each of {', '.join(task.parts)}",
        lambda: _numbers(task.score(output, example), len(task.parts)),
        example.id,
    )


def headline_of(task: Task) -> Headline | None:
    """Return the headline of a task as a function; ``None`` for the mean of the first part, which needs no resampling.

    Args:
        task: The task.

    Returns:
        A function that raises `TaskError` where the task's code fails, or does not give a finite number.
    """
    if type(task).headline is Task.headline:
        return None

    def headline(scores: npt.NDArray[np.float64]) -> float:
        return _call(
            task,
            "headline",
            f"condense the scores of {len(scores)} examples to one finite number",
            lambda: _numbers([task.headline(scores)], 1)[0],
        )

    return headline


def warnings_of(task: Task, examples: Sequence[Example]) -> list[str]:
    """Let a task warn about examples whose scores would mislead.

    Args:
        task: The task.
        examples: The examples.

    Returns:
        The warnings, one line each.

    Raises:
        TaskError: The task's code failed, or gave something else.
    """

    def warn() -> list[str]:
        given: Any = task.check(examples)
        if isinstance(given, str) or not all(isinstance(line, str) for line in given):
            raise _RefusedError(f"it gave {short(given)}")
        return [" ".join(line.split()) for line in given]

    return _call(task, "check", "give a list of warnings", warn)


class _RefusedError(ValueError):
    """A task's code gave something else than it has to give."""


def _numbers(values: Any, n_values: int) -> tuple[float, ...]:
    """Return finite numbers as floats.

    Raises:
        _RefusedError: They are not ``n_values`` finite numbers.
    """
    try:
        found = tuple(math.nan if isinstance(value, str) else float(value) for value in values)
    except TypeError:
        found = ()
    if len(found) != n_values or not all(map(math.isfinite, found)):
        raise _RefusedError(f"it gave {short(values)}")
    return found


def _call(
    task: Task,
    method: str,
    expected: str,
    work: Callable[[], T],
    example: str | int | None = None,
    *,
    kind: str = "method",
) -> T:
    """Run code of a task.

    Errors that this package's own tasks raise on purpose pass through, since they are one line already.

    Raises:
        TaskError: The code failed; the message names its file, line, class and method.
    """
    try:
        return work()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a user's code can raise anything
        if isinstance(error, LpesError) and type(task).__module__.startswith(_OWN):
            raise

        where = "" if example is None else f"for the example {short(example)} "
        what = str(error) if isinstance(error, _RefusedError) else f"it raised {error_text(error)}"
        raise TaskError(
            f"Expected the {kind} {method} of {_label(task, error)} to {expected}, but {where}{what}. Mend it; "
            "finished answers are kept."
        ) from error


def _label(task: Task, error: BaseException | None = None) -> str:
    """Return the class of a task and its file, and the line of the file that an error went through last."""
    made_by = type(task)
    file = getattr(sys.modules.get(made_by.__module__), "__file__", None)
    if file is None or made_by.__module__.startswith(_OWN):
        return f"{made_by.__name__} (task {short(getattr(task, 'name', None))})"

    lines = []
    trace = None if error is None else error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            lines.append(trace.tb_lineno)
        trace = trace.tb_next
    return f"{made_by.__name__} in {file}" + (f", line {lines[-1]}," if lines else "")
