# ruff: noqa: TID253
"""Attention in the hands of a method: queries and keys reach it unrotated, through the interface of transformers.

The rotary modules give tables of the angle zero, so that layers pass on and cache unrotated queries and keys; an
attention function that is registered with transformers hands them to the method, which rotates them as it likes and
calls the attention function that the model had.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch

from lpes_evo.errors import ModelError, UnsupportedModelError
from lpes_evo.methods._method import Applied
from lpes_evo.methods._requests import Forward, RequestTracker
from lpes_evo.methods._rotation import Rotation, find_rotation, n_probes, probe_tables
from lpes_evo.rope._structure import find_structure
from lpes_evo.rope._tables import raw_forward

__all__ = ["AttentionCall", "RotaryCall", "find_rotations", "unrotated_attention"]

_PREFIX = "lpes_evo:"
_HANDLER, _TABLES = "_lpes_attention", "_lpes_tables"
_rotations: WeakKeyDictionary[torch.nn.Module, dict[str, tuple[int, Rotation]]] = WeakKeyDictionary()
"""What was found out about decoders, by the path of each rotating attention module."""


@dataclass(frozen=True)
class RotaryCall:
    """One call of a rotary module, which can be made again with other positions or another module.

    Attributes:
        module: The rotary module.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
        forward: The forward pass of the decoder that it belongs to.
    """

    module: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    forward: Forward

    def tables(
        self, positions: torch.Tensor, module: torch.nn.Module | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return cosines and sines ``(rows, length, width)`` at positions ``(rows, length)``.

        Args:
            positions: The positions; they need not be whole numbers.
            module: The rotary module that makes the tables; ``None`` for the one that was called.
        """
        module = self.module if module is None else module
        args, kwargs = self.args, self.kwargs
        if "position_ids" in kwargs:
            kwargs = {**kwargs, "position_ids": positions.float()}
        else:
            args = (args[0], positions.float(), *args[2:])
        with torch.no_grad():
            cosines, sines = raw_forward(module)(module, *args, **kwargs)
        return cosines, sines


@dataclass(frozen=True)
class AttentionCall:
    """One call of the attention function by a layer.

    Attributes:
        layer: Index of the decoder layer.
        rotation: How the layer rotates.
        query: Unrotated queries, ``(batch, heads, length, head_dim)``.
        key: Unrotated keys, ``(batch, key_heads, n_keys, head_dim)``.
        scaling: Factor of the scores.
        forward: The forward pass it belongs to.
        tables: Cosines and sines of the method, each ``(n_tables, 1 or batch, n_keys of the request, width)``.
        run: Runs the model's own attention on rotated queries and keys and returns the output
            ``(batch, length, heads, value_dim)``.
    """

    layer: int
    rotation: Rotation
    query: torch.Tensor
    key: torch.Tensor
    scaling: float
    forward: Forward
    tables: tuple[torch.Tensor, torch.Tensor]
    run: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

    def rotate_query(self, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
        """Rotate the queries by tables ``(1 or batch, 1 or heads, n_keys of the request, width)``."""
        # The queries are the last tokens of the request.
        start = cosines.shape[-2] - self.query.shape[-2]
        return self._rotate(self.query, cosines[..., start:, :], sines[..., start:, :])

    def rotate_key(self, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
        """Rotate the keys by tables ``(1 or batch, 1 or key_heads, n_keys of the request, width)``."""
        missing = self.key.shape[-2] - cosines.shape[-2]
        if missing > 0:
            # A cache of fixed size has places to come; they are masked.
            cosines, sines = (
                torch.nn.functional.pad(table, (0, 0, 0, missing)) for table in (cosines, sines)
            )
        # A cache of a sliding window keeps the last keys.
        start = cosines.shape[-2] - self.key.shape[-2]
        return self._rotate(self.key, cosines[..., start:, :], sines[..., start:, :])

    def _rotate(self, states: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
        rotation = self.rotation.on(states.device)
        return rotation.rotate(states, *rotation.widen(cosines.to(states.device), sines.to(states.device)))


class _CarriedTables(tuple[torch.Tensor, ...]):
    """Tables of the angle zero on their way to the layers, with those of the method."""

    content: tuple[Forward, tuple[torch.Tensor, torch.Tensor]]

    @classmethod
    def carry(cls, tables: tuple[torch.Tensor, ...], content: Any) -> _CarriedTables:
        carried = cls(tables)
        carried.content = content
        return carried

    def to(self, device: Any, *_args: object, **_kwargs: object) -> _CarriedTables:
        """Move the tables as accelerate does, without losing those of the method."""
        return _CarriedTables.carry(tuple(table.to(device) for table in self), self.content)


MakeTables = Callable[[RotaryCall], tuple[torch.Tensor, torch.Tensor]]
Attend = Callable[[AttentionCall], torch.Tensor]


@contextmanager
def unrotated_attention(
    model: torch.nn.Module,
    applied: Applied,
    make_tables: MakeTables,
    attend: Attend,
    *,
    chooses_by_prompt: bool = False,
) -> Iterator[None]:
    """Let a method compute the attention of a model for the length of a block.

    Args:
        model: The model.
        applied: Tells where prompts end.
        make_tables: Returns the tables that the method rotates by, once for each call of a rotary module: cosines and
            sines ``(n_tables, 1 or batch, n_keys, width)`` at the positions of all keys.
        attend: Returns the attention output of a layer, ``(batch, length, heads, value_dim)``.
        chooses_by_prompt: Whether the method must know where prompts end.

    Yields:
        Nothing.

    Raises:
        UnsupportedModelError: The model does not rotate its queries and keys in a way that can be taken over.
        ModelError: The model is under another such method or under scales.
    """
    structure = find_structure(model)
    paths = find_rotations(model)
    tracker = RequestTracker(structure.decoder, applied, chooses_by_prompt=chooses_by_prompt)
    handles: list[Any] = []
    taken: list[torch.nn.Module] = []

    def carry(module: torch.nn.Module, args: Any, kwargs: dict[str, Any], output: Any) -> Any:
        forward = tracker.current
        positions: Any = kwargs.get("position_ids", args[1] if len(args) > 1 else None)
        if (
            forward is None
            or type(output) is not tuple
            or positions.shape[-2] not in (len(forward.positions), forward.request.batch)
        ):
            raise ModelError(
                "Expected rotary tables of this forward pass alone, but another patch gives each layer its own. Use "
                "one method at a time."
            )
        content = forward, make_tables(RotaryCall(module, args, kwargs, forward))
        return _CarriedTables.carry(_zero_angle(output), content)

    def handle(layer: int, rotation: Rotation) -> Callable[..., Any]:
        def handler(
            module: Any, underlying: Any, query: Any, key: Any, value: Any, mask: Any, **kwargs: Any
        ) -> Any:
            def run(rotated_query: torch.Tensor, rotated_key: torch.Tensor) -> torch.Tensor:
                output: torch.Tensor = underlying(module, rotated_query, rotated_key, value, mask, **kwargs)[
                    0
                ]
                return output

            forward, tables = module.__dict__[_TABLES]
            scaling = kwargs.get("scaling") or query.shape[-1] ** -0.5
            call = AttentionCall(layer, rotation, query, key, scaling, forward, tables, run)
            # Some families view the output in another shape.
            return attend(call).contiguous(), None

        return handler

    try:
        for module in structure.shared:
            handles.append(module.register_forward_hook(carry, with_kwargs=True))
        for path, (layer, rotation) in paths.items():
            module = structure.decoder.get_submodule(path)
            handles.append(module.register_forward_pre_hook(_take_tables, with_kwargs=True))
            module.__dict__[_HANDLER] = handle(layer, rotation)
            taken.append(module)
        with _own_attention_function(structure.decoder):
            yield
    finally:
        tracker.remove()
        for hook in handles:
            hook.remove()
        for module in taken:
            module.__dict__.pop(_HANDLER, None)
            module.__dict__.pop(_TABLES, None)


def find_rotations(model: torch.nn.Module) -> dict[str, tuple[int, Rotation]]:
    """Return how each attention layer of a model rotates, by running the decoder once over a few tokens.

    Args:
        model: The model.

    Returns:
        Layer and rotation by the path of the attention module inside the decoder; layers that do not rotate are left
        out.

    Raises:
        UnsupportedModelError: The layers do not call the attention interface of transformers, or rotate in another way.
    """
    structure = find_structure(model)
    decoder = structure.decoder
    if decoder not in _rotations:
        if structure.own or not structure.shared:
            raise UnsupportedModelError(
                f"Expected one rotary module for all layers, but those of {type(decoder).__name__} have their own. "
                "This method does not go with the architecture; use lpes or pi."
            )
        _rotations[decoder] = _probe(decoder, structure.layers, structure.shared)
    return _rotations[decoder]


def _probe(
    decoder: Any, layers: tuple[torch.nn.Module, ...], rotary_modules: tuple[torch.nn.Module, ...]
) -> dict[str, tuple[int, Rotation]]:
    width = _table_width(decoder, rotary_modules)
    seen: dict[torch.nn.Module, tuple[torch.Tensor, torch.Tensor]] = {}

    def give(_module: Any, _args: Any, output: Any) -> Any:
        return probe_tables(output[0])

    def watch(
        module: Any, _underlying: Any, query: Any, key: Any, value: Any, _mask: Any, **_kwargs: Any
    ) -> Any:
        seen[module] = query, key
        batch, heads, length, _ = query.shape
        # Zeros keep the rows alike, so that the tables alone tell them apart in the layers to come.
        return value.new_zeros(batch, length, heads, value.shape[-1]), None

    modules = [module for layer in layers for module in layer.modules()]
    handles = [module.register_forward_hook(give) for module in rotary_modules]
    try:
        for module in modules:
            module.__dict__[_HANDLER] = watch
        with _own_attention_function(decoder):
            _run(decoder, n_probes(width))
    finally:
        for hook in handles:
            hook.remove()
        for module in modules:
            module.__dict__.pop(_HANDLER, None)
    if not seen:
        raise UnsupportedModelError(
            f"Expected layers that call the attention interface of transformers, but those of {type(decoder).__name__} "
            "compute attention themselves. This method does not go with the architecture; use lpes or pi."
        )
    layer_of = {module: number for number, layer in enumerate(layers) for module in layer.modules()}
    found = {}
    for path, module in decoder.named_modules():
        if module in seen:
            rotation = find_rotation(*seen[module], width, type(module).__name__)
            if rotation is not None:
                found[path] = layer_of[module], rotation
    return found


def _table_width(decoder: Any, rotary_modules: tuple[torch.nn.Module, ...]) -> int:
    """Return the columns of the rotary tables, after a forward pass that shows them."""
    shapes: list[Any] = []

    def look(_module: Any, _args: Any, output: Any) -> None:
        shapes.append(
            [tuple(table.shape) for table in output if not table.is_complex()]
            if type(output) is tuple
            else output
        )

    handles = [module.register_forward_hook(look) for module in rotary_modules]
    try:
        _run(decoder, 1)
    finally:
        for hook in handles:
            hook.remove()
    widths = {shape[0][-1] if isinstance(shape, list) and len(shape) == 2 else None for shape in shapes}
    width = widths.pop() if len(widths) == 1 else None
    if width is None:
        raise UnsupportedModelError(
            f"Expected the rotary modules of {type(decoder).__name__} to give cosines and sines of one width, but they "
            "do not, or a patch is on the model. This method does not go with it; use lpes or pi."
        )
    return int(width)


def _run(decoder: Any, batch: int) -> None:
    """Run a decoder over eight tokens in evaluation mode."""
    device = next(decoder.parameters()).device
    ids = (
        torch.arange(1, 9, device=device)[None].expand(batch, -1)
        % decoder.config.get_text_config().vocab_size
    )
    training = decoder.training
    decoder.eval()
    try:
        with torch.no_grad():
            decoder(input_ids=ids, use_cache=False)
    finally:
        decoder.train(training)


def _zero_angle(output: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return torch.ones_like(output[0]), torch.zeros_like(output[1])


def _take_tables(module: torch.nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
    for value in (*args, *kwargs.values()):
        if type(value) is _CarriedTables:
            module.__dict__[_TABLES] = value.content
            return
    raise UnsupportedModelError(
        f"Expected rotary tables to reach {type(module).__name__} as the rotary module gave them, but they did not. "
        "This method does not go with the architecture; use lpes or pi."
    )


@contextmanager
def _own_attention_function(decoder: torch.nn.Module) -> Iterator[None]:
    """Route the attention of a decoder through our function, with the masks of the function that it had."""
    found: list[Any] = [getattr(module, "config", None) for module in decoder.modules()]
    configs = {id(config): config for config in found if hasattr(config, "_attn_implementation_internal")}
    before = {key: config._attn_implementation_internal for key, config in configs.items()}
    if any(str(name).startswith(_PREFIX) for name in before.values()):
        raise ModelError(
            "Expected a model under no other method, but one is in force. Leave its context first."
        )
    try:
        for key, config in configs.items():
            config._attn_implementation_internal = _register(before[key] or "eager")
        yield
    finally:
        for key, config in configs.items():
            config._attn_implementation_internal = before[key]


def _register(underlying: str) -> str:
    """Register our attention function on top of another one and return its name."""
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
    """Hand a call of the attention interface to the method, or to the function that the model had."""
    function = _function(underlying, module)
    handler = module.__dict__.get(_HANDLER)
    if handler is None:
        return function(module, query, key, value, attention_mask, **kwargs)
    return handler(module, function, query, key, value, attention_mask, **kwargs)


def _function(underlying: str, module: Any) -> Callable[..., Any]:
    """Return the attention function of a name; each family has an eager one of its own."""
    from transformers import AttentionInterface

    if underlying != "eager":
        function: Callable[..., Any] = AttentionInterface()[underlying]
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
