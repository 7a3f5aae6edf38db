"""Checks of numbers and sequences that a caller passes."""

import math
from collections.abc import Sequence

import numpy as np

from lpes_evo.operators._errors import CurveError

# Far beyond any use, and far enough below the largest float that ratios to a grid step stay finite.
_LARGEST = 1e100
_WIDTH = 80


def shown(value: object) -> str:
    """Return a value as text for a message, cut to a readable length."""
    try:
        return repr(value)[:_WIDTH]
    except ValueError:
        # Python refuses to print whole numbers of thousands of digits.
        return f"a {type(value).__name__} too long to print"


def whole(name: str, value: object, least: int, most: int | None = None) -> int:
    """Return a whole number as an int.

    Raises:
        CurveError: It is not a whole number, less than ``least`` or more than ``most``.
    """
    span = f">= {least}" if most is None else f"from {least} to {most}"
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, np.integer))
        or value < least
        or (most is not None and value > most)
    ):
        raise CurveError(
            f"Expected {name} to be a whole number {span}, but got {shown(value)}. "
            f"Use a whole number such as {least}."
        )

    return int(value)


def finite(name: str, value: object) -> float:
    """Return a finite number as a float.

    Raises:
        CurveError: It is not a finite real number of at most 1e100 in size.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise CurveError(f"Expected {name} to be a number, but got {shown(value)}. Give a float such as 1.0.")

    try:
        number = float(value)
    except OverflowError:
        number = math.inf

    if not abs(number) <= _LARGEST:
        raise CurveError(
            f"Expected {name} to be finite, at most 1e100 in size, but got {shown(value)}. "
            "Use a smaller number."
        )

    return number + 0.0


def is_finite(value: object) -> bool:
    """Return whether a value is a real number that fits a finite float."""
    try:
        return isinstance(value, (int, float, np.number)) and math.isfinite(value)
    except (OverflowError, TypeError):
        return False


def is_sequence(value: object) -> bool:
    """Return whether a value is a sequence or an array."""
    return isinstance(value, (Sequence, np.ndarray))
