"""Settings: the base of all settings, with checked values, descriptions, and one clear line for a wrong value."""

import hashlib
import inspect
import re
from collections.abc import Set
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from lpes_evo.errors import ConfigError
from lpes_evo.storage import to_json

_Kind = TypeVar("_Kind", bound="Settings")

_ATTRIBUTE = re.compile(r"^ {4}(\w+): (.+(?:\n {8}.+)*)", re.MULTILINE)
"""An entry of the section ``Attributes`` of a docstring in Google's style."""


class Settings(BaseModel):
    """Base of all settings: the values are frozen, unknown keys are refused, and a wrong value raises `ConfigError`.

    The docstring of a class describes each of its fields under ``Attributes``. The help of the command line is made of
    these descriptions, see `descriptions`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    ADDED: ClassVar[frozenset[str]] = frozenset()
    """Fields that a later version added. The hash leaves them out at their default, so that older folders keep it."""

    PLACES: ClassVar[frozenset[str]] = frozenset()
    """Fields that say where data lie. The hash leaves them out, since the data have a hash of their own."""

    def __init__(self, **values: Any) -> None:
        """Check the values.

        Args:
            **values: One value for each field that differs from its default.

        Raises:
            ConfigError: A key is unknown or a value is not valid.
        """
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise _explain(error, type(self)) from None

    @classmethod
    def descriptions(cls) -> dict[str, str]:
        """Return what the docstring says under ``Attributes`` of each field, those of parents included."""
        found: dict[str, str] = {}
        for kind in reversed(cls.__mro__):
            _, _, attributes = inspect.cleandoc(kind.__doc__ or "").partition("\nAttributes:\n")
            for name, text in _ATTRIBUTE.findall(attributes):
                found[name] = " ".join(text.split())
        return {name: found[name] for name in cls.model_fields if name in found}


def settings_from(file: Path, kind: type[_Kind], values: dict[str, Any]) -> _Kind:
    """Return the settings that a file holds.

    Args:
        file: The file, for messages.
        kind: Class of the settings.
        values: The content of the file.

    Raises:
        ConfigError: A key is unknown or a value is not valid; the message names the file.
    """
    try:
        return kind(**values)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from error


def settings_hash(settings: Settings, *, exclude: Set[str] = frozenset()) -> str:
    """Return the SHA-256 of settings, by which a folder recognises its configuration.

    Args:
        settings: The settings.
        exclude: Fields to leave out.
    """
    values = _known_before(settings)
    kept = {name: value for name, value in values.items() if name not in exclude}
    return hash_values(kept)


def hash_values(values: Any) -> str:
    """Return the SHA-256 of values as JSON."""
    return hashlib.sha256(to_json(values).encode()).hexdigest()


def _known_before(settings: Settings) -> dict[str, Any]:
    """Return the values as JSON has them, without places and without added fields at their default."""
    values = settings.model_dump(mode="json")

    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        is_default = value == field.get_default(call_default_factory=True)
        if name in settings.PLACES or (name in settings.ADDED and is_default):
            del values[name]
        elif isinstance(value, Settings):
            values[name] = _known_before(value)

    return values


def _explain(error: ValidationError, settings: type[BaseModel]) -> "_SettingsError":
    """Return an error of one line: what was expected, what came, and what may be given instead."""
    first = error.errors(include_url=False)[0]
    cause = first.get("ctx", {}).get("error")
    place = ".".join(str(part) for part in first["loc"])

    # The settings inside have explained it already, and do not know where they stand.
    if isinstance(cause, _SettingsError):
        return _SettingsError(cause.template, f"{place}.{cause.place}".rstrip("."))
    if cause is not None:
        rule = str(cause)
        return _SettingsError(f"{rule[:1].upper()}{rule[1:]} (configuration key PLACE).", place)

    if first["type"] == "extra_forbidden":
        known = ", ".join(settings.model_fields)
        return _SettingsError(
            f"Expected a known configuration key, but got 'PLACE'. Known keys there: {known}.", place
        )

    reason = first["msg"][0].lower() + first["msg"][1:]
    came = repr(first["input"])[:60]
    return _SettingsError(
        f"Expected a valid value for the configuration key PLACE, but got {came}: {reason}.", place
    )


class _SettingsError(ConfigError):
    """A `ConfigError` that the settings around the wrong part complete with its place."""

    def __init__(self, template: str, place: str) -> None:
        # A rule about several values of the outermost settings has no key of its own.
        shown = template if place else template.replace(" (configuration key PLACE)", "")
        super().__init__(shown.replace("PLACE", place))
        self.template = template
        self.place = place
