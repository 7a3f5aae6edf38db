"""`pack` and `unpack`: the pickled form in which work is sent to a worker."""

import functools
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import dill

from lpes_evo.errors import ConfigError

_MOST_BYTES = 1 << 28

_packing = threading.RLock()


def pack(value: Any, what: str) -> bytes:
    """Return a value as bytes, pickled by dill, so that the value may be defined in a notebook or a function.

    Args:
        value: The value.
        what: Name of the value in messages.

    Returns:
        The bytes.

    Raises:
        ConfigError: The value cannot be pickled, or is far larger than a description of work.
    """
    try:
        with _packing, _ways_of_deap():
            data: bytes = dill.dumps(value, recurse=True)
    except (pickle.PicklingError, TypeError, AttributeError, ValueError, RecursionError, OSError) as error:
        raise ConfigError(
            f"Expected {what} to be something that can cross to a worker process, but it cannot: {error}. Move what it "
            "uses to a module that can be imported, and make locks, files and models inside the spec."
        ) from error

    if len(data) > _MOST_BYTES:
        raise ConfigError(
            f"Expected {what} to be small, but it takes {len(data) >> 20} MiB. Load models and data inside the spec, "
            "where the worker runs it."
        )

    return data


def unpack(data: bytes) -> Any:
    """Return the value that `pack` was given; the bytes only come from a pool and its own workers."""
    return dill.loads(data)  # noqa: S301


@contextmanager
def _ways_of_deap() -> Iterator[None]:
    """Let dill pickle two kinds of objects of DEAP inside the context, without changing dill for others."""
    ways: dict[type, Callable[[Any, Any], None]] = {functools.partial: _save_partial}
    creator = sys.modules.get("deap.creator")
    if creator is not None:
        ways[creator.MetaCreator] = _save_created

    dispatch = dill.Pickler.dispatch
    before = {kind: dispatch[kind] for kind in ways if dict.__contains__(dispatch, kind)}
    dispatch.update(ways)

    try:
        yield
    finally:
        for kind in ways:
            del dispatch[kind]
        dispatch.update(before)


def _save_created(pickler: Any, created: Any) -> None:
    # dill would pickle a class made by creator.create by its name, which does not exist in a worker. DEAP pickles the
    # class itself, and so does this function. Results are pickled by name, since the process of the pool has the class.
    kind: Any = type(created)
    pickler.save_reduce(*kind.__reduce__(created), obj=created)


def _save_partial(pickler: Any, partial: Any) -> None:
    # A toolbox gives its partial functions a name such as "evaluate". dill would import a package of that name, to see
    # whether the attributes of the function are variables of the package.
    attributes = {name: value for name, value in vars(partial).items() if name not in ("__name__", "__doc__")}
    parts = (partial.func, partial.args, partial.keywords, attributes)
    pickler.save_reduce(_make_partial, parts, obj=partial)


def _make_partial(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
    attributes: dict[str, Any],
) -> Any:
    partial = functools.partial(function, *arguments, **keywords)
    vars(partial).update(attributes)
    return partial
