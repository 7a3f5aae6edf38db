"""LayerTables: the rotary tables of all layers, computed in one call and carried to their layers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch

from lpes_evo.errors import ScalesError, UnsupportedModelError

__all__ = [
    "LayerTables",
    "divide_positions",
    "indexes_table",
    "measures_length",
    "raw_forward",
    "revive_buffers",
    "sincos_table",
    "split_layers",
]


class LayerTables(tuple[Any, ...]):
    """The rotary tables of all layers, on their way from the rotary module to the decoder layers.

    The carrier takes the place of the ``(cos, sin)`` pair that a rotary module returns. The hook of a decoder layer
    takes out the pair of its layer. Other code that unpacks the carrier gets an error instead of the tables of a wrong
    layer.

    The class is a tuple, so that libraries which traverse arguments accept it. It has ``to`` because accelerate moves
    every argument with this method. The tables of a layer move only when the layer takes them.

    Attributes:
        layers: The tables of each layer, a tensor or a tuple of tensors.
        device: The device that tables are moved to; ``None`` to leave them where they are.
    """

    layers: tuple[Any, ...]
    device: Any

    @classmethod
    def carry(cls, layers: tuple[Any, ...], device: Any = None) -> LayerTables:
        """Return a carrier of one entry per layer, each a tensor or a tuple of tensors."""
        # Compiled code cannot make an empty tuple of a subclass without passing the argument.
        tables = cls(())
        tables.layers = layers
        tables.device = device
        return tables

    def to(self, device: Any, *_args: object, **_kwargs: object) -> LayerTables:
        """Return a carrier whose tables are moved to ``device`` when a layer takes them."""
        return LayerTables.carry(self.layers, device)

    def take(self, layer: int) -> Any:
        """Return the tables of one layer."""
        tables = self.layers[layer]
        if self.device is None:
            return tables
        if isinstance(tables, torch.Tensor):
            return tables.to(self.device)
        return tuple(table.to(self.device) for table in tables)

    def __iter__(self) -> Iterator[Any]:
        raise UnsupportedModelError(
            "Expected only decoder layers to use the rotary tables, but other code of this model reads them. This "
            "architecture cannot be scaled layer by layer."
        )

    def __getitem__(self, index: object) -> Any:
        return iter(self)


def divide_positions(positions: torch.Tensor, divisors: torch.Tensor, batch: int) -> torch.Tensor:
    """Return the positions by which every layer rotates.

    Args:
        positions: Position ids, ``(..., 1 or batch, length)``.
        divisors: Scales as ``(n_layers, 1 or batch, 1)``.
        batch: Rows of the model's input.

    Returns:
        ``(..., n_layers * rows, length)`` positions in the dtype of the divisors, layers outermost.

    Raises:
        ScalesError: The scales have several rows, and the batch has another number of rows.
    """
    rows = divisors.shape[1]
    if rows != 1 and rows != batch:
        raise ScalesError(
            f"Expected scales of shape (batch, n_layers) with batch = {batch} as in the model's input, but got {rows} "
            "rows. Repeat the rows as generate does for beams or several return sequences, or pass one vector of "
            "shape (n_layers,)."
        )
    return (positions.unsqueeze(-3) / divisors).flatten(-3, -2)


def split_layers(output: Any, n_layers: int) -> LayerTables:
    """Return the carrier for a rotary module's output over ``(n_layers * rows, length, width)`` tables."""
    if isinstance(output, torch.Tensor):
        return LayerTables.carry(_split(output, n_layers))
    return LayerTables.carry(tuple(zip(*(_split(table, n_layers) for table in output), strict=True)))


def _split(table: torch.Tensor, n_layers: int) -> tuple[torch.Tensor, ...]:
    """Return ``n_layers`` views ``(..., rows, length, width)`` of one stacked table."""
    stacked = table.reshape(*table.shape[:-3], n_layers, -1, *table.shape[-2:])
    return stacked.unbind(-4)


def raw_forward(module: torch.nn.Module) -> Callable[..., Any]:
    """Return the forward of a rotary module without decorators, for positions that are real numbers.

    The decorators of transformers disable gradients and derive a dynamic base from the positions, and both must not
    happen to scaled positions. A module that looks positions up in a table runs on a table of just the positions
    wanted.
    """
    forward: Callable[..., Any] = inspect.unwrap(type(module).forward)
    if not indexes_table(module):
        return forward

    def look_up(module: torch.nn.Module, x: torch.Tensor, position_ids: torch.Tensor) -> Any:
        table = sincos_table(position_ids.flatten(), module.get_buffer("embed_positions").shape[-1])
        rows = torch.arange(position_ids.numel(), device=position_ids.device).view(position_ids.shape)
        return forward(SimpleNamespace(embed_positions=table), x, rows)

    return look_up


def revive_buffers(module: torch.nn.Module) -> None:
    """Replace frequencies that a rotary module computed in inference mode by copies that autograd accepts.

    Dynamic types compute such frequencies, and autograd refuses to keep a tensor of inference mode for a backward
    pass. Compiled code cannot ask a tensor for its mode, and is left alone.
    """
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        for name, buffer in module.named_buffers(recurse=False):
            if buffer.is_inference():
                setattr(module, name, buffer.clone())


def indexes_table(module: torch.nn.Module) -> bool:
    """Return whether a rotary module looks positions up in a table, as GPT-J and CodeGen do."""
    return hasattr(module, "embed_positions")


def measures_length(module: torch.nn.Module) -> bool:
    """Return whether the forward of a rotary module itself computes the largest position, as that of PhiMoE does."""
    return "max" in raw_forward(module).__code__.co_names


def sincos_table(positions: torch.Tensor, width: int) -> torch.Tensor:
    """Return the table of GPT-J for any positions, in float32.

    Args:
        positions: Positions, ``(n_positions,)``.
        width: Rotated dimensions of a head.

    Returns:
        The table, ``(n_positions, width)``, with sines before cosines.
    """
    exponents = torch.arange(0, width, 2, device=positions.device, dtype=torch.float32) / width
    angles = positions.float()[:, None] * (1.0 / (10000**exponents))
    return torch.cat((angles.sin(), angles.cos()), dim=-1)
