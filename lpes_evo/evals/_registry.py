"""Evaluation tasks by name."""

import difflib
from collections.abc import Callable
from dataclasses import dataclass, field

from lpes_evo.errors import LpesError, TaskError
from lpes_evo.evals._task import EvalTask
from lpes_evo.evals._task_calls import check_attributes
from lpes_evo.evals.tasks import (
    LEVAL_TASKS,
    ZEROSCROLLS_TASKS,
    KeyValueEvalTask,
    LEvalTask,
    MdqaTask,
    NeedleEvalTask,
    PasskeyTask,
    PerplexityTask,
    RecallEvalTask,
    ZeroScrollsTask,
)
from lpes_evo.user_code import error_text, make_from_file


@dataclass(frozen=True)
class TaskSpec:
    """A task as the user writes it: ``name[:variant][+option][+option=number]``.

    Attributes:
        text: The whole.
        name: Its first part, such as ``mdqa``.
        variant: What stands after the colon, such as ``20``; ``None`` without one.
        options: What stands after each plus; flags have ``None``.
    """

    text: str
    name: str
    variant: str | None = None
    options: dict[str, str | None] = field(default_factory=dict)

    def number(self, default: int) -> int:
        """Return the variant as an integer.

        Args:
            default: What a missing variant means.

        Returns:
            The integer.

        Raises:
            TaskError: The variant is no integer.
        """
        return default if self.variant is None else self._integer(self.variant, f"{self.name}:NUMBER")

    def flags(self, *known: str) -> dict[str, bool]:
        """Return which flags are set.

        Args:
            *known: All the flags, and the only options, that the task has.

        Returns:
            Whether each is set.

        Raises:
            TaskError: Another option is given, or a flag has a value.
        """
        self._only(known)
        valued = [name for name, value in self.options.items() if value is not None]
        if valued:
            raise TaskError(f"Expected +{valued[0]} without a value in the task {self.text!r:.80}.")
        return {name: name in self.options for name in known}

    def numbers(self, **defaults: int) -> dict[str, int]:
        """Return options with integers, such as ``+filler=3``.

        Args:
            **defaults: All the options that the task has, with what a missing one means.

        Returns:
            The value of each.

        Raises:
            TaskError: Another option is given, or a value is no integer.
        """
        self._only(tuple(defaults))
        return {
            name: self._integer(self.options[name], f"+{name}=NUMBER") if name in self.options else default
            for name, default in defaults.items()
        }

    def _only(self, known: tuple[str, ...]) -> None:
        unknown = [name for name in self.options if name not in known]
        if unknown:
            options = ", ".join(f"+{name}" for name in known) or "none"
            raise TaskError(
                f"Expected options of the task {self.name} to be among {options}, but got +{unknown[0]} in "
                f"{self.text!r:.80}."
            )

    def _integer(self, value: str | None, form: str) -> int:
        if value is None or not (value.isascii() and value.isdigit()):
            raise TaskError(f"Expected {form} in the task {self.text!r:.80}, but got {value!r:.40}.")
        return int(value)


TaskMaker = Callable[[TaskSpec], EvalTask]
"""Makes a task of what the user wrote."""


@dataclass(frozen=True)
class _Entry:
    make: TaskMaker
    variants: tuple[str, ...] = ()


def _key_value(spec: TaskSpec) -> EvalTask:
    return KeyValueEvalTask(None if spec.variant is None else spec.number(0), **spec.flags("drawn"))


def _mdqa(spec: TaskSpec) -> EvalTask:
    return MdqaTask(spec.number(20), **spec.flags("built"))


def _needle(spec: TaskSpec) -> EvalTask:
    numbers = spec.numbers(filler=1, digits=4)
    return NeedleEvalTask(spec.number(8), numbers["filler"], numbers["digits"])


def _recall(spec: TaskSpec) -> EvalTask:
    spec.flags()
    return RecallEvalTask(spec.number(48))


def _passkey(spec: TaskSpec) -> EvalTask:
    spec.flags()
    return PasskeyTask(spec.number(80))


def _perplexity(spec: TaskSpec) -> EvalTask:
    spec.flags()
    return PerplexityTask(spec.number(1024))


def _zeroscrolls(spec: TaskSpec) -> EvalTask:
    return ZeroScrollsTask(spec.variant or "", **spec.flags("test", "hub"))


def _leval(spec: TaskSpec) -> EvalTask:
    return LEvalTask(spec.variant or "", **spec.flags("length", "hub"))


_TASKS: dict[str, _Entry] = {
    "kv": _Entry(_key_value),
    "leval": _Entry(_leval, LEVAL_TASKS),
    "mdqa": _Entry(_mdqa),
    "needle": _Entry(_needle),
    "passkey": _Entry(_passkey),
    "perplexity": _Entry(_perplexity),
    "recall": _Entry(_recall),
    "zeroscrolls": _Entry(_zeroscrolls, tuple(ZEROSCROLLS_TASKS)),
}


def register_task(name: str, make: TaskMaker, variants: tuple[str, ...] = ()) -> None:
    """Give a task a name for `make_eval_task` and the command line.

    Args:
        name: Its name: letters, digits, ``_`` and ``-``.
        make: Makes the task of what the user wrote.
        variants: What has to stand after a colon; none where nothing has to.

    Raises:
        TaskError: The name is taken or not valid.
    """
    if not isinstance(name, str) or not name.replace("_", "").replace("-", "").isalnum():
        raise TaskError(f"Expected a task name of letters, digits, '_' and '-', but got {name!r:.80}.")
    if name in _TASKS:
        raise TaskError(f"Expected a new name for the task, but {name!r} is taken. Choose another.")
    _TASKS[name] = _Entry(make, variants)


def eval_task_names() -> list[str]:
    """Return the names of all tasks, with the variants of those that need one."""
    return sorted(
        name
        for family, entry in _TASKS.items()
        for name in ([f"{family}:{variant}" for variant in entry.variants] or [family])
    )


def make_eval_task(spec: str) -> EvalTask:
    """Make an evaluation task.

    Args:
        spec: ``name[:variant][+option]``, such as ``kv:25``, ``mdqa:20+built`` or ``leval:tpo+length``; or the path
            of a Python file and the name of a task class in it, such as ``my_task.py:MyTask``. The file is run.

    Returns:
        The task.

    Raises:
        TaskError: The name, the variant or an option is unknown, or the file does not define such a task.
    """
    if not isinstance(spec, str) or not spec.strip():
        raise TaskError(f"Expected the name of a task such as kv or leval:tpo, but got {spec!r:.80}.")
    path, colon, _ = spec.strip().rpartition(":")
    if colon and path.endswith(".py"):
        from_file = make_from_file(spec.strip(), EvalTask, TaskError)  # type: ignore[type-abstract]
        check_attributes(from_file)
        return from_file
    parsed = _parse(spec.strip())
    entry = _TASKS.get(parsed.name)
    known = eval_task_names()
    full_name = parsed.name if parsed.variant is None else f"{parsed.name}:{parsed.variant}"
    if entry is None or (entry.variants and parsed.variant not in entry.variants):
        near = difflib.get_close_matches(full_name, [*known, *_TASKS], n=1, cutoff=0.6)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise TaskError(f"Expected a task among {', '.join(known)}, but got {full_name!r:.80}.{hint}")
    try:
        task = entry.make(parsed)
    except LpesError:
        raise
    except Exception as error:  # a user can register anything
        raise TaskError(
            f"Expected the maker registered for {parsed.name!r} to make a task, but it raised {error_text(error)}."
        ) from error
    if not isinstance(task, EvalTask):
        raise TaskError(
            f"Expected the maker registered for the task {parsed.name!r} to return an EvalTask, but got "
            f"{type(task).__name__}."
        )
    check_attributes(task)
    return task


def _parse(text: str) -> TaskSpec:
    head, *parts = text.split("+")
    name, colon, variant = head.partition(":")
    options: dict[str, str | None] = {}
    for part in parts:
        key, equals, value = part.partition("=")
        if not key or key in options or (equals and not value):
            raise TaskError(
                f"Expected options such as +length or +filler=3, each once, but got {text!r:.80}."
            )
        options[key] = value if equals else None
    return TaskSpec(text, name, variant if colon else None, options)
