"""Outcome: whether a search found anything better than the untouched model, and what to try where it did not."""

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from pydantic import NonNegativeInt, model_validator

from lpes_evo.storage import Record

if TYPE_CHECKING:
    from lpes_evo.search import Search


class Outcome(Record):
    """What a search found beside the untouched model, on the search examples; a part of ``report.json``.

    Attributes:
        algorithm: The algorithm in the settings.
        untouched: Fitness of the untouched model, the mean over objectives.
        best: Fitness of the result, the mean over objectives.
        n_candidates: Candidates that were evaluated beside the untouched model.
        n_failed: Those of them that failed.
        n_raced: Those of them that were stopped early as worse.
    """

    WHAT: ClassVar[str] = "the outcome of a search"

    algorithm: str
    untouched: float
    best: float
    n_candidates: NonNegativeInt
    n_failed: NonNegativeInt
    n_raced: NonNegativeInt

    @model_validator(mode="after")
    def _counts_fit(self) -> "Outcome":
        if self.n_failed + self.n_raced > self.n_candidates:
            raise ValueError(
                f"of {self.n_candidates} candidates, {self.n_failed} failed and {self.n_raced} were stopped early"
            )
        return self


def outcome_of(search: "Search") -> dict[str, Any] | None:
    """Return the `Outcome` of a search that has ended as a mapping that `json` can write.

    Args:
        search: The search.

    Returns:
        The fields of `Outcome`; ``None`` where the untouched model was not evaluated with success, so that nothing
        can be said.
    """
    untouched = search.untouched()
    if untouched is None:
        return None

    statuses = [evaluation.status for evaluation in search.evaluations() if evaluation.status != "sampled"]
    return Outcome(
        algorithm=search.settings.algorithm,
        untouched=float(np.mean(untouched)),
        best=float(np.mean(search.best.fitness.values)),
        n_candidates=len(statuses) - 1,
        n_failed=statuses.count("failed"),
        n_raced=statuses.count("raced"),
    ).to_json()


def lines_of_outcome(outcome: dict[str, Any], accuracy: float | None = None) -> list[str]:
    """Return what a user must know of a search that found nothing better than the untouched model.

    Args:
        outcome: What `outcome_of` returned.
        accuracy: Accuracy of the untouched model on held-out examples; ``None`` where it is not known.

    Returns:
        What happened and what to try, a line each; no line where the search found something better.
    """
    found = Outcome.of(outcome, "the outcome of a search")
    if found.best > found.untouched:
        return []
    n_full = found.n_candidates - found.n_failed - found.n_raced
    fates = (
        f"of {found.n_candidates} other candidates, {found.n_failed} failed, {found.n_raced} were stopped early as "
        f"clearly worse, and {n_full} were scored in full and were no better"
        if found.n_candidates
        else "no other candidate was evaluated"
    )
    happened = f"The search found nothing better than the untouched model on the search examples: {fates}."
    return [happened, f"What to try: {'; '.join(_remedies(found, accuracy))}."]


def _remedies(found: Outcome, accuracy: float | None) -> list[str]:
    """Return what to try, the most likely first."""
    if found.n_candidates and found.n_failed == found.n_candidates:
        return ["mend what made every candidate fail (the tracebacks are in journal.jsonl) and search again"]

    remedies = []
    if accuracy in (0, 1):
        remedies.append(
            f"a {'harder' if accuracy else 'simpler'} task, since the untouched model is right on "
            f"{'all' if accuracy else 'none'} of the held-out examples"
        )
    remedies.append("more search.generations or more examples")
    if found.n_raced and found.n_raced + found.n_failed == found.n_candidates:
        remedies.append("scales nearer to 1 (curve.y_min, curve.y_max), since no candidate came close")
    else:
        remedies.append("another range of scales (curve.y_min, curve.y_max)")
    remedies.append(
        "the genetic algorithm (search.algorithm=ga)"
        if found.algorithm == "gradient"
        else "another algorithm, such as --preset gradient"
    )
    if accuracy is None:
        remedies.append("a task on which the untouched model is neither always right nor always wrong")
    return remedies
