# ruff: noqa: TID253
"""Rotation: the rotation of an attention layer, found by probing the layer, so that every family's rule is followed."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from lpes_evo.errors import ModelError, UnsupportedModelError

__all__ = ["Rotation", "Run", "find_rotation", "n_probes", "probe_tables"]

_TOLERANCE = 0.02
"""Largest error of an explained dimension, relative to its norm; bfloat16 needs half of it."""
_MANY = 4
"""Number of runs of one sign beyond which indices are simpler."""


@dataclass(frozen=True)
class Run:
    """Dimensions of a head that rotate by one rule: ``x[dims] cos[cosine] + sign x[partner] sin[sine]``.

    Each of the four fields is a slice, or indices where the dimensions follow no regular pattern. Indices are copied
    one by one, which takes many times as long as a slice.

    Attributes:
        dims: Dimensions of the head.
        partner: The dimension that is mixed into each of them.
        cosine: The column of the cosine table for each of them.
        sine: The column of the sine table for each of them.
        sign: 1 or -1.
    """

    dims: slice | torch.Tensor
    partner: slice | torch.Tensor
    cosine: slice | torch.Tensor
    sine: slice | torch.Tensor
    sign: int


@dataclass(frozen=True)
class Rotation:
    """The rotation of one attention layer.

    Attributes:
        runs: The dimensions that rotate; other dimensions stay unchanged.
        rotates_all: Whether all dimensions rotate.
        head_dim: Size of a head.
        n_heads: Query heads.
        n_key_heads: Key heads.
    """

    runs: tuple[Run, ...]
    rotates_all: bool
    head_dim: int
    n_heads: int
    n_key_heads: int

    def rotate(self, states: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
        """Rotate queries or keys.

        Args:
            states: Unrotated states, ``(batch, heads, length, head_dim)``.
            cosines: Cosines in the form that the layer expects, ``(..., width)``; the other axes broadcast to the
                states.
            sines: Sines of the same shape.

        Returns:
            The rotated states.
        """
        rotated = torch.empty_like(states) if self.rotates_all else states.clone()
        for run in self.runs:
            turned = states[..., run.dims] * cosines[..., run.cosine]
            mixed = states[..., run.partner] * sines[..., run.sine]
            rotated[..., run.dims] = turned.add_(mixed) if run.sign > 0 else turned.sub_(mixed)
        return rotated


def n_probes(width: int) -> int:
    """Return the number of rows that `probe_tables` needs for tables of a width."""
    return 3 + 2 * _n_bits(width)


def _n_bits(width: int) -> int:
    return max(1, (width - 1).bit_length())


def probe_tables(table: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return tables under which queries and keys reveal their rotation.

    Row 0 does not rotate. Row 1 multiplies every rotated dimension by zero. Row 2 gives the partner alone. The other
    rows multiply by 1 or 2 according to one bit of the column number, first in cosines and then in sines, so that the
    columns can be distinguished in any dtype.

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
    """Return the rotation of a layer, from its queries and keys under `probe_tables`.

    Args:
        queries: Queries under each probe, ``(n_probes, heads, length, head_dim)``.
        keys: Keys under each probe, ``(n_probes, key_heads, length, head_dim)``.
        width: Columns of the tables.
        name: Name of the layer's class, for messages.

    Returns:
        The rotation; ``None`` if the layer does not rotate.

    Raises:
        ModelError: The queries or keys are not finite.
        UnsupportedModelError: The layer uses the tables in another way.
    """
    if not (queries.isfinite().all() and keys.isfinite().all()):
        raise ModelError(
            f"Expected finite queries and keys, but a layer {name} computes others. Check the weights of the model; "
            "with float16, try bfloat16 or float32."
        )

    of_queries, of_keys = _explain(queries, width), _explain(keys, width)
    if of_queries is None or of_keys is None or not all(map(torch.equal, of_queries, of_keys)):
        raise UnsupportedModelError(
            f"Expected queries and keys that are rotated pair by pair, but {name} does otherwise with its rotary "
            "tables. This method does not go with the architecture; use lpes or pi."
        )

    cosine, sine, partner, sign = (column.tolist() for column in of_queries)
    if not any(sign):
        return None

    rows: dict[int, list[tuple[int, ...]]] = {1: [], -1: []}
    for row in zip(range(len(sign)), partner, cosine, sine, sign, strict=True):
        if row[-1]:
            rows[row[-1]].append(row[:-1])

    runs = tuple(run for kind, found in rows.items() for run in _runs(found, kind, queries.device))
    return Rotation(runs, all(sign), len(sign), queries.shape[1], keys.shape[1])


def _runs(rows: list[tuple[int, ...]], sign: int, device: torch.device) -> list[Run]:
    """Return the runs of dimensions of one sign, from rows of dimension, partner and columns in ascending order."""
    left = rows
    runs: list[Run] = []

    while left and len(runs) < _MANY:
        run = max((_progression(left, stride) for stride in (1, 2)), key=len)
        step = max(1, len(run) - 1)
        dims, partner, cosine, sine = (
            slice(first, last + 1, max(1, (last - first) // step))
            for first, last in zip(run[0], run[-1], strict=True)
        )
        runs.append(Run(dims, partner, cosine, sine, sign))
        left = [row for row in left if row not in run]

    # The dimensions follow no regular pattern, so they are given as indices.
    if left:
        columns = [torch.tensor(column, device=device) for column in zip(*rows, strict=True)]
        return [Run(columns[0], columns[1], columns[2], columns[3], sign)]

    return runs


def _progression(rows: list[tuple[int, ...]], stride: int) -> list[tuple[int, ...]]:
    """Return the longest stretch from the first row in which all columns grow evenly, and dimensions by a stride."""
    by_dimension = {row[0]: row for row in rows}
    run, steps = [rows[0]], None
    while (following := by_dimension.get(run[-1][0] + stride)) is not None:
        found = tuple(later - earlier for earlier, later in zip(run[-1], following, strict=True))
        if min(found) < 1 or steps not in (None, found):
            break
        steps = found
        run.append(following)
    return run


def _explain(states: torch.Tensor, width: int) -> tuple[torch.Tensor, ...] | None:
    """Return columns, partner and sign of each dimension, or ``None`` if they do not explain the states."""
    columns = states.float().transpose(1, -1).flatten(2)
    unrotated, partners = columns[0], columns[2]

    # The partner of a rotated dimension is the one with the largest cosine similarity to what row 2 gives.
    rotated = columns[1].norm(dim=-1) <= _TOLERANCE * unrotated.norm(dim=-1)
    products = partners @ unrotated.T / unrotated.norm(dim=-1).clamp(min=1e-30)
    partner = torch.where(
        rotated, products.abs().argmax(dim=-1), torch.arange(len(rotated)).to(products.device)
    )
    sign = products.gather(-1, partner[:, None])[:, 0].sign()

    bits = _n_bits(width)
    cosine = _number(columns[3 : 3 + bits], unrotated)
    sine = _number(columns[3 + bits :], partners)

    # Every rotated dimension must follow from its partner, and every other one must be the same in all rows.
    error = (partners - sign[:, None] * unrotated[partner]).norm(dim=-1)
    explained = error <= _TOLERANCE * unrotated[partner].norm(dim=-1)
    untouched = (columns - unrotated).norm(dim=-1).amax(dim=0) <= _TOLERANCE * unrotated.norm(dim=-1)
    if not torch.where(rotated, explained & (cosine < width) & (sine < width), untouched).all():
        return None

    # A dimension that is not rotated needs no columns.
    zero = torch.zeros_like(partner)
    return tuple(torch.where(rotated, found, zero) for found in (cosine, sine, partner, sign.long()))


def _number(coded: torch.Tensor, plain: torch.Tensor) -> torch.Tensor:
    """Return the numbers whose bits were written as factors 1 and 2 of states ``(head_dim, n)``."""
    ratios = (coded * plain).sum(dim=-1) / plain.square().sum(dim=-1).clamp(min=1e-30)
    bits = (ratios > 1.5).long()
    return (bits << torch.arange(len(bits), device=bits.device)[:, None]).sum(dim=0)
