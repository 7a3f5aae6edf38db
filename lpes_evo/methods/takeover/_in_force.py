# ruff: noqa: TID253
"""The record of methods in force: a model is under one method at a time, and a copy of it under none."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import MethodType
from typing import Any
from weakref import WeakKeyDictionary

import torch

from lpes_evo.errors import ModelError
from lpes_evo.rope import PATCH_ATTRIBUTE, change_rotation, find_structure, sweep_code

__all__ = ["refuse_copy", "refuse_patches", "replaced_function", "scales_untouched", "sole_method"]

_names: WeakKeyDictionary[torch.nn.Module, str] = WeakKeyDictionary()
"""Names of the methods in force, by decoder. A copy of a decoder is a different key."""


@contextmanager
def sole_method(model: torch.nn.Module, name: str, settings: str = "") -> Iterator[None]:
    """Keep other methods, and caches that were filled without this one, off a model for the length of a block.

    Args:
        model: The model.
        name: Name of the method that the model is kept for.
        settings: A text that differs between settings of the method.

    Yields:
        Nothing.

    Raises:
        UnsupportedModelError: The model has no rotary embedding.
        ModelError: Another method, or a patch of scales, is on the model.
    """
    decoder = find_structure(model).decoder
    if decoder in _names:
        raise ModelError(
            f"Expected a model under no other method for {name}, but {_names[decoder]} is in force. Leave its with "
            "block first; scales go on top of pi, ntk or yarn in one method, as in yarn:4+lpes."
        )

    if _patches(decoder):
        raise ModelError(
            f"Expected a model without scales for {name}, but scales of patch_rope are in force. Remove them first, "
            "with unpatch_rope; scales go on top of pi, ntk or yarn in one method, as in yarn:4+lpes."
        )

    _names[decoder] = name
    change_rotation(decoder, "method", (name, settings))

    try:
        yield
    finally:
        del _names[decoder]
        change_rotation(decoder, "method", None)
        sweep_code()


@contextmanager
def scales_untouched(model: torch.nn.Module, name: str) -> Iterator[None]:
    """Make forward passes refuse scales that were put over those of a method, for the length of a block.

    Args:
        model: The model, under the method already.
        name: Name of the method.

    Yields:
        Nothing.
    """
    decoder = find_structure(model).decoder
    of_method = len(_patches(decoder))

    def check(module: torch.nn.Module, _args: Any) -> None:
        # A copy of the decoder also has the hook, and its own patches.
        if module is decoder and len(_patches(decoder)) > of_method:
            raise ModelError(
                f"Expected the scales of {name} to be the last ones on the model, but others were put over them, which "
                "would take their place. Remove that patch, or leave the with block of the method first."
            )

    handle = decoder.register_forward_pre_hook(check) if of_method else None
    try:
        yield
    finally:
        if handle is not None:
            handle.remove()


def refuse_copy(module: object, original: object) -> None:
    """Refuse a copy of the module that a method was put on.

    Args:
        module: The module that runs.
        original: The module that the method was put on.

    Raises:
        ModelError: The two are not the same object.
    """
    if module is not original:
        raise ModelError(
            "Expected the model that the method was put on, but got a copy that was made inside the with block, where "
            "the method does not follow. Copy the model outside of it, and apply the method to the copy."
        )


def refuse_patches(decoder: torch.nn.Module) -> None:
    """Refuse scales on a model whose method computes the rotary tables itself.

    Args:
        decoder: The module that owns the decoder layers.

    Raises:
        ModelError: Scales are in force.
    """
    if _patches(decoder):
        raise ModelError(
            "Expected no scales of patch_rope under this method, which rotates queries and keys itself, but some are "
            "in force. Remove them first."
        )


@contextmanager
def replaced_function(model: Any, name: str, function: Callable[..., Any]) -> Iterator[None]:
    """Replace a method of a model by a function for the length of a block; a copy of the model refuses the function.

    Args:
        model: The model.
        name: Name of the method that is replaced, such as ``forward``.
        function: Called with the arguments of the replaced method, without the model.

    Yields:
        Nothing.
    """
    own, replaced = model.__dict__.get(name), getattr(model, name)

    # A copy of the model binds a method to itself, but would share a plain function.
    @functools.wraps(replaced)
    def replacement(bound: Any, /, *args: Any, **kwargs: Any) -> Any:
        refuse_copy(bound, model)
        return function(*args, **kwargs)

    # generate reads the parameters of a forward from its signature.
    signature = inspect.signature(replaced)
    bound = inspect.Parameter("bound", inspect.Parameter.POSITIONAL_ONLY)
    replacement.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[bound, *signature.parameters.values()]
    )
    setattr(model, name, MethodType(replacement, model))

    try:
        yield
    finally:
        delattr(model, name)
        if own is not None:
            setattr(model, name, own)


def _patches(decoder: Any) -> list[Any]:
    """Return the scales of patches on a decoder, the oldest first."""
    hooks = getattr(decoder, PATCH_ATTRIBUTE, None)
    return [] if hooks is None else hooks.stack
