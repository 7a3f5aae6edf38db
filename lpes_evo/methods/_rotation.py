# ruff: noqa: TID253
"""How the attention layers of a model rotate: found out by asking them, so that every family's own way is followed."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch

from lpes_evo.errors import UnsupportedModelError

__all__ = ["Rotation", "find_rotation", "n_probes", "probe_tables"]

_TOLERANCE = 0.02
"""Largest error of an explained dimension, relative to its size; bfloat16 needs half of it."""


@dataclass(frozen=True)
class Rotation:
    """The rotation of one attention layer, ``x * cos + sign * x[partner] * sin`` in each dimension of a head.

    Attributes:
        cosine: Column of the cosine table of each dimension, ``(head_dim,)``.
        sine: Column of the sine table of each dimension, ``(head_dim,)``.
        partner: Dimension that is mixed in, ``(head_dim,)``.
        sign: Its sign; zero where a dimension is not rotated, ``(head_dim,)``.
        n_heads: Query heads.
        n_key_heads: Key heads.
    """

    cosine: torch.Tensor
    sine: torch.Tensor
    partner: torch.Tensor
    sign: torch.Tensor
    n_heads: int
    n_key_heads: int

    @property
    def head_dim(self) -> int:
        """Size of a head."""
        return len(self.sign)

    def on(self, device: torch.device) -> Rotation:
        """Return the rotation with its indices on a device."""
        if self.sign.device == device:
            return self
        names = ("cosine", "sine", "partner", "sign")
        return dataclasses.replace(self, **{name: getattr(self, name).to(device) for name in names})

    def widen(self, cosines: torch.Tensor, sines: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return tables ``(..., head_dim)`` of tables ``(..., width)``: one factor for every dimension of a head."""
        sign = self.sign.to(cosines.dtype)
        # Where nothing is rotated, the tables are those of the angle zero.
        wide = torch.where(self.sign != 0, cosines[..., self.cosine], torch.ones_like(sign))
        return wide, sines[..., self.sine] * sign

    def rotate(self, states: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
        """Rotate queries or keys.

        Args:
            states: Unrotated states, ``(batch, heads, length, head_dim)``.
            cosines: Widened cosines that broadcast to the states.
            sines: Widened sines, signs included.

        Returns:
            The rotated states.
        """
        return states * cosines + states[..., self.partner] * sines


def n_probes(width: int) -> int:
    """Return the rows that `probe_tables` needs for tables of a width."""
    return 3 + 2 * _n_bits(width)


def _n_bits(width: int) -> int:
    return max(1, (width - 1).bit_length())


def probe_tables(table: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return tables under which queries and keys betray how they are rotated.

    Row 0 rotates by nothing, row 1 multiplies what is rotated by zero, row 2 gives the partner alone. The other rows
    multiply by 1 or 2 as one bit of the number of the column says, in cosines and then in sines, so that the columns
    are told apart in any dtype.

    Args:
        table: Tables of the model, ``(..., length, width)``.

    Returns:
        Cosines and sines, each ``(n_probes, length, width)``.
    """
    length, width = table.shape[-2:]
    bits = _n_bits(width)
    codes = (
        torch.arange(width, device=table.device)[None] >> torch.arange(bits, device=table.device)[:, None]
    ) & 1
    cosines = torch.zeros(n_probes(width), width, dtype=table.dtype, device=table.device)
    sines = torch.zeros_like(cosines)
    cosines[0], sines[2] = 1, 1
    cosines[3 : 3 + bits] = 1 + codes.to(table.dtype)
    sines[3 + bits :] = 1 + codes.to(table.dtype)
    rows = (len(cosines), length, width)
    return cosines[:, None].expand(rows), sines[:, None].expand(rows)


def find_rotation(queries: torch.Tensor, keys: torch.Tensor, width: int, name: str) -> Rotation | None:
    """Return how a layer rotates, from what became of its queries and keys under `probe_tables`.

    Args:
        queries: Queries under each probe, ``(n_probes, heads, length, head_dim)``.
        keys: Keys under each probe, ``(n_probes, key_heads, length, head_dim)``.
        width: Columns of the tables.
        name: Name of the layer's class, for messages.

    Returns:
        The rotation; ``None`` where the layer does not rotate at all.

    Raises:
        UnsupportedModelError: The layer does something else with the tables.
    """
    of_queries, of_keys = _explain(queries, width), _explain(keys, width)
    if of_queries is None or of_keys is None or not all(map(torch.equal, of_queries, of_keys)):
        raise UnsupportedModelError(
            f"Expected queries and keys that are rotated pair by pair, but {name} does otherwise with its rotary "
            "tables. This method does not go with the architecture; use lpes or pi."
        )
    cosine, sine, partner, sign = of_queries
    return Rotation(cosine, sine, partner, sign, queries.shape[1], keys.shape[1]) if sign.any() else None


def _explain(states: torch.Tensor, width: int) -> tuple[torch.Tensor, ...] | None:
    """Return columns, partner and sign of each dimension, or ``None`` where they do not explain the states."""
    columns = states.float().transpose(1, -1).flatten(2)
    unrotated, partners = columns[0], columns[2]
    rotated = columns[1].norm(dim=-1) <= _TOLERANCE * unrotated.norm(dim=-1)
    products = partners @ unrotated.T / unrotated.norm(dim=-1).clamp(min=1e-30)
    partner = torch.where(
        rotated, products.abs().argmax(dim=-1), torch.arange(len(rotated)).to(products.device)
    )
    sign = products.gather(-1, partner[:, None])[:, 0].sign()
    bits = _n_bits(width)
    cosine = _number(columns[3 : 3 + bits], unrotated)
    sine = _number(columns[3 + bits :], partners)
    error = (partners - sign[:, None] * unrotated[partner]).norm(dim=-1)
    explained = error <= _TOLERANCE * unrotated[partner].norm(dim=-1)
    untouched = (columns - unrotated).norm(dim=-1).amax(dim=0) <= _TOLERANCE * unrotated.norm(dim=-1)
    if not torch.where(rotated, explained & (cosine < width) & (sine < width), untouched).all():
        return None
    # What is not rotated needs no columns.
    zero = torch.zeros_like(partner)
    return tuple(torch.where(rotated, found, zero) for found in (cosine, sine, partner, sign.long()))


def _number(coded: torch.Tensor, plain: torch.Tensor) -> torch.Tensor:
    """Return the numbers that were written bit by bit in factors 1 and 2 of states ``(head_dim, n)``."""
    ratios = (coded * plain).sum(dim=-1) / plain.square().sum(dim=-1).clamp(min=1e-30)
    bits = (ratios > 1.5).long()
    return (bits << torch.arange(len(bits), device=bits.device)[:, None]).sum(dim=0)
