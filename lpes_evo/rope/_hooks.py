"""RopeHooks: the hooks that give every decoder layer its own rotary tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from lpes_evo.accelerators import input_device
from lpes_evo.errors import ModelError, UnsupportedModelError
from lpes_evo.rope._caches import change_rotation
from lpes_evo.rope._compiled import sweep_code
from lpes_evo.rope._saving import SaveWatch
from lpes_evo.rope._scales import LayerScales
from lpes_evo.rope._structure import RopeStructure, is_dynamic, rope_types
from lpes_evo.rope._tables import (
    LayerTables,
    divide_positions,
    indexes_table,
    measures_length,
    raw_forward,
    revive_buffers,
    split_layers,
)

__all__ = ["RopeHooks"]


class RopeHooks:
    """The hooks of one decoder, and the scales in force.

    A hook on the rotary module computes the tables of all layers in one call, with positions ``m / s_h``. A hook on
    every layer takes out the tables of that layer. Where each layer owns a rotary module, these modules are hooked
    instead.

    Attributes:
        n_layers: The number of decoder layers.
        stack: The scales of the patches on the model, the newest last. The newest are in force.
        layer_scales: The scales in force. They are kept apart from the stack, because compiled code that looked at
            the stack would be compiled again whenever its length changes.
        reached: Whether a layer has taken scaled tables yet.
        on_tables: Called with the index and the tables of every layer that takes tables; ``None`` where nobody
            listens.
    """

    layer_scales: LayerScales

    def __init__(self, structure: RopeStructure) -> None:
        self.n_layers = len(structure.layers)
        self.stack: list[LayerScales] = []
        self.reached = False
        self.on_tables: Callable[[int, Any], None] | None = None
        self.on_save = SaveWatch()
        self._decoder = structure.decoder
        self._handles: list[Any] = []

    def install(self, structure: RopeStructure) -> None:
        """Register all hooks, or none if one fails.

        Raises:
            UnsupportedModelError: A rotary module derives the length of the input from the positions that it rotates
                by.
        """
        try:
            for module in structure.shared:
                self._hook_rotary(module, None)

            for module, layer in structure.own:
                self._hook_rotary(module, layer)

            for index, module in enumerate(structure.layers if structure.shared else ()):
                self._handles.append(
                    module.register_forward_pre_hook(_LayerHook(self, index), with_kwargs=True)
                )

            # This hook runs before all others, so that the guard of cached keys knows of live scales that were
            # changed in place.
            self._handles.append(self._decoder.register_forward_pre_hook(self._follow_live, prepend=True))
            self._handles.append(self._decoder.register_forward_hook(self._check_reach))
            decoder: Any = self._decoder
            self._handles.append(decoder.register_state_dict_pre_hook(self.on_save))
            sweep_code()
        except BaseException:
            self.uninstall()
            raise

    def uninstall(self) -> None:
        """Remove every hook."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        change_rotation(self._decoder, "scales", None)
        sweep_code()

    def take_effect(self) -> None:
        """Bring the newest scales into force; call this after every change of the stack."""
        self.layer_scales = self.stack[-1]
        change_rotation(self._decoder, "scales", self.layer_scales.identity)

        # The scales are on the device before the first forward pass, so that compiled code finds the same state in
        # every pass.
        self.layer_scales.on(input_device(self._decoder))

    def hand_over(self, layer: int, tables: Any) -> Any:
        """Return the tables of one layer, and record that they have reached the layer."""
        self.reached = True
        if self.on_tables is not None:
            self.on_tables(layer, tables)
        return tables

    def refuse_reentrant(self) -> None:
        """Refuse reentrant gradient checkpointing, under which the gradients of scales would be lost silently.

        Raises:
            ModelError: The scales require gradients, and the model uses reentrant checkpointing, which passes
                gradients only to positional arguments of a layer.
        """
        checkpoint = getattr(self._decoder, "_gradient_checkpointing_func", None)
        options = getattr(checkpoint, "keywords", {})
        is_checkpointed = self._decoder.training and getattr(self._decoder, "gradient_checkpointing", False)
        is_reentrant = is_checkpointed and options.get("use_reentrant", False)

        if is_reentrant and self.layer_scales.live and torch.is_grad_enabled():
            raise ModelError(
                "Expected gradient checkpointing with use_reentrant=False for scales that require gradients, but it is "
                "reentrant. Call gradient_checkpointing_enable(gradient_checkpointing_kwargs={'use_reentrant': False})."
            )

    def _hook_rotary(self, module: torch.nn.Module, layer: int | None) -> None:
        if rope_types(module) != {"default"} and measures_length(module):
            raise UnsupportedModelError(
                f"Expected a rotary module that is told its frequencies, but {type(module).__name__} of type "
                f"{', '.join(sorted(rope_types(module)))} derives them from the positions it rotates by, so it would "
                "take scaled positions for the length of the input. Use the default rotary type."
            )
        hook = _RotaryHook(self, module, layer)
        self._handles.append(module.register_forward_pre_hook(hook.before, with_kwargs=True))
        self._handles.append(module.register_forward_hook(hook.after, with_kwargs=True))

    def _follow_live(self, _decoder: torch.nn.Module, _args: Any) -> None:
        # Compiled code cannot read the version counter of a tensor.
        if self.layer_scales.live and not torch.compiler.is_compiling():
            change_rotation(self._decoder, "scales", self.layer_scales.identity)

    def _check_reach(self, decoder: torch.nn.Module, _args: Any, _output: Any) -> None:
        """Refuse the model after a forward pass if scaled positions have not reached any layer yet.

        The hook stays registered after the first pass, since compiled code cannot remove a hook.
        """
        if not self.reached:
            raise UnsupportedModelError(
                f"Expected scaled rotary positions to reach the decoder layers, but in {type(decoder).__name__} they "
                "reached none. This architecture cannot be scaled layer by layer."
            )


class _RotaryHook:
    """The hooks of one rotary module, which computes the tables of all layers, or of the layer that owns it."""

    def __init__(self, hooks: RopeHooks, module: torch.nn.Module, layer: int | None) -> None:
        self.hooks = hooks
        self.layer = layer
        # A dynamic type must see the true positions first, and a table can only be indexed by true positions.
        self.true_first = is_dynamic(module) or indexes_table(module)

    def before(self, module: torch.nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run the module itself on scaled positions, which saves a second call."""
        return None if self._needs_second_call() else self._scaled(module, args, kwargs)

    def after(self, module: torch.nn.Module, args: Any, kwargs: dict[str, Any], output: Any) -> Any:
        """Return the tables in the form that the hooks of the layers, or the owning layer, expect."""
        if self._needs_second_call():
            self.hooks.refuse_reentrant()
            revive_buffers(module)
            args, kwargs = self._scaled(module, args, kwargs)
            output = raw_forward(module)(module, *args, **kwargs)

        if self.layer is None:
            return split_layers(output, self.hooks.n_layers)
        return self.hooks.hand_over(self.layer, output)

    def _needs_second_call(self) -> bool:
        # The module's own forward is decorated to run without gradients.
        return self.true_first or (self.hooks.layer_scales.live and torch.is_grad_enabled())

    def _scaled(
        self, module: torch.nn.Module, args: Any, kwargs: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """Return the arguments of the rotary module with scaled positions."""
        states = args[0] if args else kwargs["x"]
        positions = kwargs["position_ids"] if "position_ids" in kwargs else args[1] if len(args) > 1 else None
        if positions is None:
            raise UnsupportedModelError(
                f"Expected a rotary module that is told its positions, but {type(module).__name__} is not. This "
                "architecture cannot be scaled layer by layer."
            )

        divisors = self.hooks.layer_scales.on(positions.device)

        # A shared module gets states of shape (..., batch, length, width), and the module of a layer gets
        # (batch, heads, length, width).
        batch = states.shape[-3 if self.layer is None else 0]
        if self.layer is not None:
            divisors = divisors[self.layer : self.layer + 1]

        # Angles are computed in float32, whatever the dtype of the model.
        positions = divide_positions(positions, divisors, batch).float()
        if "position_ids" in kwargs:
            return args, {**kwargs, "position_ids": positions}
        return (args[0], positions, *args[2:]), kwargs


class _LayerHook:
    """The hook of one decoder layer, which gives the layer its own tables."""

    def __init__(self, hooks: RopeHooks, index: int) -> None:
        self.hooks = hooks
        self.index = index

    def __call__(self, layer: torch.nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
        """Replace the carrier of all tables by the tables of this layer, in whichever argument the model passes it."""
        tables = kwargs.get("position_embeddings")
        if type(tables) is LayerTables:
            kwargs["position_embeddings"] = self._take(tables)
            return args, kwargs

        if isinstance(tables, (tuple, list, torch.Tensor)):
            raise UnsupportedModelError(
                f"Expected scaled rotary tables to reach layer {self.index}, but {type(layer).__name__} got tables "
                "from elsewhere. This architecture cannot be scaled layer by layer."
            )

        # Some families pass the tables under another name, by position, or in a dict.
        return tuple(map(self._take, args)), {name: self._take(value) for name, value in kwargs.items()}

    def _take(self, value: Any) -> Any:
        if type(value) is LayerTables:
            return self.hooks.hand_over(self.index, value.take(self.index))
        if type(value) is dict:
            return {key: self._take(entry) for key, entry in value.items()}
        return value
