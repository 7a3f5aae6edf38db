"""The registry of tasks: one syntax of names, for searches and evaluations alike."""

import difflib
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lpes_evo.errors import LpesError, TaskError
from lpes_evo.problems._task import Task
from lpes_evo.problems._task_calls import check_attributes
from lpes_evo.problems.tasks import (
    LEVAL_TASKS,
    ZEROSCROLLS_TASKS,
    KeyValueTask,
    LEvalTask,
    MdqaTask,
    NeedleTask,
    PasskeyTask,
    PerplexityTask,
    QaTask,
    RecallTask,
    ZeroScrollsTask,
)
from lpes_evo.user_code import error_text, make_from_file


@dataclass(frozen=True)
class TaskSpec:
    """A task as the user writes it: ``name[:variant][+option][+option=value]``.

    A variant that is a file of JSON lines reaches to the last ``.jsonl`` or ``.jsonl.gz`` that ends the text or stands
    before a plus, so that the name of the file may have colons and pluses.

    Attributes:
        text: The whole.
        name: Its first part, such as ``mdqa``.
        variant: The text after the colon, such as ``20``; ``None`` without a colon.
        options: The texts after each plus, by name; flags have ``None``.
    """

    text: str
    name: str
    variant: str | None = None
    options: dict[str, str | None] = field(default_factory=dict)

    def number(self, default: int) -> int:
        """Return the variant as an integer.

        Args:
            default: The value of a missing variant.

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
        self.refuse_unknown(*known)
        valued = [name for name, value in self.options.items() if value is not None]
        if valued:
            raise TaskError(f"Expected +{valued[0]} without a value in the task {self.text!r:.80}.")
        return {name: name in self.options for name in known}

    def numbers(self, **defaults: int) -> dict[str, int]:
        """Return options with integers, such as ``+filler=3``.

        Args:
            **defaults: All the options that the task has, with the values of missing ones.

        Returns:
            The value of each.

        Raises:
            TaskError: Another option is given, or a value is no integer.
        """
        self.refuse_unknown(*defaults)
        return {
            name: self._integer(self.options[name], f"+{name}=NUMBER") if name in self.options else default
            for name, default in defaults.items()
        }

    def texts(self, *known: str) -> dict[str, str]:
        """Return options with a text, such as ``+metric=f1``.

        Args:
            *known: All the options that the task has.

        Returns:
            The text of each that is given.

        Raises:
            TaskError: Another option is given, or one has no text.
        """
        self.refuse_unknown(*known)
        for name, value in self.options.items():
            if value is None:
                raise TaskError(f"Expected +{name}=TEXT in the task {self.text!r:.80}, but got no text.")
        return {name: str(value) for name, value in self.options.items()}

    def only(self, *known: str) -> "TaskSpec":
        """Return the spec with those of its options that are known."""
        return replace(self, options={name: value for name, value in self.options.items() if name in known})

    def refuse_unknown(self, *known: str) -> None:
        """Refuse options that are not known.

        Raises:
            TaskError: There is one.
        """
        unknown = [name for name in self.options if name not in known]
        if unknown:
            options = ", ".join(f"+{name}" for name in known) or "none"
            raise TaskError(
                f"Expected options of the task {self.name} to be among {options}, but got +{unknown[0]} in "
                f"{self.text!r:.80}."
            )

    def _integer(self, value: str | None, form: str) -> int:
        """Return a value as an integer.

        Raises:
            TaskError: The value is none; the message shows the form of the option.
        """
        if value is None or not (value.isascii() and value.isdigit()):
            raise TaskError(f"Expected {form} in the task {self.text!r:.80}, but got {value!r:.40}.")
        return int(value)


_ENDINGS = (".jsonl", ".jsonl.gz")
_FILE = re.compile(r"(?P<head>[^:+]+:.*\.jsonl(?:\.gz)?)(?P<options>(?:\+.*)?)", re.DOTALL)

TaskMaker = Callable[[TaskSpec], Task]
"""Makes a task from the text of the user."""


@dataclass(frozen=True)
class _OwnTasks:
    """A class of tasks of this package under a name.

    Attributes:
        kind: The class.
        variant: The argument that a number after the colon is for; ``None`` where one of ``variants`` stands there.
        flags: Options without a value, named as their arguments.
        numbers: The argument of each option with a number.
        texts: Options with a text, named as their arguments.
        variants: The texts that can stand after the colon; none where a number can.
        file: The argument that a file after the colon is for, which must be there; ``None`` for other tasks.
    """

    kind: Callable[..., Task]
    variant: str | None = None
    flags: tuple[str, ...] = ()
    numbers: dict[str, str] = field(default_factory=dict)
    texts: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    file: str | None = None

    def make(self, spec: TaskSpec, options: Mapping[str, Any]) -> Task:
        """Make a task from its text and further arguments of its class.

        Raises:
            TaskError: An option is unknown or is given twice, or the class refuses a value.
        """
        known = list(inspect.signature(self.kind).parameters)
        unknown = sorted(set(options) - set(known))
        if unknown:
            raise TaskError(
                f"Expected options of the task {spec.name!r} to be among {', '.join(known)}, but got "
                f"{', '.join(unknown)}."
            )

        written = self._written(spec)
        twice = sorted(set(options) & set(written))
        if twice:
            raise TaskError(
                f"Expected every option of a task once, but got {', '.join(twice)} as an option and in the name "
                f"{spec.text!r:.80}. Leave one out."
            )
        return self.kind(**written, **options)

    def _written(self, spec: TaskSpec) -> dict[str, Any]:
        """Return the arguments that the text gives.

        Raises:
            TaskError: An option is unknown or has no value of its kind, or the variant is no integer.
        """
        spec.refuse_unknown(*self.flags, *self.numbers, *self.texts)
        flags = spec.only(*self.flags).flags(*self.flags)
        found: dict[str, Any] = {name: True for name, is_set in flags.items() if is_set}
        numbers = spec.only(*self.numbers).numbers(**dict.fromkeys(self.numbers, 0))
        found |= {self.numbers[name]: value for name, value in numbers.items() if name in spec.options}
        found |= spec.only(*self.texts).texts(*self.texts)

        if self.file is not None:
            if not spec.variant or not spec.variant.endswith(_ENDINGS):
                raise TaskError(
                    f"Expected {spec.name}:FILE with a file that ends in {' or '.join(_ENDINGS)}, but got "
                    f"{spec.text!r:.200}."
                )
            found[self.file] = spec.variant
        elif spec.variant is not None:
            found[self.variant or "variant"] = spec.number(0) if self.variant else spec.variant
        return found


@dataclass(frozen=True)
class _RegisteredTasks:
    """The maker that a user registered under a name.

    Attributes:
        maker: The maker.
        variants: The texts that must stand after the colon; none where nothing must.
    """

    maker: TaskMaker
    variants: tuple[str, ...] = ()

    def make(self, spec: TaskSpec, options: Mapping[str, Any]) -> Task:
        """Make a task from its text.

        Raises:
            TaskError: Options are given, or the maker failed or made something else.
        """
        _refuse_options(spec.text, options)
        try:
            task = self.maker(spec)
        except LpesError:
            raise
        except Exception as error:  # a user can register anything
            raise TaskError(
                f"Expected the maker registered for {spec.name!r} to make a task, but it raised {error_text(error)}."
            ) from error

        if not isinstance(task, Task):
            raise TaskError(
                f"Expected the maker registered for the task {spec.name!r} to return a Task, but got "
                f"{type(task).__name__}."
            )
        return task


_TASKS: dict[str, _OwnTasks | _RegisteredTasks] = {
    "kv": _OwnTasks(KeyValueTask, "n_pairs", flags=("drawn",)),
    "leval": _OwnTasks(LEvalTask, flags=("length", "hub"), variants=LEVAL_TASKS),
    "mdqa": _OwnTasks(MdqaTask, "n_documents", flags=("built", "bm25")),
    "needle": _OwnTasks(
        NeedleTask,
        "n_keys",
        flags=("nolima",),
        numbers={"filler": "n_filler", "digits": "n_digits", "wording": "wording", "wordings": "wordings"},
    ),
    "passkey": _OwnTasks(PasskeyTask, "n_filler"),
    "perplexity": _OwnTasks(PerplexityTask, "n_words"),
    "qa": _OwnTasks(
        QaTask, numbers={"documents": "n_documents"}, texts=("template", "passage", "metric"), file="file"
    ),
    "recall": _OwnTasks(RecallTask, "n_pairs"),
    "zeroscrolls": _OwnTasks(ZeroScrollsTask, flags=("test", "hub"), variants=tuple(ZEROSCROLLS_TASKS)),
}


def register_task(name: str, make: TaskMaker, variants: tuple[str, ...] = ()) -> None:
    """Give a task a name for `make_task` and the command line.

    Args:
        name: Its name: letters, digits, ``_`` and ``-``.
        make: Makes the task from the text of the user.
        variants: The texts that must stand after a colon; none where nothing must.

    Raises:
        TaskError: The name is taken or not valid.
    """
    if not isinstance(name, str) or not name.replace("_", "").replace("-", "").isalnum():
        raise TaskError(f"Expected a task name of letters, digits, '_' and '-', but got {name!r:.80}.")
    if name in _TASKS:
        raise TaskError(f"Expected a new name for the task, but {name!r} is taken. Choose another.")
    _TASKS[name] = _RegisteredTasks(make, variants)


def task_names() -> list[str]:
    """Return the names of all tasks, with the variants of those that need one; ``FILE`` stands for a file."""
    return sorted(
        name
        for family, entry in _TASKS.items()
        for name in ([f"{family}:{variant}" for variant in entry.variants] or [_plain_name(family, entry)])
    )


def _plain_name(family: str, entry: _OwnTasks | _RegisteredTasks) -> str:
    """Return the name of a task without variants."""
    return f"{family}:FILE" if isinstance(entry, _OwnTasks) and entry.file else family


def make_task(spec: str, **options: Any) -> Task:
    """Make a task.

    Args:
        spec: ``name[:variant][+option]``, such as ``kv:25``, ``mdqa:20+built`` or ``leval:tpo+length``; or the path
            of a Python file and the name of a task class in it, such as ``my_task.py:MyTask``. The file is run.
        **options: Arguments of the task's class that the name does not give, such as ``n_pairs=25`` or
            ``data="records.jsonl"`` for ``kv``.

    Returns:
        The task.

    Raises:
        TaskError: The name, the variant or an option is unknown, an option has a value that the task refuses or is
            given twice, or the file does not define such a task.
    """
    if not isinstance(spec, str) or not spec.strip():
        raise TaskError(f"Expected the name of a task such as kv or leval:tpo, but got {spec!r:.80}.")

    path, colon, _ = spec.strip().rpartition(":")
    if colon and path.endswith(".py"):
        _refuse_options(spec, options)
        task = make_from_file(spec.strip(), Task, TaskError)  # type: ignore[type-abstract]
    else:
        parsed = _parse(spec.strip())
        task = _entry_of(parsed).make(parsed, options)
    check_attributes(task)
    return task


def _entry_of(spec: TaskSpec) -> _OwnTasks | _RegisteredTasks:
    """Return the entry of a name.

    Raises:
        TaskError: There is none with such a name and variant; the message holds the nearest name.
    """
    entry = _TASKS.get(spec.name)
    if entry is not None and (not entry.variants or spec.variant in entry.variants):
        return entry
    known = task_names()
    full_name = spec.name if spec.variant is None else f"{spec.name}:{spec.variant}"
    near = difflib.get_close_matches(full_name, [*known, *_TASKS], n=1, cutoff=0.6)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise TaskError(f"Expected a task among {', '.join(known)}, but got {full_name!r:.80}.{hint}")


def _refuse_options(text: str, options: Mapping[str, Any]) -> None:
    """Refuse options besides the name of a user's task.

    Raises:
        TaskError: There are some.
    """
    if options:
        raise TaskError(
            f"Expected no options for the task {text!r:.300} of a user, but got {', '.join(sorted(options))}. Leave "
            "them out."
        )


def _parse(text: str) -> TaskSpec:
    """Return the parts of a text.

    Raises:
        TaskError: An option comes twice or has no name or no value.
    """
    file = _FILE.fullmatch(text)
    head, *parts = (file["head"], *file["options"].split("+")[1:]) if file else text.split("+")
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
