"""Tables of a comparison: its standings as rows, as Markdown and as sentences."""

from typing import Any

from lpes_evo.reporting import Table, difference_text, interval_text


def standings_table(results: dict[str, Any], arena: str) -> Table:
    """Return the table of one arena, the best contestant first.

    Args:
        results: The results, as `run_comparison` returns them.
        arena: Name of the arena.
    """
    reference, n = results["reference"], results["n_evaluations"]
    table = Table(
        f"{arena} ({results['arenas'][arena]['unit']})",
        [
            "contestant",
            "best fitness [95 %]",
            f"minus {reference} [95 %]",
            "verdict",
            "ahead / behind",
            f"evaluations to the result of {reference} (median of {n}; reached)",
        ],
    )

    for row in results["arenas"][arena]["standings"]:
        is_reference = row["name"] == reference
        table.add_row(
            row["name"],
            interval_text(row["mean"], row["low"], row["high"], ".4g"),
            "" if is_reference else _signed(row),
            "reference" if is_reference else row["verdict"],
            "" if is_reference else f"{row['n_ahead']} / {row['n_behind']} of {row['n']}",
            f"{row['median_cost']:.0f} ({row['n_reached']} of {row['n']})",
        )
    return table


def held_out_table(results: dict[str, Any], arena: str) -> Table | None:
    """Return the table of what was measured on held-out examples; ``None`` where nothing was.

    Args:
        results: The results, as `run_comparison` returns them.
        arena: Name of the arena.
    """
    reference = results["reference"]
    held_out = results["arenas"][arena].get("held_out")
    if held_out is None:
        return None

    table = Table(
        f"{arena}: {held_out['n_examples']} held-out examples",
        [
            "contestant",
            "log-probability (nats per token) [95 %]",
            f"minus {reference} [95 %]",
            "accuracy [95 %]",
            f"accuracy minus {reference} [95 %]",
        ],
    )

    for name, row in held_out["contestants"].items():
        cells = [name]
        for measured in ("log_probability", "accuracy"):
            values = row[measured]
            cells.append(interval_text(values["mean"], values["low"], values["high"], ".4g"))
            cells.append("" if name == reference else _signed(values))
        table.add_row(*cells)

    untouched = held_out["untouched"]
    table.add_row("untouched", f"{untouched['log_probability']:.4g}", "", f"{untouched['accuracy']:.4g}", "")
    return table


def to_markdown(results: dict[str, Any]) -> str:
    """Return the tables of all arenas as Markdown.

    Args:
        results: The results, as `run_comparison` returns them.
    """
    lines = [
        f"{results['n_seeds']} seeds, {results['n_evaluations']} evaluations each; means over seeds, 95 % bootstrap "
        "intervals over seeds, differences paired by seed. Larger is better.",
        "",
        f"    {results['command']}",
        "",
    ]
    for name in results["arenas"]:
        lines += [standings_table(results, name).to_markdown("###"), ""]
        held_out = held_out_table(results, name)
        if held_out is not None:
            lines += [held_out.to_markdown("####"), ""]
    return "\n".join(lines)


def verdicts(results: dict[str, Any]) -> list[str]:
    """Return one line for each arena: the best contestant, and its lead.

    Args:
        results: The results, as `run_comparison` returns them.
    """
    lines = []
    for name, arena in results["arenas"].items():
        best, reference = arena["standings"][0], results["reference"]

        if best["name"] == reference:
            others = arena["standings"][1:2]
            more = "".join(f"; next is {row['name']}, {_signed(row)}: {row['verdict']}" for row in others)
            lines.append(f"{name}: {reference} is best{more} (n = {best['n']} seeds)")
        else:
            lines.append(
                f"{name}: {best['name']} is best, {_signed(best)} against {reference}: {best['verdict']} "
                f"(n = {best['n']} seeds)"
            )
    return lines


def _signed(row: dict[str, Any]) -> str:
    return difference_text(row["difference"], row["difference_low"], row["difference_high"], ".3g")
