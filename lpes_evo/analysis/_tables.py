"""Drift, attention and sensitivity as tables and plain sentences for people."""

from typing import TYPE_CHECKING, Any

from lpes_evo.analysis._attention_mass import PARTS
from lpes_evo.analysis._hidden_states import MEASURES
from lpes_evo.analysis._pictures import arm_label
from lpes_evo.reporting import Table, difference_text, interval_text, p_equation, p_text, say

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
    table = Table(
        "Drift of hidden states, mean over layers (median over vectors and 95 % interval)",
        ["arm", "n", *MEASURE_NAMES.values(), "L2 of last layer", "half at"],
    )
    for name, arm in summary["arms"].items():
        table.add_row(
            arm_label(name),
            str(arm["n_vectors"]),
            *(_interval(arm["drift"][measure]) for measure in MEASURES),
            _interval(arm["last_layer"]["relative_l2"]),
            str(arm["accumulation"]["relative_l2"]["half_at_layer"]),
        )
    table.print(console)
    if summary["retrieval"] is not None:
        table = Table(
            "Retrieval under the same vectors", ["arm", "log-probability (nats per token)", "accuracy"]
        )
        rows = {arm_label(name): arm for name, arm in summary["arms"].items()}
        if summary["untouched"] is not None:
            rows = {"untouched model": summary["untouched"]} | rows
        for label, row in rows.items():
            table.add_row(label, _interval(row["log_probability"], ".3f"), _interval(row["accuracy"]))
        table.print(console)
    table = Table(
        "Paired with the smooth curve (positive: the curve drifts less; more: vectors that drift more)",
        ["measure", "against", "difference", "more", "p sources", "p vectors", "p (Holm)", "the curve"],
    )
    for measure, rows in summary["comparisons"].items():
        for name, row in rows.items():
            verdict = row["curve_drifts"]
            table.add_row(
                MEASURE_NAMES[measure],
                arm_label(name),
                _difference(row),
                f"{row['n_more']} of {row['n_vectors']}",
                p_text(row["p_sources"]),
                "" if row["p_vectors"] is None else p_text(row["p_vectors"]),
                p_text(row["p_corrected"]),
                verdict if verdict == "not shown" else f"drifts {verdict}",
            )
        table.add_section()
    table.print(console)
    lines = [
        f"Smooth drifts least, by {MEASURE_NAMES[measure]}: {CLAIM_WORDS[claim]}"
        for measure, claim in summary["claim"].items()
    ]
    lines += [
        f"Smooth without a search, by {MEASURE_NAMES[measure]}: random vectors minus random curves "
        f"{_difference(found)}, {p_equation(found['p_value'])}"
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
    table = Table(
        "Attention of the last token, mean over heads: untouched -> under scales (* p < 0.05, Holm)",
        ["layer", *parts],
    )
    for layer, row in enumerate(summary["layers"]):
        cells = (
            ["no attention", *[""] * (len(parts) - 1)]
            if row is None
            else [_change(row[part]) for part in parts]
        )
        table.add_row(str(layer), *cells)
    table.print(console)
    if summary["positions"]:
        table = Table(
            f"Share of the gold span in layer {summary['gold_layer']}, by gold position",
            ["position", "n", "untouched", "under scales", "difference"],
        )
        for row in summary["positions"]:
            table.add_row(
                f"{row['position']:.3f}",
                str(row["n"]),
                _interval(row["untouched"]),
                _interval(row["scaled"]),
                _difference(row["difference"]),
            )
        table.print(console)
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


def _interval(found: dict[str, float], form: str = ".2f") -> str:
    return interval_text(found["value"], found["low"], found["high"], form)


def _difference(found: dict[str, float]) -> str:
    return difference_text(found["value"], found["low"], found["high"], ".2f")


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
    return f"Spearman {_difference(found)}, {p_equation(found['p_value'])}, n = {found['n']}"
