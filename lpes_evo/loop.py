"""The loop of a search: ask, evaluate, keep, tell."""

from collections.abc import Iterator

import numpy as np

from lpes_evo.errors import EvaluationError
from lpes_evo.evaluation import Evaluation, Evaluator
from lpes_evo.journal import Journal
from lpes_evo.operators import BezierGenome
from lpes_evo.progress import Reporter
from lpes_evo.search import Search


def drive(
    search: Search, evaluator: Evaluator, journal: Journal | None = None, reporter: Reporter | None = None
) -> None:
    """Ask, evaluate and tell until the search stops.

    Args:
        search: The search.
        evaluator: Evaluates genomes, such as `lpes_evo.evaluation.SerialEvaluator`.
        journal: Answers known genomes and keeps new evaluations.
        reporter: Hears how the work goes.

    Raises:
        EvaluationError: ``max_failures`` evaluations failed in a row, or all of a generation without a survivor.
        JournalError: The journal holds an evaluation that is not valid.
        StorageError: The journal cannot be written.
    """
    reporter = reporter if reporter is not None else Reporter()
    reporter.begin(search.settings.max_evaluations)
    n_failed_in_a_row = 0
    best: float | None = None
    while not search.stop():
        genomes = search.ask()
        evaluations: dict[int, Evaluation] = {}
        for index, evaluation, fresh in _answers(genomes, evaluator, journal):
            evaluations[index] = evaluation
            if evaluation.status == "ok":
                n_failed_in_a_row = 0
                best = max(float(np.mean(evaluation.values)), -np.inf if best is None else best)
            else:
                n_failed_in_a_row += 1
            reporter.evaluated(search.generation, evaluation, best, fresh=fresh)
            if n_failed_in_a_row >= search.settings.max_failures:
                reason = (evaluation.error or "").strip().splitlines()[-1:]
                raise EvaluationError(
                    f"Expected evaluations to succeed, but {n_failed_in_a_row} in a row failed, the last with: "
                    f"{''.join(reason)}. Their tracebacks are in the journal; mend the cause and start a new run."
                )
        search.tell([evaluations[index] for index in range(len(genomes))])
        reporter.generation(search.logbook[-1])
    if not search.population:
        raise EvaluationError(
            "Expected a successful evaluation, but every one failed. Their tracebacks are in the journal."
        )


def _answers(
    genomes: list[BezierGenome], evaluator: Evaluator, journal: Journal | None
) -> Iterator[tuple[int, Evaluation, bool]]:
    """Yield ``(index, evaluation, fresh)``: first what the journal knows, then the rest as it is finished."""
    missing = []
    for index, genome in enumerate(genomes):
        record = journal.get(genome.key) if journal is not None else None
        if record is None:
            missing.append(index)
        else:
            yield index, Evaluation.from_json(record), False
    for number, evaluation in evaluator([genomes[index] for index in missing]):
        index = missing[number]
        if journal is not None:
            journal.append(
                genomes[index].key,
                {"control_points": [list(point) for point in genomes[index]], **evaluation.to_json()},
            )
        yield index, evaluation, True
