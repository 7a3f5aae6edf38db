"""Comparison of two evaluations, example by example on the same data."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lpes_evo.errors import JournalError
from lpes_evo.evals._answers import ANSWERS_FORMAT, answer_key, failure_key, read_answer
from lpes_evo.evals._arms import make_arms
from lpes_evo.evals._folder import EvalFolder
from lpes_evo.evals._lm_tasks import macro_headline, read_lm_score, scored_questions
from lpes_evo.evals._plan import DrawnTask, draw_tasks
from lpes_evo.evals._results import Difference, TaskResult, load_results
from lpes_evo.evals._statistics import ScoredExample, difference
from lpes_evo.evals._unseen import seen_sources
from lpes_evo.problems import evaluation_hash, headline_of
from lpes_evo.scales import load_scales
from lpes_evo.storage import read_journal


@dataclass(frozen=True)
class Comparison:
    """One arm on one task in two evaluations.

    Attributes:
        task: Name of the task.
        arm: Name of the arm.
        here: Score of the first evaluation.
        there: Score of the second.
        same_data: Whether both asked the same examples.
        difference: First minus second on the same examples; ``None`` where the data differ.
    """

    task: str
    arm: str
    here: float
    there: float
    same_data: bool
    difference: Difference | None


def compare_evaluations(folder: EvalFolder, other: EvalFolder, *, force: bool = False) -> list[Comparison]:
    """Compare every arm and task that two finished evaluations share, example by example.

    Args:
        folder: The first evaluation; its data files must still be there.
        other: The second, of another model for example.
        force: Whether scores of different data may stand side by side, without interval and test.

    Returns:
        One comparison for each task and arm of both.

    Raises:
        JournalError: An evaluation is unfinished or damaged, they share no task and arm, their data differ and
            ``force`` is not set, or the data of the first have changed since.
        TaskError: The data of the first evaluation are missing.
    """
    here, there = load_results(folder.path), load_results(other.path)
    theirs = {task.name: task for task in there.tasks}
    shared = [(task, theirs[task.name]) for task in here.tasks if task.name in theirs]

    differing = [mine.name for mine, their in shared if mine.data != their.data]
    if differing and not force:
        first = differing[0]
        mine, their = next(pair for pair in shared if pair[0].name == first)
        raise JournalError(
            f"Expected scores of the same data, but the data of {', '.join(differing)} differ: {mine.data[:12]} in "
            f"{folder.path} and {their.data[:12]} in {other.path} for {first}. Use equal --data, --positions, --limit "
            "and --seed, and judge scales of several searches in one evaluation with --methods lpes:RUN,lpes:RUN; or "
            "--force to see the scores side by side."
        )

    ways = [_way(place) for place in (folder, other)]
    differing = [name for name in ways[0] if ways[0][name] != ways[1][name]]
    if differing and not force:
        mine_and_theirs = (", ".join(f"{name} {way[name]}" for name in differing) for way in ways)
        raise JournalError(
            f"Expected scores that were asked for in one way, but {folder.path} has "
            f"{f' and {other.path} has '.join(mine_and_theirs)}. Use equal options, or --force to compare them all the "
            "same."
        )

    drawn = {task.task.name: task for task in _draw(folder)} if shared else {}
    records = [
        read_journal(place.answers, kind=ANSWERS_FORMAT).records if shared else {}
        for place in (folder, other)
    ]

    found = [
        _compare(mine, their, arm, drawn.get(mine.name), folder, other, records)
        for mine, their in shared
        for arm in mine.arms
        if arm in their.arms
    ]

    if not found:
        raise JournalError(
            f"Expected a task and an arm in both {folder.path} and {other.path}, but they share none."
        )
    return found


def _draw(folder: EvalFolder) -> list[DrawnTask]:
    """Draw the examples of an evaluation again, without what the search of its scales saw."""
    config = folder.load_config()
    scales = None if config.scales is None else load_scales(folder.scales)
    return draw_tasks(config, seen_sources(make_arms(scales, config.methods)))[0]


def _way(folder: EvalFolder) -> dict[str, Any]:
    """Return the options, beside the data, that change the questions to a model."""
    config = folder.load_config()
    return {
        name: getattr(config, name)
        for name in ("teacher_forcing", "over_length", "max_length", "chat_template")
    }


def _compare(
    mine: TaskResult,
    their: TaskResult,
    arm: str,
    drawn: DrawnTask | None,
    folder: EvalFolder,
    other: EvalFolder,
    records: list[dict[str, dict[str, Any]]],
) -> Comparison:
    """Compare an arm on a task of two evaluations.

    Raises:
        JournalError: The data of the first have changed since, or a journal was edited.
        TaskError: The headline of the task fails on the scores.
    """
    found = None
    same = mine.data == their.data
    if same and drawn is not None:
        _check_unchanged(mine, drawn, folder, arm, records[0])

    if same:
        sides = [
            _scored(place.answers, lines, arm, mine.name, drawn)
            for place, lines in zip((folder, other), records, strict=True)
        ]
        headline = macro_headline if drawn is None else headline_of(drawn.task)
        found = difference(headline, sides[0], sides[1])
    return Comparison(
        mine.name, arm, mine.arms[arm].overall.score, their.arms[arm].overall.score, same, found
    )


def _check_unchanged(
    mine: TaskResult,
    drawn: DrawnTask,
    folder: EvalFolder,
    arm: str,
    records: dict[str, dict[str, Any]],
) -> None:
    """Check that the examples drawn now are those that were asked; their sources come from them."""
    keys = {example.id: answer_key(arm, mine.name, example.id) for example in drawn.examples}
    asked = [
        example
        for example in drawn.examples
        if keys[example.id] in records or failure_key(keys[example.id], 1) in records
    ]
    if evaluation_hash(asked) != mine.data:
        raise JournalError(
            f"Expected the data of {mine.name!r} to be as they were when {folder.path} was made, but they have changed "
            "since. Restore the files, or evaluate anew."
        )


def _scored(
    path: Path, records: dict[str, dict[str, Any]], arm: str, task: str, drawn: DrawnTask | None
) -> list[ScoredExample]:
    """Return the scores of an arm on a task, from the lines of a journal."""
    if drawn is None:
        return scored_questions(read_lm_score(records.get, arm, task, path))
    found = []
    for example in drawn.examples:
        record = records.get(answer_key(arm, task, example.id))
        if record is not None:
            answer = read_answer(record, len(drawn.task.parts), path)
            found.append(ScoredExample(example.id, example.position, example.source, answer.score))
    return found
