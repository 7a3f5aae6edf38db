"""The standings of a comparison as text for people and for documents."""

from typing import Any


def rows_of(results: dict[str, Any], arena: str) -> tuple[list[str], list[list[str]]]:
    """Return the table of one arena: header and rows, best first.

    Args:
        results: What `run_comparison` gave.
        arena: The arena.
    """
    reference, n = results["reference"], results["n_evaluations"]
    header = [
        "contestant",
        "best fitness [95 %]",
        f"minus {reference} [95 %]",
        "verdict",
        "ahead / behind",
        f"evaluations to the result of {reference} (median of {n}; reached)",
    ]
    rows = []
    for row in results["arenas"][arena]["standings"]:
        is_reference = row["name"] == reference
        rows.append(
            [
                row["name"],
                _interval(row["mean"], row["low"], row["high"]),
                "" if is_reference else _signed(row),
                "reference" if is_reference else row["verdict"],
                "" if is_reference else f"{row['n_ahead']} / {row['n_behind']} of {row['n']}",
                f"{row['median_cost']:.0f} ({row['n_reached']} of {row['n']})",
            ]
        )
    return header, rows


def held_out_rows(results: dict[str, Any], arena: str) -> tuple[list[str], list[list[str]]]:
    """Return the table of what was measured on held-out examples; no rows where nothing was.

    Args:
        results: What `run_comparison` gave.
        arena: The arena.
    """
    reference = results["reference"]
    held_out = results["arenas"][arena].get("held_out")
    header = [
        "contestant",
        "log-probability (nats per token) [95 %]",
        f"minus {reference} [95 %]",
        "accuracy [95 %]",
        f"accuracy minus {reference} [95 %]",
    ]
    if held_out is None:
        return header, []
    rows = []
    for name, row in held_out["contestants"].items():
        cells = [name]
        for measured in ("log_probability", "accuracy"):
            values = row[measured]
            cells.append(_interval(values["mean"], values["low"], values["high"]))
            cells.append("" if name == reference else _signed(values))
        rows.append(cells)
    untouched = held_out["untouched"]
    rows.append(["untouched", f"{untouched['log_probability']:.4g}", "", f"{untouched['accuracy']:.4g}", ""])
    return header, rows


def to_markdown(results: dict[str, Any]) -> str:
    """Return the tables of all arenas as Markdown.

    Args:
        results: What `run_comparison` gave.
    """
    lines = [
        f"{results['n_seeds']} seeds, {results['n_evaluations']} evaluations each; means over seeds, 95 % bootstrap "
        "intervals over seeds, differences paired by seed. Larger is better.",
        "",
        f"    {results['command']}",
        "",
    ]
    for name, arena in results["arenas"].items():
        lines += [f"### {name} ({arena['unit']})", "", *_markdown(*rows_of(results, name)), ""]
        header, rows = held_out_rows(results, name)
        if rows:
            lines += [
                f"Held out, n = {arena['held_out']['n_examples']} examples:",
                "",
                *_markdown(header, rows),
                "",
            ]
    return "\n".join(lines)


def verdicts(results: dict[str, Any]) -> list[str]:
    """Return one line for each arena: who is best, and by how much.

    Args:
        results: What `run_comparison` gave.
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


def _markdown(header: list[str], rows: list[list[str]]) -> list[str]:
    return [
        "| " + " | ".join(header) + " |",
        "|" + "---|" * len(header),
        *("| " + " | ".join(row) + " |" for row in rows),
    ]


def _interval(value: float, low: float, high: float) -> str:
    return f"{value:.4g} [{low:.4g}, {high:.4g}]"


def _signed(row: dict[str, Any]) -> str:
    low, high = row["difference_low"], row["difference_high"]
    return f"{row['difference']:+.3g} [{low:+.3g}, {high:+.3g}]"
