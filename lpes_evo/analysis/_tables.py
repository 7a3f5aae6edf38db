"""Drift, attention and sensitivity as tables and plain sentences for people."""

from typing import TYPE_CHECKING, Any

from lpes_evo.analysis._attention_mass import PARTS
from lpes_evo.analysis._hidden_states import MEASURES
from lpes_evo.analysis._pictures import arm_label
from lpes_evo.reporting import PlainTable, say

if TYPE_CHECKING:
    from rich.console import Console

MEASURE_NAMES = {"relative_l2": "relative L2", "cosine": "1 - cosine", "cka": "1 - CKA"}
CLAIM_WORDS = {"holds": "yes", "fails": "no", "not shown": "not shown"}
_N_LAYERS_NAMED = 5


def print_drift(summary: dict[str, Any], console: "Console") -> None:
    """Print drift by arm, the tests against the curve, and what drift says about retrieval.

    Args:
        summary: What `lpes_evo.analysis.summarise_drift` gave.
        console: Where to print.
    """
    table = PlainTable(
        "Drift of hidden states, mean over layers (median over vectors and 95 % interval)",
        ["arm", "n", *MEASURE_NAMES.values(), "L2 of last layer", "half at"],
    )
    for name, arm in summary["arms"].items():
        table.add_cells(
            arm_label(name),
            str(arm["n_vectors"]),
            *(interval_text(arm["drift"][measure]) for measure in MEASURES),
            interval_text(arm["last_layer"]["relative_l2"]),
            str(arm["accumulation"]["relative_l2"]["half_at_layer"]),
        )
    console.print(table)
    if summary["retrieval"] is not None:
        table = PlainTable(
            "Retrieval under the same vectors", ["arm", "log-probability (nats per token)", "accuracy"]
        )
        rows = {arm_label(name): arm for name, arm in summary["arms"].items()}
        if summary["untouched"] is not None:
            rows = {"untouched model": summary["untouched"]} | rows
        for label, row in rows.items():
            table.add_cells(
                label, interval_text(row["log_probability"], n_digits=3), interval_text(row["accuracy"])
            )
        console.print(table)
    table = PlainTable(
        "Paired with the smooth curve (positive: the curve drifts less; more: vectors that drift more)",
        ["measure", "against", "difference", "more", "p sources", "p vectors", "p (Holm)", "the curve"],
    )
    for measure, rows in summary["comparisons"].items():
        for name, row in rows.items():
            verdict = row["curve_drifts"]
            table.add_cells(
                MEASURE_NAMES[measure],
                arm_label(name),
                interval_text(row, sign="+"),
                f"{row['n_more']} of {row['n_vectors']}",
                _p(row["p_sources"]),
                "" if row["p_vectors"] is None else _p(row["p_vectors"]),
                _p(row["p_corrected"]),
                verdict if verdict == "not shown" else f"drifts {verdict}",
            )
        table.add_section()
    console.print(table)
    lines = [
        f"Smooth drifts least, by {MEASURE_NAMES[measure]}: {CLAIM_WORDS[claim]}"
        for measure, claim in summary["claim"].items()
    ]
    lines += [
        f"Smooth without a search, by {MEASURE_NAMES[measure]}: random vectors minus random curves "
        f"{interval_text(found, sign='+')}, p = {_p(found['p_value'])}"
        for measure, found in summary["smoothness"].items()
    ]
    if summary["retrieval"] is not None:
        lines += [
            f"Drift ({MEASURE_NAMES[measure]}) against {score.replace('_', '-')}, {group}: {_correlation(found)}"
            for measure, groups in summary["retrieval"].items()
            for group, scores in ((_group(name), scores) for name, scores in groups.items())
            for score, found in scores.items()
            if measure == MEASURES[0]
        ]
        lines.append("A negative rank correlation means that less drift goes with better retrieval.")
    lines.append(
        f"n = {summary['n_inputs']} inputs from {summary['n_sources']} sources, {summary['n_tokens']} tokens compared"
    )
    _print_lines(lines, console)


def print_attention(summary: dict[str, Any], console: "Console") -> None:
    """Print what the last token attends to, by layer and part, and by gold position.

    Args:
        summary: What `lpes_evo.analysis.summarise_attention` gave.
        console: Where to print.
    """
    parts = [part for part in PARTS if any(row and row[part] for row in summary["layers"])]
    table = PlainTable(
        "Attention of the last token, mean over heads: untouched -> under scales (* p < 0.05, Holm)",
        ["layer", *parts],
    )
    for layer, row in enumerate(summary["layers"]):
        cells = (
            ["no attention", *[""] * (len(parts) - 1)]
            if row is None
            else [_change(row[part]) for part in parts]
        )
        table.add_cells(str(layer), *cells)
    console.print(table)
    if summary["positions"]:
        table = PlainTable(
            f"Share of the gold span in layer {summary['gold_layer']}, by gold position",
            ["position", "n", "untouched", "under scales", "difference"],
        )
        for row in summary["positions"]:
            table.add_cells(
                f"{row['position']:.3f}",
                str(row["n"]),
                interval_text(row["untouched"]),
                interval_text(row["scaled"]),
                interval_text(row["difference"], sign="+"),
            )
        console.print(table)
    lines = [
        f"n = {summary['n_inputs']} inputs from {summary['n_sources']} sources, "
        f"{summary['n_with_gold']} with a known gold span",
        summary["note"],
    ]
    _print_lines(lines, console)


def print_sensitivity(summary: dict[str, Any], console: "Console") -> None:
    """Print in which layers the answers change most with the scale.

    Args:
        summary: What `lpes_evo.analysis._sensitivity.summarise_sensitivity` gave.
        console: Where to print.
    """
    lines = []
    for name, groups in summary["sensitivity"].items():
        rows = groups["all"]
        order = sorted(range(len(rows)), key=lambda layer: -rows[layer]["value"])
        largest = ", ".join(f"{layer} ({rows[layer]['value']:.4f})" for layer in order[:_N_LAYERS_NAMED])
        lines.append(
            f"{name}: mean |d log-probability / d log scale| is largest in layers {largest} nats per token"
        )
    _print_lines(lines, console)


def _print_lines(lines: list[str], console: "Console") -> None:
    for line in lines:
        say(line, console)


def interval_text(found: dict[str, float], sign: str = "", n_digits: int = 2) -> str:
    """Return a value with its interval as text, with a sign where ``sign`` is ``+``."""
    value, low, high = (f"{found[key]:{sign}.{n_digits}f}" for key in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"


def _change(found: dict[str, Any] | None) -> str:
    if found is None:
        return ""
    star = "*" if found["p_corrected"] < 0.05 else ""
    return f"{found['untouched']['value']:.3f} -> {found['scaled']['value']:.3f}{star}"


def _group(name: str) -> str:
    return "all vectors" if name == "all" else f"{arm_label(name)} alone"


def _correlation(found: dict[str, float] | None) -> str:
    if found is None:
        return "no rank correlation, one of the two never changes or there are fewer than four vectors"
    return (
        f"Spearman {found['value']:+.2f} [{found['low']:+.2f}, {found['high']:+.2f}], p = {_p(found['p_value'])}, "
        f"n = {found['n']}"
    )


def _p(value: float) -> str:
    return "<0.001" if value < 0.001 else f"{value:.3f}"
