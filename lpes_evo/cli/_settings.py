"""SettingOptions: options of a command that are made from the settings of a pydantic model.

A setting is written once, in its model: name, type, default, bounds, and a description in the docstring. The command
line reads it there.

Two libraries offer the same, and neither keeps what the users of this command line rely on. The command line of
pydantic-settings stands on argparse: options carry the path of a setting (``--model.name``), the help has no panels,
and a wrong value is reported in several lines. Cyclopts converts the values itself, reports a wrong one in a box, and
exits with 1. Typer keeps names, panels and exit codes as they are. The models alone judge
the values, so that the command line, a file and Python answer the same mistake with the same line.
"""

import functools
import inspect
import os
import re
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import typer
from typer.core import TyperCommand

from lpes_evo.errors import ConfigError

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from lpes_evo.config import Settings


@dataclass(frozen=True)
class _Option:
    """One option of a command.

    Attributes:
        key: The setting, as in a configuration file, such as ``model.dtype``.
        name: The option as a word of Python, such as ``dtype``.
        value: Type of a value.
        is_list: Whether the option takes several values with commas between.
        choices: The values that the option can take, where they are few.
        default: The default of the setting.
        is_required: Whether the option must be given.
        help: The description of the setting.
    """

    key: str
    name: str
    value: type
    is_list: bool
    choices: tuple[str, ...]
    default: Any
    is_required: bool
    help: str

    @classmethod
    def of(cls, key: str, name: str, field: "FieldInfo", description: str, *, is_optional: bool) -> "_Option":
        """Return the option of a field."""
        value, is_list, choices = _type_of(field.annotation)
        least = next((int(bound.ge) for bound in field.metadata if hasattr(bound, "ge")), 0)

        # A reader of the help knows neither the names of Python nor its empty value.
        plain = re.sub(r",? see `[^`]*`", "", description)
        plain = plain.replace("``None`` for", "when left out,").replace("`", "")
        plain += f" At least {least}." if least > 1 else ""

        is_required = field.is_required()
        default = None if is_required else field.default
        return cls(key, name, value, is_list, choices, default, is_required and not is_optional, plain)

    @property
    def flag(self) -> str:
        """The option as users write it."""
        return "--" + self.name.replace("_", "-")

    def parameter(self, panel: str, extra: Mapping[str, Any]) -> inspect.Parameter:
        """Return the option as a parameter that Typer understands."""
        shown: dict[str, Any] = {"help": self.help, "rich_help_panel": panel}
        default, annotation, flag = self.default, self.value, self.flag

        if self.is_list:
            annotation = str
            shown["metavar"] = "NUMBER,..." if self.value in (int, float) else "NAME,..."
            default = ",".join(
                f"{item:g}" if isinstance(item, float) else str(item) for item in default or ()
            )
        elif self.choices:
            choices = list(self.choices)
            shown |= {"metavar": "|".join(choices), "autocompletion": lambda: choices}
        elif default is True:
            flag = f"{flag}/--no-{flag.removeprefix('--')}"

        # An empty list is no default that a help could show.
        if not default and default != 0:
            default = None
        return inspect.Parameter(
            self.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if self.is_required else default,
            annotation=Annotated[annotation | None, typer.Option(flag, **{**shown, **extra})],
        )

    def read(self, value: Any) -> Any:
        """Return a value of the command line as the model takes it."""
        if not self.is_list:
            return os.fspath(value) if self.value is str else value

        parts = [part.strip() for part in value.split(",")]
        if self.value not in (int, float):
            return tuple(parts)
        try:
            return tuple(self.value(part) for part in parts)
        except ValueError as error:
            raise ConfigError(
                f"Expected {self.flag} to be numbers with commas between, such as 0,0.5,1, but got {value!r:.80}."
            ) from error


class SettingOptions:
    """Options for settings of one model; the options of nested settings are among them.

    An option has the name of its setting; that of ``model.name`` is ``--model``, and that of ``task.name`` ``--task``.

    Args:
        model: Returns the class of the settings, which is loaded once the options are needed.
        panel: Heading of the options in the help.
        only: The settings that become options, such as ``model.dtype``; all of them when empty.
        omit: Settings that become no options, such as ``seed``, or ``model`` with all of its parts.
        optional: Settings that the model requires and the command does not.
        names: Names of options that differ from those of their settings, by setting.
        extra: More arguments of `typer.Option` by setting, such as ``metavar``.
        show_defaults: Whether the help shows the defaults of the model; not where a file or a preset gives others.
    """

    def __init__(
        self,
        model: "Callable[[], type[Settings]]",
        panel: str,
        *,
        only: Collection[str] = (),
        omit: Collection[str] = (),
        optional: Collection[str] = (),
        names: Mapping[str, str] = types.MappingProxyType({}),
        extra: Mapping[str, Mapping[str, Any]] = types.MappingProxyType({}),
        show_defaults: bool = True,
    ) -> None:
        self._model = model
        self._panel = panel
        self._only = only
        self._omit = omit
        self._optional = optional
        self._names = names
        self._extra = extra
        self._show_defaults = show_defaults

    @functools.cached_property
    def _options(self) -> list[_Option]:
        """The options, in the order of the settings."""
        found = []
        for key, field, description in _leaves(self._model()):
            is_omitted = key in self._omit or key.partition(".")[0] in self._omit
            if is_omitted or (self._only and key not in self._only):
                continue
            *_, parent, leaf = ["", *key.split(".")]
            name = self._names.get(key, parent if leaf == "name" else leaf)
            found.append(_Option.of(key, name, field, description, is_optional=key in self._optional))
        return found

    def parameters(self) -> list[inspect.Parameter]:
        """Return the options as parameters that Typer understands."""
        hidden = {} if self._show_defaults else {"show_default": False}
        return [
            option.parameter(self._panel, {**hidden, **self._extra.get(option.key, {})})
            for option in self._options
        ]

    def chosen(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings that a user has chosen.

        Args:
            given: Values of the command line by the name of the option; those of other options do not matter.

        Returns:
            Values by dotted key, such as ``{"model.dtype": "float32"}``.

        Raises:
            ConfigError: A list of numbers holds something else.
        """
        return {
            option.key: option.read(given[option.name])
            for option in self._options
            if given.get(option.name) is not None
        }


def add_command(
    app: typer.Typer, function: Callable[..., None], *groups: SettingOptions, name: str | None = None
) -> None:
    """Add a function to the command line, with options made from settings.

    The function is called with what the user has given, and with nothing else: options of its own keep the defaults of
    its parameters, and the options of ``groups`` arrive in its ``**given``. The options are made when the command is
    used, since the models of other commands load libraries that the user of this one may not need.

    Args:
        app: The command line.
        function: The function.
        *groups: The settings that become options.
        name: Name of the command; that of the function by default.
    """

    class Deferred(TyperCommand):
        """A command that is completed once its options are asked for."""

        @functools.cached_property
        def _whole(self) -> Any:
            return _whole_command(function, groups)

        def get_params(self, ctx: Any) -> Any:
            """Return the options, made now if they are not there yet."""
            self.params, self.callback = self._whole.params, self._whole.callback
            return super().get_params(ctx)

    def placeholder() -> None:
        """Stand in for the function until its options are asked for."""

    placeholder.__name__, placeholder.__doc__ = function.__name__, function.__doc__
    app.command(name, cls=Deferred)(placeholder)


def _whole_command(function: Callable[..., None], groups: Collection[SettingOptions]) -> Any:
    """Return the command of a function with all its options."""

    def call(context: typer.Context, **values: Any) -> None:
        """Call the function with the values that were given."""
        sources = {name: context.get_parameter_source(name) for name in values}
        given = {name for name, source in sources.items() if source is not None and source.name != "DEFAULT"}
        function(**{name: value for name, value in values.items() if name in given})

    keyword = inspect.Parameter.KEYWORD_ONLY
    own = inspect.signature(function, eval_str=True).parameters.values()
    parameters = [
        inspect.Parameter("context", keyword, annotation=typer.Context),
        *(parameter for group in groups for parameter in group.parameters()),
        *(
            parameter.replace(kind=keyword)
            for parameter in own
            if parameter.kind is not parameter.VAR_KEYWORD
        ),
    ]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}

    alone = typer.Typer(add_completion=False)
    alone.command()(call)
    return typer.main.get_command(alone)


def _leaves(model: "type[Settings]", prefix: str = "") -> "Iterator[tuple[str, FieldInfo, str]]":
    """Yield the dotted key, the field and the description of each setting, those of nested settings in their place."""
    descriptions = model.descriptions()
    for name, field in model.model_fields.items():
        part = field.annotation
        if isinstance(part, type) and hasattr(part, "descriptions"):
            yield from _leaves(part, f"{prefix}{name}.")
        else:
            yield prefix + name, field, descriptions.get(name, "")


def _type_of(annotation: Any) -> tuple[type, bool, tuple[str, ...]]:
    """Return the type of one value, whether there are several, and the values that it can have where they are few."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type_of(arguments[0])
    if origin in (Union, types.UnionType):
        return _type_of(next(argument for argument in arguments if argument is not type(None)))
    if origin is tuple:
        return _type_of(arguments[0])[0], True, ()
    if origin is Literal:
        return str, False, arguments
    return (annotation if annotation in (bool, int, float, str, Path) else str), False, ()
