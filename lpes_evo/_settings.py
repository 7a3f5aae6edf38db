"""The base of all settings: checked values, and one clear line for whatever is wrong with them."""

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from lpes_evo.errors import ConfigError


class Settings(BaseModel):
    """Base of all settings: frozen, unknown keys refused, one clear `ConfigError` for whatever is wrong."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    def __init__(self, **values: Any) -> None:
        """Check the values.

        Args:
            **values: One value for each field that shall differ from its default.

        Raises:
            ConfigError: A key is unknown or a value is not valid.
        """
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise _explain(error, type(self)) from None


def _explain(error: ValidationError, settings: type[BaseModel]) -> "_SettingsError":
    """Say in one line what was expected, what came and what may be given instead."""
    first = error.errors(include_url=False)[0]
    nested = first.get("ctx", {}).get("error")
    place = ".".join(str(part) for part in first["loc"])
    if isinstance(nested, _SettingsError):
        return _SettingsError(nested.template, f"{place}.{nested.place}".rstrip("."))
    if nested is not None:
        return _SettingsError(f"Expected other values under the configuration key PLACE: {nested}.", place)
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
    """A `ConfigError` that settings around it can complete with where they hold the wrong part."""

    def __init__(self, template: str, place: str) -> None:
        # A rule about several values of the outermost settings has no key of its own.
        shown = template if place else template.replace(" under the configuration key PLACE", "")
        super().__init__(shown.replace("PLACE", place))
        self.template = template
        self.place = place
