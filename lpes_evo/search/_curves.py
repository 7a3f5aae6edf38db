"""Curve keys: which genomes draw the same curve."""

from collections.abc import Sequence

from lpes_evo.operators import BezierGenome, CurveSpace


def curve_keys(space: CurveSpace, genomes: Sequence[BezierGenome]) -> list[bytes]:
    """Return one key for each genome; equal keys mean equal values at every layer, to nine decimals.

    Several genomes can draw one curve: a constant curve may have any x, for example.

    Args:
        space: The curves.
        genomes: The genomes.

    Returns:
        The bytes of the rounded values, float64 ``(n_layers,)``, of each genome.

    Raises:
        CurveError: A genome cannot be decoded in the space.
    """
    return [row.tobytes() for row in space.decode(genomes).round(9)]


def distinct(space: CurveSpace, genomes: Sequence[BezierGenome]) -> list[BezierGenome]:
    """Return the genomes without those that draw the curve of an earlier one."""
    unique: dict[bytes, BezierGenome] = {}
    for curve, genome in zip(curve_keys(space, genomes), genomes, strict=True):
        unique.setdefault(curve, genome)
    return list(unique.values())
