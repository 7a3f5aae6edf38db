"""Text, JSON and YAML from a file or a line, with an error of one line for every fault."""

import json
import math
from pathlib import Path
from typing import Any

import yaml

from lpes_evo.errors import LpesError

_MOST_SHOWN = 60


def read_text(file: Path, what: str, error: type[LpesError], remedy: str) -> str:
    """Return the text of a file in UTF-8, with or without a byte-order mark.

    Args:
        file: The file.
        what: Description of the file with a preposition at its end, such as ``a finished run with``.
        error: Class of the error.
        remedy: The remedy for the user, as a sentence.

    Raises:
        LpesError: The file cannot be read, or is not UTF-8 text. The class is ``error``.
    """
    try:
        return file.read_bytes().decode("utf-8-sig")
    except OSError as failure:
        raise error(
            f"Expected {what} {file}, but it cannot be read: {failure.strerror or failure}. {remedy}"
        ) from failure
    except ValueError as failure:
        # A path with a zero byte also raises a ValueError.
        reason = "it is not UTF-8 text" if isinstance(failure, UnicodeDecodeError) else str(failure)
        raise error(f"Expected {what} {file}, but it cannot be read: {reason}. {remedy}") from failure


def parse_json(text: str, place: str, error: type[LpesError], remedy: str) -> Any:
    """Parse JSON.

    Args:
        text: The text.
        place: Source of the text, for messages.
        error: Class of the error.
        remedy: The remedy for the user, as a sentence.

    Returns:
        The values.

    Raises:
        LpesError: The text is not JSON, or is nested too deeply. The class is ``error``.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as failure:
        reason = "it is nested too deeply" if isinstance(failure, RecursionError) else str(failure)
        raise error(
            f"Expected {place} to be JSON, but it is not: {reason[:200]}. The file is truncated or edited. {remedy}"
        ) from failure


def check_numbers(values: Any, place: str, error: type[LpesError], remedy: str) -> None:
    """Refuse parsed JSON with a number that is not finite, or that no float can hold.

    Args:
        values: The values.
        place: Source of the values, for messages.
        error: Class of the error.
        remedy: The remedy for the user, as a sentence.

    Raises:
        LpesError: There is such a number. The class is ``error``.
    """
    wrong = _first_wrong_number(values, "")
    if wrong is not None:
        where, value = wrong
        raise error(
            f"Expected every number of {place} to be finite and within the range of a float, but got "
            f"{shown(value)} at {where or 'its root'}. {remedy}"
        )


def _first_wrong_number(values: Any, place: str) -> tuple[str, Any] | None:
    """Return the place and the value of the first number that is not finite, or that no float can hold."""
    if isinstance(values, (dict, list, tuple)):
        entries = values.items() if isinstance(values, dict) else enumerate(values)
        for key, value in entries:
            found = _first_wrong_number(value, f"{place}.{key}" if place else str(key))
            if found is not None:
                return found
        return None

    try:
        is_sound = not isinstance(values, (int, float)) or math.isfinite(values)
    except OverflowError:
        is_sound = False

    return None if is_sound else (place, values)


def parse_yaml(text: str, place: str, error: type[LpesError], remedy: str) -> Any:
    """Parse YAML without tags of Python.

    Args:
        text: The text.
        place: Source of the text, for messages.
        error: Class of the error.
        remedy: The remedy for the user, as a sentence.

    Returns:
        The values.

    Raises:
        LpesError: The text is not YAML, or is nested too deeply. The class is ``error``.
    """
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as failure:
        # Impossible dates and deep nesting raise errors that are not of the yaml package.
        reason = " ".join(str(failure).split())[:200]
        raise error(f"Expected {place} to be YAML, but it is not: {reason}. {remedy}") from failure


def shown(value: Any) -> str:
    """Return the beginning of the repr of a value, also for a whole number that Python refuses to write."""
    try:
        text = repr(value)
    except ValueError:
        text = "a whole number of thousands of digits"
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def without_halves(values: Any) -> Any:
    """Return values with escapes in place of lone surrogates, which paths that are not UTF-8 contain."""
    if isinstance(values, dict):
        return {without_halves(key): without_halves(value) for key, value in values.items()}
    if isinstance(values, list):
        return [without_halves(value) for value in values]
    return values.encode(errors="backslashreplace").decode() if isinstance(values, str) else values
