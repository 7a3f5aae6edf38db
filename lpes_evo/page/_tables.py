"""The tables of a page: what is in their cells, as text for people."""

from collections.abc import Mapping
from typing import Any

from lpes_evo.analysis import CLAIM_WORDS, MEASURE_NAMES, MEASURES, arm_label
from lpes_evo.execution import Cost
from lpes_evo.page._run import RunContents
from lpes_evo.reporting import Table, difference_text, interval_text, p_equation, p_text
from lpes_evo.runs import CONSTANT, LPES, STYLES


def result_table(summary: dict[str, Any]) -> Table:
    """Return accuracies on held-out examples over all positions, and what LPES is ahead."""
    rows = []
    for name, method in summary["methods"].items():
        difference = summary["differences"].get(name)
        rows.append(
            [
                _label(summary, name),
                str(method["n"]),
                _accuracy(method),
                f"{method['log_probability']:.3f}",
                "" if difference is None else report_difference(difference),
            ]
        )
    if "shuffles" in summary:
        found = summary["shuffles"]
        rows.append(
            [
                f"{found['n_shuffles']} random shuffles of LPES, median [range]",
                str(summary["methods"][LPES]["n"]),
                interval_text(found["median_accuracy"], found["least_accuracy"], found["largest_accuracy"]),
                "",
                "",
            ]
        )
    return Table(
        "Accuracy on held-out examples, all positions: 95 % bootstrap intervals over texts; differences are paired, "
        "on the same examples",
        ["scales", "n", "accuracy", "log-probability (nats per token)", "LPES minus it"],
        rows,
    )


def position_table(summary: dict[str, Any]) -> Table:
    """Return accuracies by gold position."""
    methods, shuffles = summary["methods"], summary.get("shuffles")
    header = ["position", "n", *(_label(summary, name) for name in methods)]
    rows = []
    for index, row in enumerate(methods[LPES]["positions"]):
        cells = [_accuracy(method["positions"][index]) for method in methods.values()]
        if shuffles:
            cells.append(f"{shuffles['positions'][index]['accuracy']:.3f}")
        rows.append([f"{row['position']:.3g}", str(row["n"]), *cells])
    return Table(
        "Accuracy by position of the fact, 0 the beginning and 1 the end, with 95 % Wilson intervals",
        [*header, *(["mean of the shuffles"] if shuffles else [])],
        rows,
    )


def cost_table(run: RunContents, cost: Cost, counts: Mapping[str, int]) -> Table:
    """Return what the search cost."""
    search = run.config.search
    rows = [
        ["evaluations", f"{len(run.trace)} of at most {search.max_evaluations - search.max_gradients}"],
        ["of these scored in full", f"{counts.get('ok', 0)}"],
        ["of these stopped early by racing", f"{counts.get('raced', 0)}"],
        ["of these failed", f"{counts.get('failed', 0)}"],
    ]
    if counts.get("sampled") or search.takes_gradients:
        rows.append(["gradients", f"{counts.get('sampled', 0)} of at most {search.max_gradients}"])
    if counts.get("repeated"):
        rows.append(["failures that were tried again", f"{counts['repeated']}"])
    rows += [
        [
            "tokens forwarded, a backward pass counted as two",
            f"{cost.tokens:,}" if cost.tokens else "not in the journal",
        ],
        ["time of the workers, added up", f"{cost.seconds:,.1f} s"],
    ]
    if cost.unraced:
        rows.append(
            [
                "examples scored, of those without racing",
                f"{cost.scored:,} of {cost.unraced:,}, {100 * cost.scored / cost.unraced:.0f} %",
            ]
        )
    rows.append(["vectors of scales measured on held-out examples", f"{run.n_measured}"])
    return Table("What the search cost, from its journal", ["", "amount"], rows)


def drift_tables(summary: dict[str, Any]) -> list[Table]:
    """Return drift by arm, the tests against the curve, and the answers that they give."""
    has_answers = summary["retrieval"] is not None
    rows = [
        [
            arm_label(name),
            str(arm["n_vectors"]),
            *(_interval(arm["drift"][measure]) for measure in MEASURES),
            str(arm["accumulation"]["relative_l2"]["half_at_layer"]),
            *([_interval(arm["accuracy"])] if has_answers else []),
        ]
        for name, arm in summary["arms"].items()
    ]
    if has_answers and summary["untouched"] is not None:
        untouched = _interval(summary["untouched"]["accuracy"])
        rows.insert(0, ["untouched model", "", *["0" for _ in MEASURES], "", untouched])
    arms = Table(
        f"Drift of hidden states, mean over layers: medians over vectors with 95 % bootstrap intervals; "
        f"n = {summary['n_inputs']} inputs from {summary['n_sources']} sources, {summary['n_tokens']} tokens",
        [
            "vectors",
            "n",
            *MEASURE_NAMES.values(),
            "half of it at layer",
            *(["accuracy"] if has_answers else []),
        ],
        rows,
    )
    tests = Table(
        "Each arm minus the curve, on the same inputs: a positive difference says that the curve drifts less",
        ["against, by", "difference", "vectors that drift more", "p (Holm)", "the curve drifts"],
        [
            [
                f"{arm_label(name)}, {MEASURE_NAMES[measure]}",
                _difference(row, ".3f"),
                f"{row['n_more']} of {row['n_vectors']}",
                p_text(row["p_corrected"]),
                row["curve_drifts"],
            ]
            for measure, found in summary["comparisons"].items()
            for name, row in found.items()
        ],
    )
    answers = [
        [f"smooth drifts least, by {MEASURE_NAMES[key]}", CLAIM_WORDS[value]]
        for key, value in summary["claim"].items()
    ]
    answers += [
        [
            f"random vectors minus random curves, by {MEASURE_NAMES[key]}",
            f"{_difference(found, '.3f')}, {p_equation(found['p_value'])}",
        ]
        for key, found in summary["smoothness"].items()
    ]
    if has_answers:
        answers += [
            [f"rank correlation of drift (relative L2) and {score.replace('_', '-')}", _correlation(found)]
            for score, found in summary["retrieval"]["relative_l2"]["all"].items()
        ]
    return [arms, tests, Table("What the tests say", ["question", "answer"], answers)]


def versions_table(run_versions: dict[str, Any], page_versions: dict[str, str]) -> Table:
    """Return the versions of the run beside those that made the page."""
    names = list(dict.fromkeys([*run_versions, *page_versions]))
    return Table(
        "Versions",
        ["package", "of the run", "of this page"],
        [[name, str(run_versions.get(name, "")), page_versions.get(name, "")] for name in names],
    )


def settings_table(run: RunContents) -> Table:
    """Return every setting by its dotted key, as ``--set`` takes it."""
    rows: list[list[str]] = []

    def collect(values: dict[str, Any], prefix: str) -> None:
        for key, value in values.items():
            if isinstance(value, dict) and value:
                collect(value, f"{prefix}{key}.")
            else:
                rows.append([f"{prefix}{key}", _setting(value)])

    collect(run.config.model_dump(mode="json"), "")
    return Table("Every setting of the run", ["setting", "value"], rows)


def report_difference(found: dict[str, float]) -> str:
    """Return a difference on held-out examples, as a report of a run has it, with its interval."""
    return difference_text(found["difference"], found["low"], found["high"])


def _setting(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_setting, value))
    return "not set" if value is None or value == {} else str(value)


def _label(summary: dict[str, Any], name: str) -> str:
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
