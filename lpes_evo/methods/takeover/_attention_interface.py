# ruff: noqa: TID253
"""`intercepted_attention`: attention calls of layers, passed to other functions by the interface of transformers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from lpes_evo.errors import ModelError, UnsupportedModelError

__all__ = ["attention_function", "intercepted_attention"]

_PREFIX = "lpes_evo:"
_HANDLER = "_lpes_attention"


@contextmanager
def intercepted_attention(
    decoder: torch.nn.Module, handlers: Mapping[torch.nn.Module, Callable[..., Any]]
) -> Iterator[None]:
    """Pass the attention calls of modules to other functions, with the masks of their own attention function.

    Args:
        decoder: The module that owns the decoder layers.
        handlers: For each module, the function that is called in place of its attention function. The arguments are
            the module, the attention function, query, key, value, mask, and the keyword arguments of the call. A
            handler returns the output, and the attention weights or ``None``. A module that calls no attention
            function is ignored, and modules without a handler keep their attention function.

    Yields:
        Nothing.

    Raises:
        ModelError: The calls are intercepted already. A forward pass also raises it if another attention
            implementation was set inside the block.
    """
    found: list[Any] = [getattr(module, "config", None) for module in decoder.modules()]
    configs = {id(config): config for config in found if hasattr(config, "_attn_implementation_internal")}
    before = {key: config._attn_implementation_internal for key, config in configs.items()}
    if any(str(name).startswith(_PREFIX) for name in before.values()):
        raise ModelError(
            "Expected a model under no other method, but one is in force. Leave its context first."
        )

    ours = {key: _register(name or "eager") for key, name in before.items()}

    def check(_decoder: Any, _args: Any) -> None:
        if any(config._attn_implementation_internal != ours[key] for key, config in configs.items()):
            raise ModelError(
                "Expected the attention implementation that the model had before the method, but another one was set "
                "inside the with block, which switches the method off. Set it before the block."
            )

    hook = decoder.register_forward_pre_hook(check)
    try:
        for module, handler in handlers.items():
            module.__dict__[_HANDLER] = handler
        for key, config in configs.items():
            config._attn_implementation_internal = ours[key]
        yield
    finally:
        hook.remove()
        for key, config in configs.items():
            config._attn_implementation_internal = before[key]
        for module in handlers:
            module.__dict__.pop(_HANDLER, None)


def attention_function(name: str, module: Any) -> Callable[..., Any]:
    """Return an attention function.

    Args:
        name: Name of the function, such as ``sdpa``. Each family has its own ``eager`` function.
        module: The attention module, which determines the family.

    Raises:
        UnsupportedModelError: The family has no eager function.
    """
    from transformers import AttentionInterface

    if name != "eager":
        function: Callable[..., Any] = AttentionInterface()[name]
        return function

    eager: Callable[..., Any] | None = getattr(
        sys.modules[type(module).__module__], "eager_attention_forward", None
    )
    if eager is None:
        raise UnsupportedModelError(
            f"Expected an eager attention function beside {type(module).__name__}, but there is none. Load the model "
            "with attention sdpa."
        )

    return eager


def _register(underlying: str) -> str:
    """Register the attention function of this module on top of another one, and return its name."""
    from transformers import AttentionInterface, AttentionMaskInterface

    name = _PREFIX + underlying
    masks = AttentionMaskInterface()
    if name not in AttentionInterface():
        AttentionInterface.register(name, partial(_attention, underlying))
    if name not in masks and underlying in masks:
        AttentionMaskInterface.register(name, masks[underlying])
    return name


def _attention(
    underlying: str,
    module: Any,
    query: Any,
    key: Any,
    value: Any,
    attention_mask: Any = None,
    **kwargs: Any,
) -> Any:
    """Pass a call of the attention interface to the handler of the module, or to its own attention function."""
    function = attention_function(underlying, module)
    handler = module.__dict__.get(_HANDLER)
    if handler is None:
        return function(module, query, key, value, attention_mask, **kwargs)
    return handler(module, function, query, key, value, attention_mask, **kwargs)
