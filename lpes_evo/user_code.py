"""User code: objects of classes in a Python file that a command names, and the text of errors that the code raises."""

import hashlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from lpes_evo.errors import LpesError

T = TypeVar("T")


def make_from_file(spec: str, kind: type[T], fault: type[LpesError]) -> T:
    """Run a Python file and make an object of a class in it.

    Args:
        spec: ``FILE.py:CLASS``; the class is called without arguments.
        kind: The base class that the class must have.
        fault: Class of the errors that are raised.

    Returns:
        The object.

    Raises:
        LpesError: Of the class ``fault``: there is no such file, it has no such class, or its code failed.
    """
    found = load_class(spec, kind, fault)
    with _blaming(spec, fault):
        return found()


def load_class(spec: str, kind: type[T], fault: type[LpesError]) -> type[T]:
    """Run a Python file and return a class in it.

    Args:
        spec: ``FILE.py:CLASS``.
        kind: What the class must be a subclass of.
        fault: Class of the error.

    Returns:
        The class.

    Raises:
        LpesError: Of the class ``fault``: there is no such file, it has no such class, or its code failed.
    """
    name, _, class_name = spec.rpartition(":")
    path = Path(name)

    # Path.is_file would raise an OSError for a name that is too long.
    if not os.path.isfile(path):
        raise fault(f"Expected a Python file with the class {class_name}, but there is no file {path}.")

    # Files of the same name in two folders are two modules.
    module_name = f"lpes_evo_user_{path.stem}_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]}"
    module_spec = importlib.util.spec_from_file_location(module_name, path)
    if module_spec is None or module_spec.loader is None:
        raise fault(f"Expected {path} to be a Python file, but Python cannot load it.")

    # Dataclasses look their module up in sys.modules while the file runs.
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[module_name] = module

    with _blaming(spec, fault):
        module_spec.loader.exec_module(module)
        found = getattr(module, class_name, None)
        if isinstance(found, type) and issubclass(found, kind):
            return found
        others = [
            name
            for name, value in vars(module).items()
            if isinstance(value, type) and issubclass(value, kind) and value is not kind
        ]
        raise fault(
            f"Expected {path} to define the {kind.__name__} class {class_name}, but it defines "
            f"{', '.join(others) or 'none'}."
        )


@contextmanager
def _blaming(spec: str, fault: type[LpesError]) -> Iterator[None]:
    """Turn whatever the file of a user raises into one clear error."""
    try:
        yield
    except (fault, KeyboardInterrupt):
        raise
    except BaseException as error:  # the user's file can raise anything
        raise fault(
            f"Expected {spec} to make an object, but it raised {error_text(error)}. Mend the file."
        ) from error


def error_text(error: BaseException) -> str:
    """Return the class and the text of an error on one line, also if the text of a user's error cannot be made."""
    text = "an error whose text cannot be made"
    with suppress(Exception):
        text = " ".join(str(error).split())
    name: Any = type(error).__name__
    return (f"{name}: {text}" if text else name)[:300].rstrip(".")
