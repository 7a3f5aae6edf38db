"""Summary of attention: means over inputs with intervals, untouched and under scales, and tests of the difference."""

from typing import Any

import numpy as np
import numpy.typing as npt

from lpes_evo.analysis._attention_mass import PARTS, AttentionMass
from lpes_evo.statistics import group_means, holm, median_interval, signed_rank_p

FloatArray = npt.NDArray[np.float64]


def summarise_attention(attention: AttentionMass) -> dict[str, Any]:
    """Condense the attention of single inputs to means over sources.

    Args:
        attention: The result of `measure_attention`.

    Returns:
        A mapping that `json` can write.

        ``layers`` has, for each layer and part, the mean share on the untouched model and under the scales, and their
        paired difference, each with its 95 % interval over sources. It also has the p-value of Wilcoxon's signed-rank
        test, corrected over the layers by Holm's method. It is ``None`` for a layer without attention, and for the gold
        span where that is not known.

        ``positions`` has the share of the gold span by gold position, in the layer where the untouched model gives it
        the most attention.
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

    # There are as many tests of a part as there are layers.
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
    """Return the mean shares of a part in a layer over the chosen inputs, with their difference and its test."""
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
    """Return the layer where the untouched model attends most to the gold span; ``None`` where no span is known."""
    shares = {
        number: row["gold span"]["untouched"]["value"]
        for number, row in enumerate(layers)
        if row is not None and row["gold span"] is not None
    }
    return max(shares, key=lambda number: shares[number]) if shares else None


def _positions(attention: AttentionMass, known: list[int], layer: int) -> list[dict[str, Any]]:
    """Return the share of the gold span in a layer for each gold position."""
    gold = PARTS.index("gold span")
    rows = []

    for position in sorted({place for index in known if (place := attention.positions[index]) is not None}):
        chosen = [index for index in known if attention.positions[index] == position]
        rows.append({"position": position, "n": len(chosen), **_compare(attention, chosen, layer, gold)})
    return rows
