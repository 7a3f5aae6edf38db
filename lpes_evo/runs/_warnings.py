"""Warnings: what a reader must know of the result of a run, and cannot see in its scores."""

from typing import Any

from lpes_evo.reporting import difference_text
from lpes_evo.runs._outcome import lines_of_outcome
from lpes_evo.runs._report_record import LPES, UNTOUCHED


def warnings_of(summary: dict[str, Any]) -> list[str]:
    """Return what a reader must know of the result of a run, and cannot see in its scores.

    These are a search that found nothing better than the untouched model, a result that is worse than the untouched
    model on held-out examples, and scores that are not exactly comparable.

    Args:
        summary: The values that `summarise` returned, with those that a run adds.
    """
    return [*_about_untouched(summary), *_about_batches(summary)]


def _about_untouched(summary: dict[str, Any]) -> list[str]:
    """Return what the untouched model says of the result, on the search examples and on the held-out ones."""
    methods = summary.get("methods", {})
    outcome = summary.get("outcome")
    lines = []
    if outcome is not None:
        is_accuracy = summary.get("measure", "accuracy") == "accuracy"
        accuracy = methods.get(UNTOUCHED, {}).get("accuracy") if is_accuracy else None
        lines += lines_of_outcome(outcome, accuracy)
    # A report of an earlier version tells by its scales alone.
    elif methods and set(methods[LPES]["scales"]) == {1.0}:
        lines.append("The search found nothing better than the untouched model: its scales are all 1.")

    difference = summary.get("differences", {}).get(UNTOUCHED)
    if difference is not None and difference["high"] < 0:
        text = difference_text(difference["difference"], difference["low"], difference["high"])
        lines.append(
            f"The scales found are worse than the untouched model on held-out examples: {text}, 95 % interval. Do not "
            "use them; search again with more examples, which hold a search back from what fits a few of them alone."
        )
    return lines


def _about_batches(summary: dict[str, Any]) -> list[str]:
    """Return which scores come from smaller batches than the rest."""
    smaller = summary.get("smaller_batches", {"n_candidates": 0, "methods": []})

    found = []
    if smaller["n_candidates"]:
        best = ", the best among them" if smaller["best"] else ""
        found.append(f"{smaller['n_candidates']} candidates{best}")
    if smaller["methods"]:
        found.append(f"the held-out examples of {', '.join(smaller['methods'])}")
    if not found:
        return []

    return [
        f"Warning: {' and '.join(found)} were scored in smaller batches than the rest, because a device ran out of "
        "memory; in half precision their scores are not exactly comparable. A smaller task.batch_tokens avoids it."
    ]
