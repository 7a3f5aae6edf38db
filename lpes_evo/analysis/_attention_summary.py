"""From attention of inputs and layers to means with intervals, untouched beside scaled."""

from typing import Any

import numpy as np
import numpy.typing as npt

from lpes_evo.analysis._attention_mass import PARTS, AttentionMass
from lpes_evo.statistics import group_means, holm, median_interval, signed_rank_p

FloatArray = npt.NDArray[np.float64]


def summarise_attention(attention: AttentionMass) -> dict[str, Any]:
    """Condense what `measure_attention` gave.

    Args:
        attention: The attention.

    Returns:
        A mapping that `json` can write: ``layers``, for each layer the mean share of every part on the untouched model
        and under the scales, and their paired difference, each with its 95 % interval over sources, and the p-value of
        Wilcoxon's signed-rank test, corrected over the layers by Holm's method; ``None`` for a layer without attention,
        and for the gold span where it is not known. ``positions``, the share of the gold span by gold position in the
        layer where the untouched model gives it most.
    """
    known = [index for index, n in enumerate(attention.gold_tokens) if n]
    n_layers = attention.untouched.shape[1]
    layers: list[dict[str, Any] | None] = []
    for layer in range(n_layers):
        if layer not in attention.attending_layers:
            layers.append(None)
            continue
        row: dict[str, Any] = {}
        for number, part in enumerate(PARTS):
            chosen = known if part == "gold span" else list(range(len(attention.input_ids)))
            row[part] = _compare(attention, chosen, layer, number) if chosen else None
        layers.append(row)
    for part in PARTS:
        rows = [row[part] for row in layers if row is not None and row[part] is not None]
        for entry, corrected in zip(rows, holm([entry["p_value"] for entry in rows]), strict=True):
            entry["p_corrected"] = corrected
    top = _top_layer(layers)
    return {
        "n_inputs": len(attention.input_ids),
        "n_sources": len(set(attention.sources)),
        "n_with_gold": len(known),
        "n_layers": n_layers,
        "note": attention.note,
        "layers": layers,
        "gold_layer": top,
        "positions": [] if top is None else _positions(attention, known, top),
    }


def _compare(attention: AttentionMass, chosen: list[int], layer: int, part: int) -> dict[str, Any]:
    sources = [attention.sources[index] for index in chosen]
    before, after = (
        group_means(values[chosen, layer, part], sources)
        for values in (attention.untouched, attention.scaled)
    )
    change = after - before
    return {
        "untouched": median_interval(before[None])._asdict(),
        "scaled": median_interval(after[None])._asdict(),
        "difference": median_interval(change[None])._asdict(),
        "p_value": signed_rank_p(change),
    }


def _top_layer(layers: list[dict[str, Any] | None]) -> int | None:
    shares = {
        number: row["gold span"]["untouched"]["value"]
        for number, row in enumerate(layers)
        if row is not None and row["gold span"] is not None
    }
    return max(shares, key=lambda number: shares[number]) if shares else None


def _positions(attention: AttentionMass, known: list[int], layer: int) -> list[dict[str, Any]]:
    gold = PARTS.index("gold span")
    rows = []
    for position in sorted({place for index in known if (place := attention.positions[index]) is not None}):
        chosen = [index for index in known if attention.positions[index] == position]
        rows.append({"position": position, "n": len(chosen), **_compare(attention, chosen, layer, gold)})
    return rows
