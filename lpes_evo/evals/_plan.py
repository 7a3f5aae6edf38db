"""The plan of an evaluation: the examples of every task, the way in which they are answered, and their batches."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lpes_evo.errors import TaskError
from lpes_evo.evals._arms import Arm
from lpes_evo.evals._config import EvalConfig
from lpes_evo.evals._target import encode_prompts, try_sharing
from lpes_evo.evals.harness import is_harness_task
from lpes_evo.problems import (
    NOTHING_ALIKE,
    DataRequest,
    Example,
    Mode,
    PromptSummary,
    Sharing,
    Task,
    evaluation_hash,
    examples_of,
    make_task,
    warnings_of,
)
from lpes_evo.workers import Pool

# Texts of one message to a worker.
_CHUNK = 64
# Documents hold a rare letter now and then; more than this is a model that cannot read the task.
_MOST_UNKNOWN = 0.01


@dataclass(frozen=True)
class DrawnTask:
    """A task with its examples, before a model is loaded.

    Attributes:
        task: The task.
        examples: The examples.
        mode: The way in which they are answered.
    """

    task: Task
    examples: tuple[Example, ...]
    mode: Mode


@dataclass(frozen=True)
class PlannedTask:
    """A task with the examples that a model is asked, and the batches it answers them in.

    Batches depend on the examples alone, so all arms meet an example in the same company: in half precision, where
    the shape of a batch shows in its results, they stay comparable.

    Attributes:
        task: The task.
        mode: The way in which the examples are answered.
        examples: The examples that fit, in the order of the task.
        batches: The same examples, longest first, in batches.
        sharing: By arm, whether questions about one text share a run over it; empty where nothing can be shared,
            as in generation.
        data: SHA-256 of the examples.
        n_skipped: Examples left out.
        summaries: The summary of each prompt, by id.
        notes: Notes for the reader of the scores, one line each.
    """

    task: Task
    mode: Mode
    examples: tuple[Example, ...]
    batches: tuple[tuple[Example, ...], ...]
    sharing: dict[str, Sharing]
    data: str
    n_skipped: int
    summaries: dict[str, PromptSummary]
    notes: tuple[str, ...]


def draw_tasks(
    config: EvalConfig, leave_out: frozenset[str] = frozenset()
) -> tuple[list[DrawnTask], list[str]]:
    """Make or read the examples of every task.

    Args:
        config: The evaluation.
        leave_out: Hashes of sources that the search of the scales saw; tasks that read files leave these out.

    Returns:
        The tasks of this package, and the names of those that lm-evaluation-harness runs.

    Raises:
        TaskError: A task is unknown, its data are missing or malformed, or two tasks are the same.
    """
    request = DataRequest(
        folder=None if config.data is None else Path(config.data),
        positions=config.positions,
        limit=config.limit,
        seed=config.seed,
        split="all",
        leave_out=leave_out,
    )

    drawn: list[DrawnTask] = []
    taken = {spec for spec in config.tasks if is_harness_task(spec)}
    for spec in config.tasks:
        if is_harness_task(spec):
            continue
        task = make_task(spec)
        if task.name in taken:
            raise TaskError(f"Expected every task once, but {spec!r} is {task.name!r} again. Leave one out.")
        taken.add(task.name)

        mode: Mode = "generation"
        if task.kind == "likelihood":
            mode = "likelihood"
        elif config.teacher_forcing and task.teacher_forcing:
            mode = "teacher forcing"

        examples = examples_of(task, request)
        _check(task, examples, mode)
        drawn.append(DrawnTask(task, examples, mode))
    return drawn, [spec for spec in config.tasks if is_harness_task(spec)]


def plan_task(
    pool: Pool, drawn: DrawnTask, config: EvalConfig, facts: dict[str, Any], arms: Sequence[Arm]
) -> PlannedTask:
    """Choose the examples that fit the model, put them into batches, and try whether these may share prefixes.

    Args:
        pool: Workers that hold the model.
        drawn: The task.
        config: The evaluation.
        facts: The facts about the model that `describe_target` gave.
        arms: The arms.

    Returns:
        The plan.

    Raises:
        TaskError: An example is too long and none may be skipped, all are, or the model does not know the words.
    """
    found: list[PromptSummary] = []
    for start in range(0, len(drawn.examples), _CHUNK):
        found += pool.call(encode_prompts, drawn.examples[start : start + _CHUNK], drawn.mode)

    name = drawn.task.name
    refused = [summary for summary in found if summary.refusal is not None]
    if refused and (config.over_length == "error" or len(refused) == len(found)):
        remedy = _remedy(drawn, config, [summary.id for summary in refused])
        raise TaskError(
            f"Expected examples of the task {name!r} that fit the model, but {len(refused)} of {len(found)} do not, "
            f"first {refused[0].id!r}: {refused[0].refusal}. {remedy}"
        )

    by_id = {summary.id: summary for summary in found if summary.refusal is None}
    n_unknown = sum(summary.n_unknown for summary in by_id.values())
    if n_unknown > _MOST_UNKNOWN * sum(summary.n_prompt for summary in by_id.values()):
        raise TaskError(
            f"Expected words that the model's tokenizer knows, but {n_unknown} tokens of the task {name!r} are unknown "
            "to it. Choose a task that suits the model; the embedded model knows only the task 'recall'."
        )

    kept = tuple(example for example in drawn.examples if example.id in by_id)
    budget = config.batch_tokens or facts["default_batch_tokens"]
    batches = _batches(kept, by_id, budget, by_source=drawn.mode == "teacher forcing")
    return PlannedTask(
        task=drawn.task,
        mode=drawn.mode,
        examples=kept,
        batches=batches,
        sharing=_sharing(pool, arms, batches, budget) if drawn.mode == "teacher forcing" else {},
        data=evaluation_hash(kept),
        n_skipped=len(refused),
        summaries=by_id,
        notes=_notes(drawn, config, kept, by_id, refused),
    )


def _remedy(drawn: DrawnTask, config: EvalConfig, refused: Sequence[str]) -> str:
    """Return the remedy for examples that do not fit the model."""
    may_be_cut = drawn.mode != "likelihood" and any(
        example.cut is not None for example in drawn.examples if example.id in set(refused)
    )
    are_all = len(refused) == len(drawn.examples)

    if may_be_cut and config.over_length != "cut":
        skip = "" if are_all else "Skip such examples with --over-length skip, or cut"
        return f"{skip or 'Cut'} their documents with --over-length cut."
    if not are_all:
        return "Skip such examples with --over-length skip; no part of them may be cut."
    if drawn.mode == "likelihood":
        return "Give texts of two tokens at least that fit the window of the model."
    return "Make the task smaller, or choose a model with a larger window."


def _check(task: Task, examples: Sequence[Example], mode: Mode) -> None:
    """Refuse examples that no run could answer.

    Raises:
        TaskError: There is one; the message names it.
    """
    for example in examples:
        if mode == "likelihood":
            sound, expected = (
                len(example.answers) == 1 and bool(example.answers[0].strip()),
                "one text to read",
            )
        elif mode == "teacher forcing":
            sound, expected = bool(example.answers and example.answers[0].strip()), "an answer"
        else:
            sound, expected = example.max_new_tokens >= 1, "room for an answer"

        if not sound or (mode != "likelihood" and not example.prompt.strip()):
            raise TaskError(
                f"Expected every example of the task {task.name!r} to have a prompt and {expected}, but "
                f"{example.id!r} has not. See its data file."
            )


def _batches(
    examples: Sequence[Example], summaries: dict[str, PromptSummary], budget: int, *, by_source: bool
) -> tuple[tuple[Example, ...], ...]:
    """Return batches of examples of similar length, longest first, so that a device that is too small fails at once.

    With ``by_source`` questions about one text stand together, so that they can share a run over it.
    """
    lengths = {example.id: _length(summaries[example.id]) for example in examples}
    texts = {example.id: example.source if by_source else example.id for example in examples}

    # Of equal keys the last counts, which is that of the longest example.
    longest = dict(sorted((texts[id_], length) for id_, length in lengths.items()))
    order = sorted(
        examples,
        key=lambda example: (
            -longest[texts[example.id]],
            texts[example.id],
            -lengths[example.id],
            example.id,
        ),
    )

    found: list[list[Example]] = []
    widest = (0, 0)
    for example in order:
        summary = summaries[example.id]
        wider = max(widest[0], summary.n_prompt), max(widest[1], summary.n_answer)
        if found and (len(found[-1]) + 1) * sum(wider) <= budget:
            found[-1].append(example)
            widest = wider
        else:
            found.append([example])
            widest = summary.n_prompt, summary.n_answer
    return tuple(tuple(batch) for batch in found)


def _sharing(
    pool: Pool, arms: Sequence[Arm], batches: Sequence[Sequence[Example]], budget: int
) -> dict[str, Sharing]:
    """Try on the longest text with several questions whether these may share a run over it, under every arm.

    One worker decides for all, so that scores do not depend on which worker answers a batch.
    """
    nothing = {arm.name: Sharing(False, NOTHING_ALIKE) for arm in arms}
    for batch in batches:
        if len({example.source for example in batch}) == len(batch):
            continue
        found: dict[str, Sharing] = pool.call(try_sharing, arms, batch, budget)
        if any(sharing.reason == NOTHING_ALIKE for sharing in found.values()):
            continue
        return found
    return nothing


def _length(summary: PromptSummary) -> int:
    """Return the tokens of a prompt and its answer."""
    return summary.n_prompt + summary.n_answer


def _notes(
    drawn: DrawnTask,
    config: EvalConfig,
    kept: Sequence[Example],
    summaries: dict[str, PromptSummary],
    refused: Sequence[PromptSummary],
) -> tuple[str, ...]:
    """Return the notes for the reader of the scores of a task."""
    notes = warnings_of(drawn.task, kept)
    if refused:
        notes.append(f"{len(refused)} examples were left out, first {refused[0].id!r}: {refused[0].refusal}")

    n_cut = sum(summary.n_cut > 0 for summary in summaries.values())
    if n_cut:
        n_lost = sum(summary.gold_lost for summary in summaries.values())
        notes.append(f"{n_cut} documents lost their middle; {n_lost} of them a part of the needed fact")

    n_unknown = sum(summary.n_unknown > 0 for summary in summaries.values())
    if n_unknown:
        notes.append(f"{n_unknown} examples have text that the tokenizer does not know")
    if len({example.source for example in kept}) == 1 and len(kept) > 1:
        notes.append("all examples come from one source: the intervals say nothing about other material")

    if drawn.mode == "teacher forcing":
        notes.append("teacher forcing: right where greedy decoding begins with the answer")
    elif config.teacher_forcing and drawn.mode == "generation":
        notes.append("answered by generation: the metric does not allow teacher forcing")
    return tuple(notes)
