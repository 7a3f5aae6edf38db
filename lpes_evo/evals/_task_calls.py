"""Calls of a task's own code, which can be a user's: whatever goes wrong there is one line that says where."""

import json
import math
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar, get_args

import numpy as np
import numpy.typing as npt

from lpes_evo.errors import LpesError, TaskError
from lpes_evo.evals._statistics import Headline
from lpes_evo.evals._task import DataRequest, EvalExample, EvalTask, Kind
from lpes_evo.problems import is_position
from lpes_evo.user_code import error_text

T = TypeVar("T")

_OWN = "lpes_evo."


def check_attributes(task: EvalTask) -> None:
    """Check what a task says about itself.

    Args:
        task: The task.

    Raises:
        TaskError: An attribute is missing or of a wrong type.
    """
    rules: dict[str, tuple[Callable[[Any], bool], str]] = {
        "name": (_is_line, "a name on one line"),
        "metric": (_is_line, "a name on one line"),
        "kind": (lambda kind: kind in get_args(Kind), f"one of {', '.join(get_args(Kind))}"),
        "parts": (
            lambda parts: isinstance(parts, tuple) and bool(parts) and all(map(_is_line, parts)),
            "a tuple of names, such as ('score',)",
        ),
        "larger_is_better": (lambda value: isinstance(value, bool), "True or False"),
        "teacher_forcing": (lambda value: isinstance(value, bool), "True or False"),
        "reads_data": (lambda value: isinstance(value, bool), "True or False"),
    }
    for name, (is_right, expected) in rules.items():
        value = _call(task, name, "be readable", partial(getattr, task, name, None), kind="attribute")
        if not is_right(value):
            raise TaskError(
                f"Expected the attribute {name} of {_label(task)} to be {expected}, but it is {_short(value)}."
            )
    if task.kind == "likelihood" and len(task.parts) != 2:
        raise TaskError(
            f"Expected the attribute parts of {_label(task)} to name two numbers, since the scores of a likelihood "
            f"task are nats and tokens, but it is {_short(task.parts)}. Set parts = ('nats', 'tokens')."
        )


def draw_examples(task: EvalTask, request: DataRequest) -> tuple[EvalExample, ...]:
    """Let a task make its examples, and check every field of them.

    Args:
        task: The task.
        request: Which examples are wanted.

    Returns:
        The examples, at least one, each with an id of its own.

    Raises:
        TaskError: The request is not valid, data are missing or malformed, the task's code failed, or an example is
            not as `EvalExample` describes it.
    """
    found = _call(task, "examples", "make the examples", lambda: list(task.examples(request)))
    for number, example in enumerate(found):
        if not isinstance(example, EvalExample):
            raise TaskError(
                f"Expected the method examples of {_label(task)} to give a list of EvalExample, but number {number} is "
                f"{_short(example)}."
            )
        fault = _call(task, "examples", "give sound examples", partial(_fault, example), number)
        if fault:
            raise TaskError(
                f"Expected every example of the task {task.name!r} to be sound, but the method examples of "
                f"{_label(task)} made {_short(example.id)} with {fault}."
            )
    ids = {example.id for example in found}
    if not found or len(ids) < len(found):
        raise TaskError(
            f"Expected examples of the task {task.name!r} with an id each, but the method examples of {_label(task)} "
            f"made {len(found)} examples with {len(ids)} different ids."
        )
    return tuple(found)


def score_output(task: EvalTask, output: str, example: EvalExample) -> tuple[float, ...]:
    """Let a task score an output.

    Args:
        task: The task.
        output: What the model said.
        example: What it was asked.

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


def headline_of(task: EvalTask) -> Headline | None:
    """Return how a task condenses scores; ``None`` for the mean of the first part, which needs no resampling.

    Args:
        task: The task.

    Returns:
        A function that raises `TaskError` where the task's code fails, or does not give a finite number.
    """
    if type(task).headline is EvalTask.headline:
        return None

    def headline(scores: npt.NDArray[np.float64]) -> float:
        return _call(
            task,
            "headline",
            f"condense the scores of {len(scores)} examples to one finite number",
            lambda: _numbers([task.headline(scores)], 1)[0],
        )

    return headline


def warnings_of(task: EvalTask, examples: Sequence[EvalExample]) -> list[str]:
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
            raise _RefusedError(f"it gave {_short(given)}")
        return [" ".join(line.split()) for line in given]

    return _call(task, "check", "give a list of warnings", warn)


class _RefusedError(ValueError):
    """What a task's code gave is not what it has to give."""


def _numbers(values: Any, n_values: int) -> tuple[float, ...]:
    """Return so many finite numbers as floats, or refuse them."""
    try:
        found = tuple(math.nan if isinstance(value, str) else float(value) for value in values)
    except TypeError:
        found = ()
    if len(found) != n_values or not all(map(math.isfinite, found)):
        raise _RefusedError(f"it gave {_short(values)}")
    return found


def _call(
    task: EvalTask,
    method: str,
    expected: str,
    work: Callable[[], T],
    example: str | int | None = None,
    *,
    kind: str = "method",
) -> T:
    """Run code of a task, and say in one line where it failed.

    Errors that this package's own tasks raise on purpose are such lines already.
    """
    try:
        return work()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a user's code can raise anything
        if isinstance(error, LpesError) and type(task).__module__.startswith(_OWN):
            raise
        where = "" if example is None else f"for the example {_short(example)} "
        what = str(error) if isinstance(error, _RefusedError) else f"it raised {error_text(error)}"
        raise TaskError(
            f"Expected the {kind} {method} of {_label(task, error)} to {expected}, but {where}{what}. Mend it; "
            "finished answers are kept."
        ) from error


def _label(task: EvalTask, error: BaseException | None = None) -> str:
    """Return the class of a task and its file, and the line of the file that an error went through last."""
    made_by = type(task)
    file = getattr(sys.modules.get(made_by.__module__), "__file__", None)
    if file is None or made_by.__module__.startswith(_OWN):
        return f"{made_by.__name__} (task {_short(getattr(task, 'name', None))})"
    lines = []
    trace = None if error is None else error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            lines.append(trace.tb_lineno)
        trace = trace.tb_next
    return f"{made_by.__name__} in {file}" + (f", line {lines[-1]}," if lines else "")


def _short(value: Any) -> str:
    """Return a value as text of at most 80 letters, whatever a user made of it."""
    text = f"a {type(value).__name__} that cannot be shown"
    with suppress(Exception):
        text = " ".join(repr(value).split())
    return text[:80]


def _is_line(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip()) and value.isprintable()


def _fault(example: EvalExample) -> str | None:
    """Return what is wrong with the fields of an example."""
    rules: dict[str, tuple[Callable[[Any], bool], str]] = {
        "id": (lambda text: _is_text(text) and bool(text.strip()), "text that is not empty"),
        "prompt": (_is_text, "text in Unicode"),
        "answers": (
            lambda texts: isinstance(texts, tuple) and all(map(_is_text, texts)),
            "a tuple of texts in Unicode",
        ),
        "position": (lambda place: place is None or _is_place(place), "a float from 0 to 1 or None"),
        "source": (_is_text, "text in Unicode"),
        "cut": (lambda span: span is None or _is_span(span, example.prompt), "a span of the prompt or None"),
        "gold": (lambda span: span is None or _is_span(span, example.prompt), "a span of the prompt or None"),
        "answer_prefix": (_is_text, "text in Unicode"),
        "max_new_tokens": (lambda count: type(count) is int and count >= 0, "an int from 0"),
        "details": (_is_json, "a dict that json can write"),
    }
    for name, (is_right, expected) in rules.items():
        value = getattr(example, name)
        if not is_right(value):
            return f"{name} = {_short(value)}, where {expected} belongs"
    return None


def _is_text(value: Any) -> bool:
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


def _is_place(value: Any) -> bool:
    return isinstance(value, (int, float)) and is_position(value)


def _is_span(span: Any, text: str) -> bool:
    return (
        isinstance(span, tuple)
        and len(span) == 2
        and all(type(end) is int for end in span)
        and 0 <= span[0] <= span[1] <= len(text)
    )


def _is_json(value: Any) -> bool:
    try:
        return isinstance(value, dict) and json.dumps(value, allow_nan=False, sort_keys=True) is not None
    except (TypeError, ValueError, RecursionError):
        return False
