"""The registry of methods: `make_method` makes the method that a text such as ``pi:1.5`` describes."""

import re
from importlib import import_module
from typing import Any

from lpes_evo.errors import ConfigError
from lpes_evo.methods._method import Method
from lpes_evo.scales import Scales, load_scales

_METHODS: dict[str, tuple[str, str]] = {
    "baseline": ("_baseline", "Baseline"),
    "lpes": ("_lpes", "Lpes"),
    "pi": ("_position_interpolation", "PositionInterpolation"),
    "ntk": ("_dynamic_ntk", "DynamicNtk"),
    "yarn": ("_yarn", "Yarn"),
    "attention-buckets": ("_attention_buckets", "AttentionBuckets"),
    "ms-poe": ("_ms_poe", "MsPoe"),
    "moice": ("moice", "Moice"),
}
"""Module and class of each method."""


def method_names() -> tuple[str, ...]:
    """Return the names of all methods."""
    return tuple(_METHODS)


def make_method(spec: str, *, scales: Scales | None = None) -> Method:
    """Return the method that a text describes.

    Args:
        spec: ``NAME``, ``NAME:VALUE`` or ``NAME:VALUE:KEY=VALUE:...``, such as ``pi:1.5``, ``ms-poe:order=released``
            or ``attention-buckets:10000/17500/25000``. ``lpes:FILE`` reads scales from a file or from the folder of a
            run. ``+lpes`` after pi, ntk or yarn puts scales on top: ``yarn:4+lpes``, ``yarn:4+lpes:FILE``.
        scales: The scales of ``lpes`` if the text names no file.

    Returns:
        The method.

    Raises:
        ConfigError: The name is unknown; a setting is missing, unknown or not valid; or scales are missing.
        ScalesError: The file of scales cannot be used.
    """
    from lpes_evo.methods._lpes import Lpes, ScaledMethod

    plain, on_top = _split(spec)
    name, _, rest = plain.partition(":")
    if name not in _METHODS:
        raise ConfigError(
            f"Expected a method, one of {', '.join(_METHODS)}, but got {spec!r:.80}. Settings stand behind a colon, as "
            "in pi:1.5."
        )

    module, class_name = _METHODS[name]
    kind: type[Method] = getattr(import_module(f"lpes_evo.methods.{module}"), class_name)
    if on_top is not None and not issubclass(kind, ScaledMethod):
        raise ConfigError(f"Expected +lpes behind one of pi, ntk, yarn, but got {spec!r:.80}.")
    if kind is Lpes:
        return Lpes(scales=_scales(spec, rest or None, scales))

    settings = _settings(spec, kind, rest)
    if on_top is not None:
        settings["scales"] = _scales(spec, on_top or None, scales)

    try:
        return kind(**settings)
    except ConfigError as error:
        raise ConfigError(f"Method {spec!r:.80}: {error}") from error


def scales_file(spec: str) -> str | None:
    """Return the file of scales that a text names, as in ``lpes:FILE`` or ``yarn:4+lpes:FILE``, else ``None``."""
    plain, on_top = _split(spec)
    return plain.removeprefix("lpes:") if plain.startswith("lpes:") else on_top or None


def _split(spec: str) -> tuple[str, str | None]:
    """Return the text of the method, and the file behind ``+lpes``: empty for none, ``None`` without ``+lpes``."""
    plain, plus, file = re.fullmatch(r"(.*?)(\+lpes(?::(.*))?)?", spec, re.DOTALL).groups()  # type: ignore[union-attr]
    return plain, (file or "") if plus else None


def _settings(spec: str, kind: type[Method], rest: str) -> dict[str, Any]:
    """Return the settings of a text; the leading value, such as a path, may itself contain colons."""
    fields = [field for field in kind.model_fields if field != "scales"]
    settings: dict[str, Any] = {}

    # KEY=VALUE settings are taken from the end of the text. The rest is the leading value, which may look like one.
    parts = rest.split(":") if rest else []
    while (
        parts
        and "=" in parts[-1]
        and (parts[-1].partition("=")[0] in fields or len(parts) > 1 or not kind.leading)
    ):
        key, _, value = parts.pop().partition("=")
        if key not in fields or key in settings:
            known = ", ".join(fields) or "none"
            raise ConfigError(
                f"Expected the settings of {kind.name}, each once, but got {key!r} in {spec!r:.80}. Known settings: "
                f"{known}."
            )
        settings[key] = value

    if parts:
        if kind.leading is None or kind.leading in settings:
            raise ConfigError(
                f"Expected settings as KEY=VALUE in {spec!r:.80}, but got {':'.join(parts)!r:.80}. Known settings: "
                f"{', '.join(fields) or 'none'}."
            )
        settings[kind.leading] = ":".join(parts)

    missing = [field for field in fields if kind.model_fields[field].is_required() and field not in settings]
    if missing:
        raise ConfigError(
            f"Expected {kind.name} with its {missing[0]}, as in {kind.name}:{missing[0].upper()}, but got {spec!r:.80}."
        )

    return settings


def _scales(spec: str, file: str | None, given: Scales | None) -> Scales:
    if file is not None:
        return load_scales(file)
    if given is None:
        raise ConfigError(
            f"Expected scales for {spec!r:.80}, but none are given. Name their file, as in lpes:runs/demo, or pass "
            "--scales."
        )
    return given
