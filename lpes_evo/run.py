"""One run in one folder: search, result, measurement on held-out data, pictures; resumable at any moment."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from lpes_evo import provenance
from lpes_evo._files import write_atomic
from lpes_evo.config import RunConfig
from lpes_evo.errors import JournalError
from lpes_evo.evaluation import SerialEvaluator
from lpes_evo.folder import RunFolder
from lpes_evo.job import Job, prepare
from lpes_evo.journal import Journal
from lpes_evo.loop import drive, read_evaluation
from lpes_evo.plots import plot_convergence, plot_curve, plot_positions, save_figure
from lpes_evo.problems import aggregate
from lpes_evo.progress import Reporter
from lpes_evo.report import candidates, measure, save_report, summarise
from lpes_evo.scales import Scales
from lpes_evo.search import Search

_UNITS = {"log_probability": "nats per token of the answer", "accuracy": "share of right answers"}


@dataclass(frozen=True)
class RunResult:
    """What a finished run found.

    Attributes:
        scales: The scales, as in ``scales.json``.
        summary: The measurement on held-out data, as in ``report.json``.
    """

    scales: Scales
    summary: dict[str, Any]


def run_search(
    config: RunConfig, folder: RunFolder, *, device: str = "auto", reporter: Reporter | None = None
) -> RunResult:
    """Start the run of a folder, or go on with it: resume is replay.

    The search starts from its seed again; evaluations in the journal are answered from there, so nothing is
    evaluated twice and the result is the one of an undisturbed run.

    Args:
        config: The configuration; for a folder that holds a run, the one it was started with.
        folder: The folder; it must exist.
        device: Where the model computes.
        reporter: Hears how the work goes.

    Returns:
        The result, after all files of the run are written.

    Raises:
        LpesError: Bad input, a full disk, or too many failed evaluations; the message says which. Finished
            evaluations are in the journal.
    """
    reporter = reporter if reporter is not None else Reporter()
    with folder.locked():
        reporter.stage(f"Loading {config.model.name}")
        job = prepare(config, device)
        _say_what_is_searched(job, reporter)
        _record_provenance(job, folder)
        try:
            with Journal(
                folder.journal, {"format": "lpes-evo/journal", "version": 1, **job.identity}
            ) as journal:
                search = _search(job, journal, reporter)
            scales = _scales(job, search)
            scales.save(folder.scales)
            write_atomic(folder.history, history_table(search))
            _draw_search(search, folder, _UNITS[config.task.metric])
            with Journal(
                folder.report_journal, {"format": "lpes-evo/report-journal", "version": 1, **job.identity}
            ) as journal:
                summary = _report(job, search, journal, reporter)
        finally:
            reporter.end()
        save_report(folder.report, summary)
        save_figure(plot_positions(summary), folder.pictures[2])
    return RunResult(scales, summary)


def _search(job: Job, journal: Journal, reporter: Reporter) -> Search:
    """Run the search of a job to its end."""
    _check_journal(job, journal)
    search = Search(job.space, job.config.search, seed=job.config.seed, n_objectives=job.n_objectives)
    drive(
        search,
        SerialEvaluator(job.search_problem, job.space, job.config.search.objectives),
        journal,
        reporter,
    )
    reporter.stage(f"Search ended: {search.stop()}")
    return search


def _report(job: Job, search: Search, journal: Journal, reporter: Reporter) -> dict[str, Any]:
    """Measure the result on held-out examples."""
    config = job.config.report
    vectors = candidates(
        job.space.decode([search.best])[0],
        search.best_constant(),
        n_shuffles=config.n_shuffles,
        seed=job.config.seed,
    )
    scores = {}
    for name, answer_scores in measure(job.report_problem, vectors, journal):
        scores[name] = answer_scores
        reporter.measured(name, answer_scores)
    summary = summarise(job.report_problem, scores, vectors)
    return summary | {
        "model": job.loaded.name,
        "task": job.config.task.name,
        "data": job.report_problem.data_hash,
        "skipped": job.report_problem.skipped,
        "command": provenance.command_line(),
    }


def _scales(job: Job, search: Search) -> Scales:
    """Return the best genome of a search as scales."""
    best = search.best
    return Scales(
        model=job.loaded.name,
        scales=tuple(job.space.decode([best])[0].tolist()),
        control_points=tuple((float(x), float(y)) for x, y in best),
        task=job.config.task.name,
        fitness=tuple(best.fitness.values),
    )


def _record_provenance(job: Job, folder: RunFolder) -> None:
    """Write where the run was made, once; a resumed run keeps the record of its first start."""
    if folder.journal.exists():
        return
    record = provenance.describe(
        **job.identity, revision=job.loaded.revision, device=job.loaded.device, n_layers=job.loaded.n_layers
    )
    folder.write_config(job.config, record)


def _check_journal(job: Job, journal: Journal) -> None:
    """Refuse evaluations whose fitness is not the aggregate of their scores.

    Raises:
        JournalError: The journal was edited.
    """
    groups = job.search_problem.groups
    for record in journal:
        evaluation = read_evaluation(record, journal.path)
        if evaluation.status == "failed":
            continue
        matches = len(evaluation.scores) == len(groups)
        if (
            not matches
            or aggregate(evaluation.scores, groups, job.config.search.objectives) != evaluation.values
        ):
            raise JournalError(
                f"Expected the values under key {record['key']!r} of {journal.path} to be the aggregate of "
                f"{len(groups)} scores, but they are not. The journal was edited; restore it or start a new run."
            )


def _say_what_is_searched(job: Job, reporter: Reporter) -> None:
    problem = job.search_problem
    reporter.stage(
        f"{job.loaded.name}: {job.loaded.n_layers} layers, {job.loaded.dtype} on {job.loaded.device}; "
        f"{len(problem.example_ids)} search examples, {problem.n_tokens} tokens an evaluation; "
        f"{len(job.report_problem.example_ids)} held-out examples"
    )
    if not job.space.contains_identity:
        reporter.stage("The scales leave out 1.0, so the best of them can be worse than the untouched model")
    skipped = problem.skipped + job.report_problem.skipped
    if skipped:
        reporter.stage(f"Skipped {skipped} examples longer than the window of {job.loaded.max_length} tokens")


def history_table(search: Search) -> str:
    """Return the logbook as CSV: one row for each generation."""
    columns = search.logbook.header
    rows = [
        ",".join("" if record[column] is None else str(record[column]) for column in columns)
        for record in search.logbook
    ]
    return "\n".join([",".join(columns), *rows]) + "\n"


def _draw_search(search: Search, folder: RunFolder, unit: str) -> None:
    """Draw convergence and curve."""
    fitness = [
        float(np.mean(evaluation.values)) if evaluation.status == "ok" else None
        for evaluation in search.evaluations()
    ]
    save_figure(plot_convergence(fitness, search.logbook, unit), folder.pictures[0])
    save_figure(plot_curve(search.space, search.best), folder.pictures[1])
