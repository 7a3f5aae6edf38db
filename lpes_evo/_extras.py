"""How a user comes by the optional packages."""


def install_command(extra: str) -> str:
    """Return the command that installs an extra of this package, for the remedy of an error.

    Args:
        extra: Name of the extra, as in ``pyproject.toml``.
    """
    return f"pip install '.[{extra}]'"
