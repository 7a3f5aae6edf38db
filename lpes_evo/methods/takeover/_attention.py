# ruff: noqa: TID253
"""`unrotated_attention`: a context in which a method gets unrotated queries and keys, and computes the attention.

The rotary modules return tables of the angle zero, so that layers pass on and cache unrotated queries and keys. An
attention function that is registered with transformers passes them to the method. The method rotates them, and calls
the attention function of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from lpes_evo.errors import ModelError, UnsupportedModelError
from lpes_evo.methods.takeover._attention_interface import intercepted_attention
from lpes_evo.methods.takeover._attention_probe import find_rotations
from lpes_evo.methods.takeover._in_force import refuse_patches
from lpes_evo.methods.takeover._method_handle import MethodHandle
from lpes_evo.methods.takeover._model_inputs import refuse_outputs
from lpes_evo.methods.takeover._requests import Forward, RequestTracker
from lpes_evo.methods.takeover._rotation import Rotation
from lpes_evo.rope import find_structure, raw_forward

__all__ = ["AttentionCall", "RotaryCall", "unrotated_attention"]

_TABLES = "_lpes_tables"


@dataclass(frozen=True)
class RotaryCall:
    """One call of a rotary module, which can be repeated with other positions or another module.

    Attributes:
        module: The rotary module.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
        forward: The forward pass of the decoder that the call belongs to.
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
            module: The rotary module that computes the tables; ``None`` for the one that was called.
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
        rotation: The rotation of the layer.
        query: Unrotated queries, ``(batch, heads, length, head_dim)``.
        key: Unrotated keys, ``(batch, key_heads, n_keys, head_dim)``.
        scaling: Factor of the scores.
        forward: The forward pass that the call belongs to.
        tables: Cosines and sines of the method, each ``(n_tables, 1 or batch, n_keys of the request, width)``.
        run: Runs the model's own attention on rotated queries and keys, and returns the output
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
            # A cache of fixed size has free places at its end, which are masked.
            cosines, sines = (
                torch.nn.functional.pad(table, (0, 0, 0, missing)) for table in (cosines, sines)
            )
        # A cache of a sliding window keeps the last keys.
        start = cosines.shape[-2] - self.key.shape[-2]
        return self._rotate(self.key, cosines[..., start:, :], sines[..., start:, :])

    def _rotate(self, states: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
        return self.rotation.rotate(states, cosines.to(states.device), sines.to(states.device))


class _CarriedTables(tuple[torch.Tensor, ...]):
    """Tables of the angle zero on their way to the layers, together with the tables of the method."""

    content: tuple[Forward, tuple[torch.Tensor, torch.Tensor]]

    @classmethod
    def carry(cls, tables: tuple[torch.Tensor, ...], content: Any) -> _CarriedTables:
        carried = cls(tables)
        carried.content = content
        return carried

    def to(self, device: Any, *_args: object, **_kwargs: object) -> _CarriedTables:
        """Move the tables to a device, as accelerate does, and keep those of the method."""
        return _CarriedTables.carry(tuple(table.to(device) for table in self), self.content)


MakeTables = Callable[[RotaryCall], tuple[torch.Tensor, torch.Tensor]]
Attend = Callable[[AttentionCall], torch.Tensor]


@contextmanager
def unrotated_attention(
    model: torch.nn.Module,
    handle: MethodHandle,
    make_tables: MakeTables,
    attend: Attend,
    *,
    chooses_by_prompt: bool = False,
) -> Iterator[None]:
    """Have a method compute the attention of a model for the length of a block.

    Args:
        model: The model.
        handle: The handle of the method, which knows where prompts end.
        make_tables: Called once for each call of a rotary module. It returns the tables that the method rotates by:
            cosines and sines ``(n_tables, 1 or batch, n_keys, width)`` at the positions of all keys.
        attend: Returns the attention output of a layer, ``(batch, length, heads, value_dim)``.
        chooses_by_prompt: Whether the method must know where prompts end.

    Yields:
        Nothing.

    Raises:
        UnsupportedModelError: The model does not rotate its queries and keys in a way that can be taken over.
        ModelError: The model is under another such method or under scales.
    """
    structure = find_structure(model)
    rotations = find_rotations(model)
    tracker = RequestTracker(structure.decoder, handle, chooses_by_prompt=chooses_by_prompt)
    handles: list[Any] = []

    def check(decoder: Any, _args: Any, kwargs: dict[str, Any]) -> None:
        refuse_patches(decoder)
        refuse_outputs(
            kwargs,
            decoder.config,
            ("output_attentions",),
            "its attention has no weights of one set of positions",
        )

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

    def handler(layer: int, rotation: Rotation) -> Callable[..., Any]:
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

            # Some families call view on the output, which needs contiguous memory.
            return attend(call).contiguous(), None

        return handler

    handlers = {
        structure.decoder.get_submodule(path): handler(layer, rotation)
        for path, (layer, rotation) in rotations.items()
    }
    try:
        handles.append(structure.decoder.register_forward_pre_hook(check, with_kwargs=True))
        for module in structure.shared:
            handles.append(module.register_forward_hook(carry, with_kwargs=True))
        for module in handlers:
            handles.append(module.register_forward_pre_hook(_take_tables, with_kwargs=True))
        with intercepted_attention(structure.decoder, handlers):
            yield
    finally:
        tracker.remove()
        for hook in handles:
            hook.remove()
        for module in handlers:
            module.__dict__.pop(_TABLES, None)


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
