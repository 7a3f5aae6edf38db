# ruff: noqa: TID253
"""Which model is under which method, so that no two are on one model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch

from lpes_evo.errors import ModelError
from lpes_evo.rope._patch import _ATTRIBUTE as _PATCH
from lpes_evo.rope._structure import find_structure

__all__ = ["scales_untouched", "sole_method"]

_names: WeakKeyDictionary[torch.nn.Module, str] = WeakKeyDictionary()
"""Names of the methods in force, by decoder; the copy of a decoder is another one."""


@contextmanager
def sole_method(model: torch.nn.Module, name: str) -> Iterator[None]:
    """Keep other methods off a model for the length of a block.

    Args:
        model: The model.
        name: Name of the method that it is kept for.

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
    try:
        yield
    finally:
        del _names[decoder]


@contextmanager
def scales_untouched(model: torch.nn.Module, name: str) -> Iterator[None]:
    """Let forward passes refuse scales that were put over those of a method, for the length of a block.

    Args:
        model: The model, under the method already.
        name: Name of the method.

    Yields:
        Nothing.
    """
    decoder = find_structure(model).decoder
    of_method = len(_patches(decoder))

    def check(module: torch.nn.Module, _args: Any) -> None:
        # A copy of the decoder has the hook too, and patches of its own.
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


def _patches(decoder: Any) -> list[Any]:
    """Return the scales of patches on a decoder, the oldest first."""
    switch = getattr(decoder, _PATCH, None)
    return [] if switch is None else switch.stack
