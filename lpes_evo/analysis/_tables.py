"""Tables and plain sentences about drift, attention and sensitivity, for people."""

from typing import TYPE_CHECKING, Any

from lpes_evo.analysis._attention_mass import PARTS
from lpes_evo.analysis._hidden_states import MEASURE_NAMES, MEASURES
from lpes_evo.analysis._pictures import arm_label
from lpes_evo.reporting import Table, difference_text, interval_text, p_equation, p_text, say

if TYPE_CHECKING:
    from rich.console import Console

CLAIM_WORDS = {"holds": "yes", "fails": "no", "not shown": "not shown"}
"""Words for whether the curve drifts least."""

_N_LAYERS_NAMED = 5
_LEVEL = 0.05


def print_drift(summary: dict[str, Any], console: "Console") -> None:
    """Print the drift by arm, the tests against the curve, and the relation of drift and retrieval.

    Args:
        summary: Result of `lpes_evo.analysis.summarise_drift`.
        console: The console.
    """
    _arms_table(summary).print(console)
    if summary["retrieval"] is not None:
        _retrieval_table(summary).print(console)
    _tests_table(summary).print(console)

    for measure, claim in summary["claim"].items():
        say(f"Smooth drifts least, by {MEASURE_NAMES[measure]}: {CLAIM_WORDS[claim]}", console)

    for measure, found in summary["smoothness"].items():
        say(
            f"Smooth without a search, by {MEASURE_NAMES[measure]}: random vectors minus random curves "
            f"{_difference(found)}, {p_equation(found['p_value'])}",
            console,
        )

    if summary["retrieval"] is not None:
        measure = MEASURES[0]
        for name, scores in summary["retrieval"][measure].items():
            group = "all vectors" if name == "all" else f"{arm_label(name)} alone"
            for score, found in scores.items():
                what = f"Drift ({MEASURE_NAMES[measure]}) against {score.replace('_', '-')}, {group}"
                say(f"{what}: {_correlation(found)}", console)
        say("A negative rank correlation means that less drift goes with better retrieval.", console)

    say(
        f"n = {summary['n_inputs']} inputs from {summary['n_sources']} sources, {summary['n_tokens']} tokens compared",
        console,
    )


def _arms_table(summary: dict[str, Any]) -> Table:
    """Return the drift by arm."""
    table = Table(
        "Drift of hidden states, mean over layers (median over vectors and 95 % interval)",
        ["arm", "n", *MEASURE_NAMES.values(), "L2 of last layer", "half at"],
    )
    for name, arm in summary["arms"].items():
        table.add_row(
            arm_label(name),
            arm["n_vectors"],
            *(_interval(arm["drift"][measure]) for measure in MEASURES),
            _interval(arm["last_layer"]["relative_l2"]),
            arm["accumulation"]["relative_l2"]["half_at_layer"],
        )
    return table


def _retrieval_table(summary: dict[str, Any]) -> Table:
    """Return the retrieval by arm, and that of the untouched model."""
    rows = {arm_label(name): arm for name, arm in summary["arms"].items()}
    if summary["untouched"] is not None:
        rows = {"untouched model": summary["untouched"]} | rows

    table = Table("Retrieval under the same vectors", ["arm", "log-probability (nats per token)", "accuracy"])
    for label, row in rows.items():
        table.add_row(label, _interval(row["log_probability"], ".3f"), _interval(row["accuracy"]))
    return table


def _tests_table(summary: dict[str, Any]) -> Table:
    """Return the tests of every arm against the curve, one section for each measure."""
    table = Table(
        "Paired with the smooth curve (positive: the curve drifts less; more: vectors that drift more)",
        ["measure", "against", "difference", "more", "p sources", "p vectors", "p (Holm)", "the curve"],
    )

    for measure, rows in summary["comparisons"].items():
        table.add_section()
        for name, row in rows.items():
            verdict = row["curve_drifts"]
            table.add_row(
                MEASURE_NAMES[measure],
                arm_label(name),
                _difference(row),
                f"{row['n_more']} of {row['n_vectors']}",
                p_text(row["p_sources"]),
                None if row["p_vectors"] is None else p_text(row["p_vectors"]),
                p_text(row["p_corrected"]),
                verdict if verdict == "not shown" else f"drifts {verdict}",
            )
    return table


def print_attention(summary: dict[str, Any], console: "Console") -> None:
    """Print the attention of the last token by layer and part, and by gold position.

    Args:
        summary: Result of `lpes_evo.analysis.summarise_attention`.
        console: The console.
    """
    _parts_table(summary).print(console)

    if summary["positions"]:
        table = Table(
            f"Share of the gold span in layer {summary['gold_layer']}, by gold position",
            ["position", "n", "untouched", "under scales", "difference"],
        )
        for row in summary["positions"]:
            table.add_row(
                f"{row['position']:.3f}",
                row["n"],
                _interval(row["untouched"]),
                _interval(row["scaled"]),
                _difference(row["difference"]),
            )
        table.print(console)

    say(
        f"n = {summary['n_inputs']} inputs from {summary['n_sources']} sources, "
        f"{summary['n_with_gold']} with a known gold span",
        console,
    )
    say(summary["note"], console)


def _parts_table(summary: dict[str, Any]) -> Table:
    """Return the share of each part by layer."""
    parts = [part for part in PARTS if any(row and row[part] for row in summary["layers"])]
    table = Table(
        "Attention of the last token, mean over heads: untouched -> under scales (* p < 0.05, Holm)",
        ["layer", *parts],
    )
    for layer, row in enumerate(summary["layers"]):
        if row is None:
            table.add_row(layer, *("" if number else "no attention" for number in range(len(parts))))
        else:
            table.add_row(layer, *(_change(row[part]) for part in parts))
    return table


def print_sensitivity(summary: dict[str, Any], console: "Console") -> None:
    """Print the layers in which the answers change most with the scale.

    Args:
        summary: Result of `lpes_evo.analysis._sensitivity.summarise_sensitivity`.
        console: The console.
    """
    for name, groups in summary["sensitivity"].items():
        rows = groups["all"]
        order = sorted(range(len(rows)), key=lambda layer: -rows[layer]["value"])
        largest = ", ".join(f"{layer} ({rows[layer]['value']:.4f})" for layer in order[:_N_LAYERS_NAMED])
        say(
            f"{name}: mean |d log-probability / d log scale| is largest in layers {largest} nats per token",
            console,
        )


def _interval(found: dict[str, float], form: str = ".2f") -> str:
    return interval_text(found["value"], found["low"], found["high"], form)


def _difference(found: dict[str, float]) -> str:
    return difference_text(found["value"], found["low"], found["high"], ".2f")


def _change(found: dict[str, Any] | None) -> str:
    """Return a share before and after, with a star where the difference is significant."""
    if found is None:
        return ""
    star = "*" if found["p_corrected"] < _LEVEL else ""
    return f"{found['untouched']['value']:.3f} -> {found['scaled']['value']:.3f}{star}"


def _correlation(found: dict[str, float] | None) -> str:
    if found is None:
        return "no rank correlation, one of the two never changes or there are fewer than four vectors"
    return f"Spearman {_difference(found)}, {p_equation(found['p_value'])}, n = {found['n']}"
