"""Numbers as text: intervals, differences, p-values and spans of time, written the same in every table and message."""


def interval_text(value: float, low: float, high: float, form: str = ".3f", limits: str | None = None) -> str:
    """Return a value with its interval, such as ``0.820 [0.692, 0.902]``.

    Args:
        value: The value.
        low: Lower limit of its interval.
        high: Upper limit.
        form: Format of the value, as `format` takes it.
        limits: Format of the limits; that of the value when ``None``.
    """
    limits = form if limits is None else limits
    return f"{value:{form}} [{low:{limits}}, {high:{limits}}]"


def difference_text(value: float, low: float, high: float, form: str = ".3f") -> str:
    """Return a difference with its interval, each number with its sign, such as ``+0.280 [+0.140, +0.420]``.

    Args:
        value: The difference.
        low: Lower limit of its interval.
        high: Upper limit.
        form: Format of the three numbers, as `format` takes it.
    """
    return interval_text(value, low, high, f"+{form}")


def p_text(p_value: float) -> str:
    """Return a p-value for the cell of a table: three digits, since resampled ones know no more."""
    return "< 0.001" if p_value < 0.001 else f"{p_value:.3f}"


def p_equation(p_value: float) -> str:
    """Return a p-value for a sentence, such as ``p = 0.012`` or ``p < 0.001``."""
    return "p < 0.001" if p_value < 0.001 else f"p = {p_value:.3f}"


def duration(seconds: float) -> str:
    """Return a span of time, such as ``1 h 05 min``.

    Args:
        seconds: The span in seconds.
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
