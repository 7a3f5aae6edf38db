"""Tables of a benchmark for a terminal."""

from typing import Any

from rich.console import Console

from lpes_evo.bench._report import PAPER, BenchReport
from lpes_evo.reporting import Table, interval_text, say


def print_bench(report: BenchReport, console: Console) -> None:
    """Print the costs of all methods, how fast LPES is beside others, and what the paper reports.

    Args:
        report: The report.
        console: Where to print.
    """
    facts = report.facts
    settings = facts["settings"]
    lines = [
        f"{facts['model']}: {_size(facts)}, {facts['dtype']} on {facts['device_name']}"
        + (f", threads: {facts['threads']}" if facts["threads"] else ""),
        f"Prompt of {settings['prompt_tokens']} tokens, then {settings['new_tokens']} more with the cache; medians of "
        f"{settings['repeats']} pairs with the untouched model.",
    ]
    for line in lines:
        say(line, console)

    _costs(report).print(console)
    speeds = _speeds(report)
    if speeds is not None:
        speeds.print(console)

    lines = [
        "Below each value: seconds, seconds of a token or bytes under the method over those of the untouched model, "
        "median of the pairs [95 % interval].",
        *["The row baseline is the untouched model against itself: what is noise."]
        * any(cost.kind == "baseline" for cost in report.costs),
        f"Time: {facts['time']}. Memory: {facts['memory']}.",
        *report.notes,
        *(f"{name} was left out: {reason}" for name, reason in report.left_out.items()),
    ]
    for line in lines:
        say(line, console)


def _size(facts: dict[str, Any]) -> str:
    """Return the size of the model, so that a part of a model is not taken for the whole."""
    weights = f"{facts['parameters'] / 1e6:.4g} million weights"
    if facts["n_layers"] == facts["of_layers"]:
        return f"{facts['n_layers']} layers, {weights}"
    return (
        f"a part of the model: {facts['n_layers']} of {facts['of_layers']} layers of full size, and the same share of "
        f"the vocabulary, {weights}"
    )


def _costs(report: BenchReport) -> Table:
    """Return the costs of all methods, each with its ratio to the untouched model."""
    figures = ("prefill, s", "decode, tokens/s", "peak memory, MiB", "forward\npasses", "attention\npasses")
    table = Table("Cost", ["method", *figures], names=("method",))

    for cost in report.costs:
        peak = "not known" if cost.peak is None else f"{cost.peak / 2**20:.4g}"
        table.add_row(
            cost.name,
            f"{cost.median('prefill'):.4g}\n{interval_text(*cost.ratio('prefill'))}",
            f"{report.new_tokens / cost.median('decode'):.4g}\n{interval_text(*cost.ratio('decode'))}",
            peak if cost.peak_ratio is None else f"{peak}\n{interval_text(*cost.peak_ratio)}",
            f"{cost.forward_passes:.4g}",
            str(cost.attention_passes),
        )
    return table


def _speeds(report: BenchReport) -> Table | None:
    """Return how many times as fast LPES is as the methods of the paper; ``None`` where LPES was not measured."""
    rows = report.speeds()
    if not rows:
        return None

    figures = ("prefill", "decode", "both together", f"the paper's ({PAPER})")
    table = Table("How many times as fast LPES is", ["as", *figures])

    for name, reported, found in rows:
        table.add_row(name, *(interval_text(*ratio) for ratio in found.values()), f"{reported:.2f}")
    return table
