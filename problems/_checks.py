"""Checks of counts, positions, spans and texts, which tasks and examples share."""

import json
import numbers
import operator
from typing import Any

from lpes_evo.errors import TaskError


def check_count(name: str, value: object, least: int = 1, most: int | None = None) -> int:
    """Check that an option is an integer within bounds.

    Args:
        name: Name of the option.
        value: The value; integers of numpy are accepted, booleans are not.
        least: Smallest value allowed.
        most: Largest value allowed; ``None`` for no limit.

    Returns:
        The value as a plain integer.

    Raises:
        TaskError: The value is no integer, or is out of bounds.
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None

    if number is None or number < least or (most is not None and number > most):
        bounds = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise TaskError(f"Expected {name} to be an integer {bounds}, but got {value!r:.80}.")
    return number


def is_position(value: object) -> bool:
    """Return whether a value is a real number from 0 to 1; ``nan``, text and booleans are not."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    return bool(0 <= value <= 1)  # type: ignore[operator]


def is_text(value: Any) -> bool:
    """Return whether a value is text with a UTF-8 form; tokenizers refuse a lone surrogate."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


def is_filled(value: Any) -> bool:
    """Return whether a value is text with a UTF-8 form that holds more than white space."""
    return is_text(value) and bool(value.strip())


def is_line(value: Any) -> bool:
    """Return whether a value is printable text on one line that holds more than white space."""
    return isinstance(value, str) and bool(value.strip()) and value.isprintable()


def is_span(span: Any, text: Any) -> bool:
    """Return whether a value is a tuple of start and end, in characters, within a text."""
    return (
        isinstance(span, tuple)
        and len(span) == 2
        and all(type(end) is int for end in span)
        and 0 <= span[0] <= span[1] <= len(text)
    )


def is_json(value: Any) -> bool:
    """Return whether a value is a dict that `json` can write."""
    try:
        return isinstance(value, dict) and json.dumps(value, allow_nan=False, sort_keys=True) is not None
    except (TypeError, ValueError, RecursionError):
        return False
