"""The hooks that give every decoder layer its own rotary tables."""

from __future__ import annotations

from typing import Any

import torch

from lpes_evo.errors import UnsupportedModelError
from lpes_evo.rope._scales import Divisors
from lpes_evo.rope._structure import RopeStructure, rope_types
from lpes_evo.rope._tables import LayerTables, divide_positions, original_forward, split_layers

__all__ = ["Switch"]


class Switch:
    """The hooks of one decoder, and the scales in force.

    One rotary hook computes the tables of all layers in one call, with positions ``m / s_h``; a hook on every
    layer takes out its own. Where layers own their rotary modules, each of these is hooked instead.

    ``stack`` holds the scales of the patches on the model, the newest last: that one is in force.
    """

    def __init__(self, structure: RopeStructure) -> None:
        self.n_layers = len(structure.layers)
        self.stack: list[Divisors] = []
        self._decoder = structure.decoder
        self._layers = structure.layers
        self._handles: list[Any] = []
        self._reached: set[int] = set()

    @property
    def divisors(self) -> Divisors:
        """The scales in force."""
        return self.stack[-1]

    def install(self, structure: RopeStructure) -> None:
        """Register all hooks, or none if one fails."""
        try:
            for module in structure.shared:
                self._hook_rotary(module, None)
            for module, layer in structure.own:
                self._hook_rotary(module, layer)
            for index, module in enumerate(structure.layers):
                self._add(module.register_forward_pre_hook(_LayerHook(self, index), with_kwargs=True))
            self._check = structure.decoder.register_forward_hook(self._check_reach)
            self._add(self._check)
        except BaseException:
            self.uninstall()
            raise

    def uninstall(self) -> None:
        """Remove every hook."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def reach(self, layer: int) -> None:
        """Note that scaled tables reached a layer."""
        self._reached.add(layer)

    def _add(self, handle: Any) -> None:
        self._handles.append(handle)

    def _hook_rotary(self, module: torch.nn.Module, layer: int | None) -> None:
        hook = _RotaryHook(self, module, layer)
        self._add(module.register_forward_pre_hook(hook.before, with_kwargs=True))
        self._add(module.register_forward_hook(hook.after, with_kwargs=True))

    def _check_reach(self, _decoder: torch.nn.Module, _args: Any, _output: Any) -> None:
        """Refuse the model after its first forward if scaled tables did not reach the layers that take them."""
        missed = [
            index
            for index, layer in enumerate(self._layers)
            if index not in self._reached and "position_embeddings" in layer.forward.__code__.co_varnames
        ]
        if missed or not self._reached:
            raise UnsupportedModelError(
                f"Expected scaled rotary tables to reach the decoder layers, but in {type(self._decoder).__name__} "
                f"they did not reach layers {missed or 'at all'}. This architecture cannot be scaled layer by layer."
            )
        self._check.remove()


class _RotaryHook:
    """Makes one rotary module compute the tables of all layers, or of the layer that owns it."""

    def __init__(self, switch: Switch, module: torch.nn.Module, layer: int | None) -> None:
        self.switch = switch
        self.layer = layer
        # These types derive their frequencies from the largest position, so they must see the true ones
        # first.
        self.dynamic = any("dynamic" in kind or kind == "longrope" for kind in rope_types(module))

    def before(self, _module: torch.nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
        """Let the module itself run on scaled positions, which saves a second call."""
        return None if self._twice() else self._scaled(args, kwargs)

    def after(self, module: torch.nn.Module, args: Any, kwargs: dict[str, Any], output: Any) -> Any:
        """Return the tables in the form that the layers' hooks, or the owning layer, take."""
        if self._twice():
            args, kwargs = self._scaled(args, kwargs)
            output = original_forward(module)(module, *args, **kwargs)
        if self.layer is None:
            return split_layers(output, self.switch.n_layers)
        self.switch.reach(self.layer)
        return output

    def _twice(self) -> bool:
        return self.dynamic or (self.switch.divisors.live and torch.is_grad_enabled())

    def _scaled(self, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return the arguments of the rotary module with scaled positions."""
        states = args[0] if args else kwargs["x"]
        positions = kwargs["position_ids"] if "position_ids" in kwargs else args[1]
        divisors = self.switch.divisors.on(positions.device)
        if self.layer is not None:
            divisors = divisors[self.layer : self.layer + 1]
        positions = divide_positions(positions, divisors, states.shape[0]).float()
        if "position_ids" in kwargs:
            return args, {**kwargs, "position_ids": positions}
        return (args[0], positions, *args[2:]), kwargs


class _LayerHook:
    """Gives one decoder layer its own tables."""

    def __init__(self, switch: Switch, index: int) -> None:
        self.switch = switch
        self.index = index

    def __call__(self, _module: torch.nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
        tables = kwargs.get("position_embeddings")
        if type(tables) is LayerTables:
            kwargs["position_embeddings"] = tables.take(self.index)
            self.switch.reach(self.index)
            return args, kwargs
        args = tuple(self._take(value) for value in args)
        return args, {name: self._take(value) for name, value in kwargs.items()}

    def _take(self, value: Any) -> Any:
        if type(value) is LayerTables:
            self.switch.reach(self.index)
            return value.take(self.index)
        if type(value) is dict:
            return {key: self._take(entry) for key, entry in value.items()}
        return value
