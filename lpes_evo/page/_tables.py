"""Tables of a page: result, positions, cost, drift, versions and settings of a run."""

from collections.abc import Mapping
from typing import Any

from lpes_evo.analysis import CLAIM_WORDS, MEASURE_NAMES, MEASURES, arm_label
from lpes_evo.execution import Cost
from lpes_evo.page._run import RunContents
from lpes_evo.reporting import Table, difference_text, interval_text, p_equation, p_text
from lpes_evo.runs import CONSTANT, LPES, STYLES


def result_table(summary: dict[str, Any]) -> Table:
    """Return the accuracies on held-out examples over all positions, and the difference of LPES to each.

    Args:
        summary: The measurement on held-out examples, see `lpes_evo.runs.summarise`.
    """
    table = Table(
        f"{_measure(summary).capitalize()} on held-out examples, all positions: 95 % bootstrap intervals over texts; "
        "differences are paired, on the same examples",
        ["scales", "n", _measure(summary), "log-probability (nats per token)", "LPES minus it"],
    )

    for name, method in summary["methods"].items():
        difference = summary["differences"].get(name)
        table.add_row(
            _label(summary, name),
            method["n"],
            _accuracy(method),
            f"{method['log_probability']:.3f}",
            "" if difference is None else report_difference(difference),
        )

    if "shuffles" in summary:
        found = summary["shuffles"]
        table.add_row(
            f"{found['n_shuffles']} random shuffles of LPES, median [range]",
            summary["methods"][LPES]["n"],
            interval_text(found["median_accuracy"], found["least_accuracy"], found["largest_accuracy"]),
            "",
            "",
        )
    return table


def _measure(summary: dict[str, Any]) -> str:
    """Return the name of the number that a report compares."""
    return str(summary.get("measure", "accuracy"))


def position_table(summary: dict[str, Any]) -> Table:
    """Return the accuracies by gold position.

    Args:
        summary: The measurement on held-out examples, see `lpes_evo.runs.summarise`.
    """
    methods, shuffles = summary["methods"], summary.get("shuffles")
    columns = ["position", "n", *(_label(summary, name) for name in methods)]
    table = Table(
        f"{_measure(summary).capitalize()} by position of the fact, 0 the beginning and 1 the end, with 95 % "
        f"{'Wilson ' if _measure(summary) == 'accuracy' else ''}intervals",
        [*columns, *(["mean of the shuffles"] if shuffles else [])],
    )

    for index, row in enumerate(methods[LPES]["positions"]):
        cells = [_accuracy(method["positions"][index]) for method in methods.values()]
        if shuffles:
            cells.append(f"{shuffles['positions'][index]['accuracy']:.3f}")
        table.add_row(f"{row['position']:.3g}", row["n"], *cells)
    return table


def cost_table(run: RunContents, cost: Cost, counts: Mapping[str, int]) -> Table:
    """Return the cost of a search.

    Args:
        run: The run.
        cost: The cost of its evaluations.
        counts: Number of evaluations by status, see `lpes_evo.page._cost.read_cost`.
    """
    search = run.config.search
    table = Table("What the search cost, from its journal", ["", "amount"])

    most = search.max_evaluations - search.max_gradients
    table.add_row("evaluations", f"{len(run.trace)} of at most {most}")
    table.add_row("of these scored in full", counts.get("ok", 0))
    table.add_row("of these stopped early by racing", counts.get("raced", 0))
    table.add_row("of these failed", counts.get("failed", 0))
    if counts.get("sampled") or search.takes_gradients:
        table.add_row("gradients", f"{counts.get('sampled', 0)} of at most {search.max_gradients}")
    if counts.get("repeated"):
        table.add_row("failures that were tried again", counts["repeated"])

    tokens = f"{cost.tokens:,}" if cost.tokens else "not in the journal"
    table.add_row("tokens forwarded, a backward pass counted as two", tokens)
    table.add_row("time of the workers, added up", f"{cost.seconds:,.1f} s")
    if cost.unraced:
        share = f"{cost.scored:,} of {cost.unraced:,}, {100 * cost.scored / cost.unraced:.0f} %"
        table.add_row("examples scored, of those without racing", share)

    table.add_row("vectors of scales measured on held-out examples", run.n_measured)
    return table


def drift_tables(summary: dict[str, Any]) -> tuple[Table, Table, Table]:
    """Return the drift by arm, the tests against the curve, and the answers that the tests give.

    Args:
        summary: The drift, see `lpes_evo.page._drift.load_drift`.
    """
    return _arms_table(summary), _tests_table(summary), _answers_table(summary)


def _arms_table(summary: dict[str, Any]) -> Table:
    """Return the drift by arm, with the accuracy where the inputs have answers."""
    has_answers = summary["retrieval"] is not None
    columns = ["vectors", "n", *MEASURE_NAMES.values(), "half of it at layer"]
    table = Table(
        f"Drift of hidden states, mean over layers: medians over vectors with 95 % bootstrap intervals; "
        f"n = {summary['n_inputs']} inputs from {summary['n_sources']} sources, {summary['n_tokens']} tokens",
        [*columns, *(["accuracy"] if has_answers else [])],
    )

    # The untouched model does not drift.
    if has_answers and summary["untouched"] is not None:
        accuracy = _interval(summary["untouched"]["accuracy"])
        table.add_row("untouched model", "", *["0" for _ in MEASURES], "", accuracy)

    for name, arm in summary["arms"].items():
        table.add_row(
            arm_label(name),
            arm["n_vectors"],
            *(_interval(arm["drift"][measure]) for measure in MEASURES),
            arm["accumulation"]["relative_l2"]["half_at_layer"],
            *([_interval(arm["accuracy"])] if has_answers else []),
        )
    return table


def _tests_table(summary: dict[str, Any]) -> Table:
    """Return the paired tests of every arm against the curve."""
    table = Table(
        "Each arm minus the curve, on the same inputs: a positive difference says that the curve drifts less",
        ["against, by", "difference", "vectors that drift more", "p (Holm)", "the curve drifts"],
    )

    for measure, found in summary["comparisons"].items():
        for name, row in found.items():
            table.add_row(
                f"{arm_label(name)}, {MEASURE_NAMES[measure]}",
                _difference(row, ".3f"),
                f"{row['n_more']} of {row['n_vectors']}",
                p_text(row["p_corrected"]),
                row["curve_drifts"],
            )
    return table


def _answers_table(summary: dict[str, Any]) -> Table:
    """Return what the tests say of smoothness, and of drift and retrieval."""
    table = Table("What the tests say", ["question", "answer"])

    for key, value in summary["claim"].items():
        table.add_row(f"smooth drifts least, by {MEASURE_NAMES[key]}", CLAIM_WORDS[value])

    for key, found in summary["smoothness"].items():
        table.add_row(
            f"random vectors minus random curves, by {MEASURE_NAMES[key]}",
            f"{_difference(found, '.3f')}, {p_equation(found['p_value'])}",
        )

    if summary["retrieval"] is not None:
        for score, found in summary["retrieval"]["relative_l2"]["all"].items():
            question = f"rank correlation of drift (relative L2) and {score.replace('_', '-')}"
            table.add_row(question, _correlation(found))
    return table


def versions_table(run_versions: dict[str, Any], page_versions: dict[str, str]) -> Table:
    """Return the versions of the packages of the run beside those that made the page.

    Args:
        run_versions: Versions of the run, by package.
        page_versions: Versions of this process, by package.
    """
    names = list(dict.fromkeys([*run_versions, *page_versions]))
    return Table(
        "Versions",
        ["package", "of the run", "of this page"],
        [[name, str(run_versions.get(name, "")), page_versions.get(name, "")] for name in names],
    )


def settings_table(run: RunContents) -> Table:
    """Return every setting of a run by its dotted key, as ``--set`` takes it.

    Args:
        run: The run.
    """
    table = Table("Every setting of the run", ["setting", "value"])

    def collect(values: dict[str, Any], prefix: str) -> None:
        for key, value in values.items():
            if isinstance(value, dict) and value:
                collect(value, f"{prefix}{key}.")
            else:
                table.add_row(f"{prefix}{key}", _setting(value))

    collect(run.config.model_dump(mode="json"), "")
    return table


def report_difference(found: dict[str, float]) -> str:
    """Return a difference on held-out examples with its interval.

    Args:
        found: A difference as in ``report.json``.
    """
    return difference_text(found["difference"], found["low"], found["high"])


def _setting(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_setting, value))
    return "not set" if value is None or value == {} else str(value)


def _label(summary: dict[str, Any], name: str) -> str:
    """Return what a method is called, the best single scale with its value."""
    label = STYLES[name][0] if name in STYLES else name
    scales = summary["methods"][name].get("scales")
    return f"{label} ({scales[0]:g})" if name == CONSTANT and scales else label


def _accuracy(row: dict[str, float]) -> str:
    return interval_text(row["accuracy"], row["low"], row["high"], limits=".2f")


def _interval(found: dict[str, float]) -> str:
    return interval_text(found["value"], found["low"], found["high"], ".2f")


def _difference(found: dict[str, float], form: str) -> str:
    return difference_text(found["value"], found["low"], found["high"], form)


def _correlation(found: dict[str, float] | None) -> str:
    if found is None:
        return "none: one of the two never changes, or there are fewer than four vectors"
    return f"{_difference(found, '.2f')}, {p_equation(found['p_value'])}, n = {found['n']}"
