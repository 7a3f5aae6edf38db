"""One evaluation in one folder: plan, answers, tables and pictures; resumable at any moment."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lpes_evo.config import hash_values, settings_hash
from lpes_evo.errors import ConfigError, EvaluationError, LpesError, TaskError
from lpes_evo.evals._answers import ANSWERS_FORMAT, answer_key, collect_answers, last_failure, read_answer
from lpes_evo.evals._arms import Arm, make_arms
from lpes_evo.evals._config import EvalConfig
from lpes_evo.evals._engines import check_engine
from lpes_evo.evals._folder import EvalFolder
from lpes_evo.evals._lm_tasks import collect_lm_scores, summarise_lm_task
from lpes_evo.evals._plan import DrawnTask, PlannedTask, draw_tasks, plan_task
from lpes_evo.evals._plot import plot_task_positions
from lpes_evo.evals._results import EvalResults, TaskResult, save_results
from lpes_evo.evals._statistics import ScoredExample, summarise_arm
from lpes_evo.evals._table import save_tables
from lpes_evo.evals._target import EvalTargetSpec, check_arms, describe_target
from lpes_evo.evals._unseen import check_unseen, seen_sources, tell_left_out
from lpes_evo.evals.harness import is_harness_task
from lpes_evo.methods import scales_file
from lpes_evo.problems import headline_of
from lpes_evo.reporting import Reporter
from lpes_evo.runs import UNTOUCHED
from lpes_evo.scales import Scales, load_scales
from lpes_evo.storage import Journal, provenance
from lpes_evo.workers import Pool, make_pool


def run_evaluation(
    config: EvalConfig,
    folder: EvalFolder,
    *,
    devices: str = "auto",
    ray_address: str | None = None,
    gpus_per_worker: int | None = None,
    batch_limit: float | None = None,
    reporter: Reporter | None = None,
) -> EvalResults:
    """Start the evaluation of a folder, or go on with it.

    Args:
        config: The evaluation; for a folder that holds one, the one it was started with.
        folder: The folder; it must exist.
        devices: Where the model computes, see `lpes_evo.workers.make_pool`.
        ray_address: Address of a Ray cluster whose GPUs are used instead.
        gpus_per_worker: GPUs of each worker on a Ray cluster; ``None`` for one.
        batch_limit: Seconds after which a forward pass of a batch counts as hung; ``None`` for no limit.
        reporter: Reports the progress.

    Returns:
        The results, after all files are written; a task whose answers give none is named among what is missing.

    Raises:
        LpesError: Bad input, a full disk, or too many failures; the message says which. Finished answers are in the
            journal.
    """
    reporter = reporter if reporter is not None else Reporter()
    with folder.locked():
        # All that can be checked without the model comes first, since a large model takes minutes to load.
        arms = make_arms(_load_scales(config, folder), config.methods)
        drawn, lm_tasks = draw_tasks(config, seen_sources(arms))
        _refuse_prompt_choices(arms, lm_tasks)
        modes = {task.task.name: str(task.mode) for task in drawn} | dict.fromkeys(lm_tasks, "harness")
        check_engine(config, arms, modes)
        if not folder.answers.exists():
            _refuse_idle_options(config, drawn, batch_limit)
        files = dict.fromkeys(filter(None, [config.scales, *map(scales_file, config.methods or ())]))
        examples = {task.task.name: task.examples for task in drawn}
        notes = list(filter(None, (check_unseen(Path(file), examples) for file in files)))
        notes += tell_left_out(arms, drawn, None if config.data is None else Path(config.data))

        reporter.stage(f"Loading {config.model.name}")
        with make_pool(
            EvalTargetSpec(config),
            devices,
            ray_address=ray_address,
            gpus_per_worker=gpus_per_worker,
            work_limit=batch_limit,
            on_event=reporter.stage,
        ) as pool:
            facts = pool.call(describe_target)
            records = dict(zip((arm.name for arm in arms), pool.call(check_arms, arms), strict=True))
            notes += [*facts["notes"], *_transfer_notes(arms, config, facts), *_method_notes(records)]
            notes += _harness_notes(config, lm_tasks)
            for note in notes:
                reporter.stage(note)

            tasks = [plan_task(pool, task, config, facts, arms) for task in drawn]
            _say_what_is_asked(tasks, facts, pool, reporter)
            notes += _neutral_notes(records, tasks)

            identity = _identity(config, facts, records, tasks)
            if not folder.answers.exists():
                folder.write_config(config, provenance.describe(**identity))
            with Journal(
                folder.answers, {"format": ANSWERS_FORMAT, **identity}, on_event=reporter.stage
            ) as journal:
                try:
                    batch_tokens = config.batch_tokens or facts["default_batch_tokens"]
                    limited = batch_limit is not None
                    collect_answers(pool, arms, tasks, journal, reporter, batch_tokens, limited)
                    failures = collect_lm_scores(pool, arms, lm_tasks, config, journal, reporter)
                finally:
                    reporter.end()
                summaries, unanswered = _summarise_all(tasks, [arm.name for arm in arms], journal)
                failures |= unanswered
                summaries += [
                    summarise_lm_task(task, records, UNTOUCHED, journal)
                    for task in lm_tasks
                    if task not in failures
                ]

        if not summaries:
            raise next(iter(failures.values()))
        results = EvalResults(
            model=config.model.name,
            facts=facts,
            arms=records,
            notes=notes,
            tasks=summaries,
            missing={name: str(error) for name, error in failures.items()},
            command=provenance.command_line(),
        )
        save_tables(results, folder)
        for task in results.tasks:
            if len(task.arms[UNTOUCHED].positions) > 1:
                _save_picture(task, folder)

        # The results come last, so that a folder that has them has everything else too.
        save_results(folder.results, results)
    return results


def _load_scales(config: EvalConfig, folder: EvalFolder) -> Scales | None:
    """Return the scales that are judged; a copy in the folder keeps them as they were when the evaluation began.

    A copy without answers beside it is left from a start that failed, or is another program's.
    """
    if config.scales is None:
        return None
    if folder.answers.exists() and folder.scales.exists():
        return load_scales(folder.scales)
    found = load_scales(config.scales)
    found.save(folder.scales)
    return found


def _refuse_prompt_choices(arms: Sequence[Arm], lm_tasks: Sequence[str]) -> None:
    """Refuse methods that choose by the prompt beside tasks of the harness, which does not tell where prompts end."""
    choosing = [arm.name for arm in arms if arm.method.chooses_by_prompt]
    if choosing and lm_tasks:
        raise ConfigError(
            f"Expected no methods that choose by the prompt beside tasks of lm-evaluation-harness, but got "
            f"{', '.join(choosing)} and {', '.join(lm_tasks)}. Evaluate them on other tasks."
        )


def _refuse_idle_options(config: EvalConfig, drawn: Sequence[DrawnTask], batch_limit: float | None) -> None:
    """Refuse options that no task of a new evaluation takes.

    Raises:
        ConfigError: There is one; the message names it.
    """
    config.refuse_idle_options()
    defaults = EvalConfig.model_fields
    idle = []
    if config.positions != defaults["positions"].default and not any(
        example.position is not None for task in drawn for example in task.examples
    ):
        idle.append("--positions, since no task places a fact")
    reads_data = any(map(is_harness_task, config.tasks)) or any(task.task.reads_data for task in drawn)
    if config.data is not None and not reads_data:
        idle.append("--data, since no task reads files")

    if config.teacher_forcing and not any(task.mode == "teacher forcing" for task in drawn):
        idle.append("--teacher-forcing, since the metric of no task allows it")
    if batch_limit is not None and not drawn:
        idle.append("--batch-limit, since lm-evaluation-harness makes its own batches")

    if idle:
        raise ConfigError(
            f"Expected options that have an effect on {', '.join(config.tasks)}, but got {'; '.join(idle)}. Leave "
            "them out."
        )


def _harness_notes(config: EvalConfig, lm_tasks: Sequence[str]) -> list[str]:
    """Return notes on the options of an evaluation that do not reach the tasks of the harness beside others."""
    idle = config.idle_in_harness()
    return [f"{task}: takes no {', '.join(idle)}" for task in lm_tasks if idle]


def _transfer_notes(arms: Sequence[Arm], config: EvalConfig, facts: dict[str, Any]) -> list[str]:
    """Return notes on scales that were found on another model or at another depth."""
    notes = []
    for arm in arms:
        found = arm.found
        if found is None:
            continue

        if found.model != config.model.name:
            notes.append(
                f"Transfer: the scales were found on {found.model} (task {found.task}) and are used on "
                f"{config.model.name}"
            )
        if found.n_layers != facts["n_layers"]:
            notes.append(
                f"Transfer: the curve of {found.n_layers} layers is read off at the {facts['n_layers']} of this model"
            )
    return list(dict.fromkeys(notes))


def _method_notes(records: dict[str, dict[str, Any]]) -> list[str]:
    """Return notes on the version of each method, its departures from that version, and the cost of one step."""
    notes = []
    for name, record in records.items():
        facts = [
            f"{setting} {record[setting]} as in the {record[f'{setting}_follows']}"
            for setting in record
            if f"{setting}_follows" in record
        ]

        if record.get("streams", 1) > 1:
            facts.append(f"{record['streams']} streams")
        if record.get("attention_passes", 1) > 1:
            facts.append(f"attention {record['attention_passes']} times in each layer")

        if facts:
            notes.append(f"{name}: {', '.join(facts)}")
        notes += [f"{name}: {departure}" for departure in record.get("departures", ())]
    return notes


def _neutral_notes(records: dict[str, dict[str, Any]], tasks: Sequence[PlannedTask]) -> list[str]:
    """Return notes on methods that do nothing, since they act on prompts longer than all of a task."""
    return [
        f"{name}: does nothing on {planned.task.name}, since all prompts are within the {record['neutral_up_to']} "
        "tokens up to which it leaves the model as it is; original= or length= state another window"
        for planned in tasks
        for name, record in records.items()
        if max(summary.n_prompt for summary in planned.summaries.values()) <= record.get("neutral_up_to", 0)
    ]


def _identity(
    config: EvalConfig,
    facts: dict[str, Any],
    records: dict[str, dict[str, Any]],
    tasks: Sequence[PlannedTask],
) -> dict[str, Any]:
    """Return what two runs must share to be one: configuration, arms, data, weights, and the way to compute."""
    return {
        # The records of the arms define the methods.
        "config": settings_hash(config, exclude={"methods"}),
        # Departures from other code follow from the settings and the model.
        "arms": {
            name: hash_values({key: value for key, value in record.items() if key != "departures"})
            for name, record in records.items()
        },
        "data": {task.task.name: task.data for task in tasks},
        **{name: facts[name] for name in ("weights", "dtype", "attention", "device", "window")},
    }


def _say_what_is_asked(
    tasks: Sequence[PlannedTask], facts: dict[str, Any], pool: Pool, reporter: Reporter
) -> None:
    """Report the model and the plan of every task."""
    reporter.stage(
        f"{facts['n_layers']} layers, {facts['dtype']} on {pool.n_workers} x {facts['device']}, window of "
        f"{facts['window']} tokens"
    )
    for planned in tasks:
        longest = max(summary.n_prompt for summary in planned.summaries.values())
        reporter.stage(
            f"{planned.task.name}: {len(planned.examples)} examples in {len(planned.batches)} batches, prompts of up "
            f"to {longest} tokens, {planned.mode}"
        )

        verdicts = list(dict.fromkeys(map(str, planned.sharing.values())))
        for verdict in verdicts:
            names = [name for name, sharing in planned.sharing.items() if str(sharing) == verdict]
            # The tokens in a verdict are those of the batch that was tried.
            under = f" (under {', '.join(names)})" if len(verdicts) > 1 else ""
            reporter.stage(f"{planned.task.name}: {verdict}{under}")

        for note in planned.notes:
            reporter.stage(f"{planned.task.name}: {note}")


def _summarise_all(
    tasks: Sequence[PlannedTask], arms: Sequence[str], journal: Journal
) -> tuple[list[TaskResult], dict[str, LpesError]]:
    """Condense the answers to all tasks; a task that fails leaves the others their tables.

    Returns:
        The results, and the error of each task, or task under an arm, that has none.

    Raises:
        JournalError: The journal was edited.
    """
    summaries: list[TaskResult] = []
    failures: dict[str, LpesError] = {}
    for planned in tasks:
        try:
            summary, unanswered = _summarise(planned, arms, journal)
        except (TaskError, EvaluationError) as error:
            failures[planned.task.name] = error
        else:
            summaries.append(summary)
            failures |= unanswered
    return summaries, failures


def _summarise(
    planned: PlannedTask, arms: Sequence[str], journal: Journal
) -> tuple[TaskResult, dict[str, EvaluationError]]:
    """Condense the answers of all arms to one task; an arm that answered no example costs the others nothing.

    Returns:
        The result of the arms that answered, and the errors of the others.

    Raises:
        EvaluationError: The untouched model answered no example, so there is nothing to compare with.
        JournalError: The journal was edited.
        TaskError: The headline of the task fails on the scores.
    """
    task = planned.task
    planned_rows = {example.id: len(batch) for batch in planned.batches for example in batch}
    scored: dict[str, list[ScoredExample]] = {}
    unanswered: dict[str, EvaluationError] = {}
    n_smaller = dict.fromkeys(arms, 0)
    for arm in arms:
        scored[arm] = []
        for example in planned.examples:
            record = journal.get(answer_key(arm, task.name, example.id))
            if record is None:
                continue
            answer = read_answer(record, len(task.parts), journal.path)
            n_smaller[arm] += answer.n_rows < planned_rows[example.id]
            scored[arm].append(ScoredExample(example.id, example.position, example.source, answer.score))

        if not scored[arm]:
            first = answer_key(arm, task.name, planned.examples[0].id)
            why = str(last_failure(journal, first)).rstrip(".")
            error = EvaluationError(
                f"Expected an answer to an example of {task.name!r} under {arm}, but all {len(planned.examples)} "
                f"failed, first: {why}. Mend the cause and go on with --resume."
            )
            if arm == UNTOUCHED:
                raise error
            unanswered[f"{task.name} under {arm}"] = error

    arms = [arm for arm in arms if scored[arm]]
    notes = list(planned.notes)
    for arm in arms:
        n_failed = len(planned.examples) - len(scored[arm])
        if n_failed:
            notes.append(
                f"{arm}: {n_failed} examples have no answer; see the failures in {journal.path.name}"
            )
        if n_smaller[arm]:
            notes.append(
                f"{arm}: {n_smaller[arm]} examples were answered in smaller batches than planned, since a batch failed"
            )

    prompts = planned.summaries.values()
    result = TaskResult(
        name=task.name,
        metric=task.metric,
        larger_is_better=task.larger_is_better,
        mode=planned.mode,
        data=planned.data,
        n_examples=len(planned.examples),
        n_sources=len({example.source for example in planned.examples}),
        n_skipped=planned.n_skipped,
        n_cut=sum(prompt.n_cut > 0 for prompt in prompts),
        n_gold_lost=sum(prompt.gold_lost for prompt in prompts),
        n_with_unknown=sum(prompt.n_unknown > 0 for prompt in prompts),
        notes=notes,
        arms={
            arm: summarise_arm(
                headline_of(task),
                scored[arm],
                None if arm == UNTOUCHED else scored[UNTOUCHED],
                n_failed=len(planned.examples) - len(scored[arm]),
                n_in_smaller_batches=n_smaller[arm],
            )
            for arm in arms
        },
    )
    return result, unanswered


def _save_picture(task: TaskResult, folder: EvalFolder) -> None:
    """Write the picture of a task with positions."""
    from lpes_evo.reporting import save_figure

    save_figure(plot_task_positions(task), folder.picture(task.name))
