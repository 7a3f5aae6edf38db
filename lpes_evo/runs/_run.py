"""run_search: one run in one folder, from the search to the pictures, resumable at any moment."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from lpes_evo.config import RunConfig
from lpes_evo.errors import JournalError
from lpes_evo.execution import JOURNAL_FORMAT, UNTOUCHED_KEY, Evaluator, SearchLine, drive
from lpes_evo.operators import BezierGenome
from lpes_evo.problems import source_hash
from lpes_evo.reporting import Reporter, Table, save_figure
from lpes_evo.runs._folder import RunFolder
from lpes_evo.runs._job import JobFacts, JobSpec, describe, draw_examples, search_problem
from lpes_evo.runs._outcome import lines_of_outcome, outcome_of
from lpes_evo.runs._pictures import plot_convergence, plot_curve, plot_positions
from lpes_evo.runs._report import candidates, measure, smaller_batches, summarise
from lpes_evo.runs._report_record import REPORT_JOURNAL_FORMAT, save_report
from lpes_evo.runs._tasks import examples_by_task, mix_of, tasks_of
from lpes_evo.scales import Guard, Scales
from lpes_evo.search import Search, find_algorithm
from lpes_evo.storage import Journal, provenance, write_atomic
from lpes_evo.workers import Pool, make_pool

UNITS = {
    "log_probability": "nats per token",
    "accuracy": "share of right answers",
    "score": "score of the task",
}
"""Unit of the fitness by the metric of a run."""

_MIXED_UNIT = "gain over the untouched model in units of the spread of each task"


@dataclass(frozen=True)
class RunResult:
    """The result of a finished run.

    Attributes:
        scales: The scales, as in ``scales.json``.
        summary: The measurement on held-out data, as in ``report.json``.
    """

    scales: Scales
    summary: dict[str, Any]


def run_search(
    config: RunConfig,
    folder: RunFolder,
    *,
    devices: str = "auto",
    ray_address: str | None = None,
    gpus_per_worker: int | None = None,
    work_limit: float | None = None,
    reporter: Reporter | None = None,
) -> RunResult:
    """Start the run of a folder, or resume it: resume is replay.

    The search starts from its seed again, and the journal answers the evaluations that it holds. So nothing is
    evaluated twice, and the result is the one of an undisturbed run.

    Args:
        config: The configuration; for a folder that holds a run, the one it was started with.
        folder: The folder; it must exist.
        devices: Where the model computes, see `lpes_evo.workers.make_pool`: one worker per device.
        ray_address: Address of a Ray cluster whose GPUs are used instead.
        gpus_per_worker: GPUs of each worker on a Ray cluster; ``None`` for one.
        work_limit: Seconds after which a forward pass of an evaluation counts as hung; ``None`` for a limit that
            follows the evaluations seen.
        reporter: Receives the progress of the run.

    Returns:
        The result, once all files of the run are written.

    Raises:
        LpesError: Bad input, a full disk, or too many failed evaluations; the message says which. Finished
            evaluations are in the journal.
    """
    reporter = reporter if reporter is not None else Reporter()
    find_algorithm(config.search.algorithm)
    with folder.locked():
        # Bad data are refused before a model is loaded.
        draw_examples(config)

        reporter.stage(f"Loading {config.model.name}")
        pool = make_pool(
            JobSpec(config),
            devices,
            ray_address=ray_address,
            gpus_per_worker=gpus_per_worker,
            work_limit=work_limit,
            on_event=reporter.stage,
        )
        with pool:
            return _run(pool, folder, reporter)


def _run(pool: Pool, folder: RunFolder, reporter: Reporter) -> RunResult:
    """Search, measure and write all files."""
    job: JobFacts = pool.call(describe)
    _say_what_is_searched(job, pool.n_workers, reporter)
    _record_provenance(job, folder)

    try:
        with Journal(
            folder.journal, {"format": JOURNAL_FORMAT, **job.identity}, on_event=reporter.stage
        ) as journal:
            search = _search(job, pool, journal, reporter)

        # The result of the search is safe before the measurement, which can take as long, begins.
        scales = _scales(job, search)
        scales.save(folder.scales)
        write_atomic(folder.history, history_table(search))
        is_mixture = len(mix_of(job.config).weights) > 1
        _draw_search(search, folder, _MIXED_UNIT if is_mixture else UNITS[job.config.task.metric])

        with Journal(
            folder.report_journal,
            {"format": REPORT_JOURNAL_FORMAT, **job.identity},
            on_event=reporter.stage,
        ) as journal:
            summary = _report(job, search, pool, journal, reporter)
    finally:
        reporter.end()

    save_report(folder.report, summary)
    save_figure(plot_positions(summary), folder.pictures[2])
    return RunResult(scales, summary)


def _search(job: JobFacts, pool: Pool, journal: Journal, reporter: Reporter) -> Search:
    """Run the search of a job to its end."""
    _check_journal(job, journal)
    config = job.config

    search = Search(
        job.space,
        config.search,
        seed=config.seed,
        n_objectives=job.n_objectives,
        initial=_start_genomes(job, reporter),
        example_weights=job.rule.example_weights,
        is_guarded=job.rule.is_guarded,
    )

    evaluator = Evaluator(
        pool,
        job.space,
        config.search,
        n_candidates=config.task.candidates_per_pass,
        problem_of=search_problem,
    )
    if evaluator.n_candidates > 1:
        reporter.stage(f"{evaluator.n_candidates} candidates share a forward pass")

    drive(search, evaluator, journal, reporter)
    reporter.stage(f"Search ended: {search.stop()}")
    outcome = outcome_of(search)
    for line in [] if outcome is None else lines_of_outcome(outcome):
        reporter.stage(line)
    for line in evaluator.account(pool.usage()):
        reporter.stage(line)
    return search


def _start_genomes(job: JobFacts, reporter: Reporter) -> list[BezierGenome]:
    """Return the genomes of the start curves, and report how far each was moved to fit the space."""
    genomes = []
    for start in job.config.initial:
        genome, moved = start.genome(job.space)
        reporter.stage(
            f"The search starts from {start.source} too; the nearest curve of its space differs by {moved:.3g} at most"
        )
        genomes.append(genome)
    return genomes


def _report(
    job: JobFacts, search: Search, pool: Pool, journal: Journal, reporter: Reporter
) -> dict[str, Any]:
    """Measure the result on held-out examples."""
    config = job.config.report
    vectors = candidates(
        job.space.decode([search.best])[0],
        search.best_constant(),
        n_shuffles=config.n_shuffles,
        seed=job.config.seed,
    )

    scores = {}
    for name, answer_scores in measure(pool, vectors, len(job.report.example_ids), journal):
        scores[name] = answer_scores
        reporter.measured(name, answer_scores)

    # The scores arrive as they are finished, and the summary keeps the order of the vectors.
    summary = summarise(job.report, {name: scores[name] for name in vectors}, vectors, job.measure)
    if job.measure != "accuracy":
        summary["measure"] = job.measure_name
    outcome = outcome_of(search)
    if outcome is not None:
        summary["outcome"] = outcome
    return summary | {
        "model": job.model,
        "task": job.config.task.name,
        "data": job.report.data_hash,
        "skipped": job.report.skipped,
        "smaller_batches": smaller_batches(search.evaluations(), journal),
        "command": provenance.command_line(),
    }


def _scales(job: JobFacts, search: Search) -> Scales:
    """Return the best genome of a search as scales."""
    best = search.best
    return Scales(
        model=job.model,
        scales=tuple(job.space.decode([best])[0].tolist()),
        control_points=tuple((float(x), float(y)) for x, y in best),
        task=job.config.task.name,
        fitness=tuple(best.fitness.values),
        curve=job.space.curve,
        seen=_seen(job),
        guards=_guards(job, search),
    )


def _guards(job: JobFacts, search: Search) -> tuple[Guard, ...]:
    """Return the guards of a search, and how much its best genome changed them on the search data."""
    mixture = job.search.mixture
    if mixture is None or not mixture.guards:
        return ()
    gains = search.evaluation_of(search.best).scores
    changes = job.rule.changes(np.array(gains))
    return tuple(
        Guard(name=name, tolerance=limit, change=changes[name]) for name, limit in mixture.guards.items()
    )


def _seen(job: JobFacts) -> tuple[str, ...]:
    """Return the hashes of the sources that the search saw, of the tasks that divide those of a file."""
    divided = [name for name, task in tasks_of(job.config).items() if task.splits_sources]
    drawn = examples_by_task(job.config, "search") if divided else {}
    return tuple(sorted({source_hash(example.source) for name in divided for example in drawn[name]}))


def _record_provenance(job: JobFacts, folder: RunFolder) -> None:
    """Write where the run was made, once; a resumed run keeps the record of its first start."""
    if folder.journal.exists():
        return

    on_base = {} if job.base is None else {"base": job.base}
    record = provenance.describe(
        **job.identity,
        **on_base,
        **({"notes": list(job.notes)} if job.notes else {}),
        revision=job.revision,
        device_name=job.device_name,
        n_layers=job.n_layers,
    )
    folder.write_config(job.config, record)


def _check_journal(job: JobFacts, journal: Journal) -> None:
    """Refuse evaluations whose fitness or violation is not that of their scores.

    Raises:
        JournalError: The journal was edited.
    """
    n_examples, rule = len(job.search.groups), job.rule
    for record in journal:
        line = SearchLine.read(record, journal.path)
        if line.status != "ok" or line.key == UNTOUCHED_KEY:
            continue

        scores = np.array(line.scores)
        matches = len(scores) == n_examples
        if not matches or (rule.values(scores), rule.violation(scores)) != (line.values, line.violation):
            raise JournalError(
                f"Expected the values under key {record['key']!r} of {journal.path} to be the aggregate of "
                f"{n_examples} scores, but they are not. The journal was edited; restore it or start a new run."
            )


def _say_what_is_searched(job: JobFacts, n_workers: int, reporter: Reporter) -> None:
    """Report the model, the data, and what a user should know of the space before the search begins."""
    reporter.stage(
        f"{job.model}: {job.n_layers} layers, {job.dtype} on {n_workers} x {job.device}; "
        f"{len(job.search.example_ids)} search examples, {job.search.n_tokens} tokens a full evaluation; "
        f"{len(job.report.example_ids)} held-out examples"
    )
    for line in [*job.sharing, *job.notes]:
        reporter.stage(line)

    if not job.space.contains_identity:
        reporter.stage("The scales leave out 1.0, so the best of them can be worse than the untouched model")
    skipped = job.search.skipped + job.report.skipped
    if skipped:
        reporter.stage(f"Skipped {skipped} examples longer than the window of {job.max_length} tokens")


def history_table(search: Search) -> str:
    """Return the logbook as CSV: one row for each generation."""
    columns = search.logbook.header
    rows = ([record[column] for column in columns] for record in search.logbook)
    return Table("", columns, rows).to_csv()


def _draw_search(search: Search, folder: RunFolder, unit: str) -> None:
    """Draw the convergence of the search and the curve that it found."""
    fitness = [
        float(np.mean(evaluation.values)) if evaluation.status == "ok" and not evaluation.violation else None
        for evaluation in search.evaluations()
    ]

    save_figure(plot_convergence(fitness, search.logbook, unit), folder.pictures[0])
    save_figure(plot_curve(search.space, search.best), folder.pictures[1])
