"""A guard of cached keys, which keeps a forward pass from mixing keys that were rotated in different ways."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import torch

from lpes_evo.errors import ModelError
from lpes_evo.rope._compiled import sweep_code

__all__ = ["change_rotation"]

_GUARD = "_lpes_key_guard"
_MARK = "_lpes_rotation"
"""The attribute of a cache that holds its mark. With the mark on the cache itself, requests may take turns and caches
may be copied."""


class _Mark:
    """The mark of a cache, which says how the keys in the cache were rotated.

    Attributes:
        rotation: By kind of change, such as ``scales``, a value that differs between rotations.
        in_force: Whether the decoder that the mark was made for still rotates in this way. Compiled code looks at this
            flag instead of the values, since it would be compiled again for every new value.
    """

    def __init__(self, rotation: dict[str, Hashable]) -> None:
        self.rotation = rotation
        self.in_force = True

    def __deepcopy__(self, memo: dict[int, Any]) -> _Mark:
        """Return the mark itself, since the keys of a copied cache have the rotation of the cache."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # In another process nobody would reset the flag when the rotation changes.
        return _old_mark, (self.rotation,)


def _old_mark(rotation: dict[str, Hashable]) -> _Mark:
    mark = _Mark(rotation)
    mark.in_force = False
    return mark


class _KeyGuard:
    """Hooks of one decoder that mark caches, and refuse caches whose keys were rotated otherwise.

    A decoder has one guard while scales, a method, or both change its rotation. `change_rotation` installs and removes
    the guard.
    """

    def __init__(self, decoder: torch.nn.Module) -> None:
        self._mark = _Mark({})
        self._handles = [
            decoder.register_forward_pre_hook(self._before, with_kwargs=True),
            decoder.register_forward_hook(self._after),
        ]

    @property
    def rotation(self) -> dict[str, Hashable]:
        """The values that describe the present rotation, by kind of change."""
        return self._mark.rotation

    @rotation.setter
    def rotation(self, rotation: dict[str, Hashable]) -> None:
        if rotation != self._mark.rotation:
            self._mark.in_force = False
            self._mark = _Mark(rotation)

    def remove(self) -> None:
        """Remove the hooks."""
        self._mark.in_force = False
        for handle in self._handles:
            handle.remove()

    def _before(self, _decoder: Any, args: Any, kwargs: dict[str, Any]) -> None:
        for cache in _caches((*args, *kwargs.values())):
            mark = getattr(cache, _MARK, None)
            if mark is None or not self._fits(mark):
                _check_empty(cache, mark, self.rotation)
                setattr(cache, _MARK, self._mark)

    def _after(self, _decoder: Any, _args: Any, output: Any) -> None:
        """Mark a cache that the decoder made itself."""
        values = output.values() if isinstance(output, dict) else output if isinstance(output, tuple) else ()
        for cache in _caches(values):
            if getattr(cache, _MARK, None) is None:
                setattr(cache, _MARK, self._mark)

    def _fits(self, mark: _Mark) -> bool:
        if torch.compiler.is_compiling() and mark.in_force:
            return True
        return mark.rotation == self._mark.rotation


def change_rotation(decoder: torch.nn.Module, kind: str, value: Hashable | None) -> None:
    """Tell the guard of cached keys that a decoder rotates otherwise from now on.

    Args:
        decoder: The module that owns the decoder layers.
        kind: The kind of change, such as ``scales``; several kinds may be in force together.
        value: A value that differs between rotations of the kind; ``None`` when the kind no longer changes anything.
    """
    guard: _KeyGuard | None = getattr(decoder, _GUARD, None)
    rotation = (
        {} if guard is None else {name: entry for name, entry in guard.rotation.items() if name != kind}
    )

    if value is not None:
        rotation[kind] = value

    if guard is None and rotation:
        guard = _KeyGuard(decoder)
        setattr(decoder, _GUARD, guard)
        sweep_code()

    if guard is not None:
        guard.rotation = rotation
        if not rotation:
            guard.remove()
            delattr(decoder, _GUARD)
            sweep_code()


def _caches(values: Iterable[Any]) -> list[Any]:
    """Return the caches of keys among inputs or outputs, which families pass under different names."""
    return [
        value for value in values if not isinstance(value, torch.Tensor) and hasattr(value, "get_seq_length")
    ]


def _check_empty(cache: Any, mark: _Mark | None, wanted: dict[str, Hashable]) -> None:
    """Refuse a cache that holds keys of another rotation; an empty cache is accepted.

    Raises:
        ModelError: The cache holds keys.
    """
    these = " and ".join("these scales" if kind == "scales" else f"this {kind}" for kind in wanted)
    otherwise = "on the untouched model, or put together from tensors" if mark is None else "otherwise"
    message = (
        f"Expected a cache that was filled under {these}, but it was filled {otherwise}. Keys in a cache keep the "
        "rotation that they were computed with. Begin again with the prompt and an empty cache."
    )

    length = cache.get_seq_length()
    if isinstance(length, torch.Tensor) and torch.compiler.is_compiling():
        # Compiled code can neither branch on a value of the device nor wait for the value.
        torch._assert_async(length == 0, message)
    elif length > 0:
        raise ModelError(message)
