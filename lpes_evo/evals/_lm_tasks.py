"""Tasks of lm-evaluation-harness in an evaluation: one work item for each arm and task."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import model_validator

from lpes_evo.errors import JournalError, LpesError
from lpes_evo.evals._answers import work_key
from lpes_evo.evals._arms import Arm
from lpes_evo.evals._config import EvalConfig
from lpes_evo.evals._results import TaskResult
from lpes_evo.evals._statistics import ScoredExample, summarise_arm
from lpes_evo.evals._target import EvalTarget
from lpes_evo.evals.harness import HarnessScore
from lpes_evo.reporting import Reporter, interval_text
from lpes_evo.statistics import macro_average
from lpes_evo.storage import Journal, Record
from lpes_evo.workers import Pool


def run_lm_task(target: EvalTarget, arm: Arm, task: str, config: EvalConfig) -> dict[str, Any]:
    """Run a task of the harness on the model under an arm.

    Args:
        target: The model.
        arm: The arm that it is under.
        task: Name of the task.
        config: The evaluation: its limit holds for each subject, and its data folder may hold task files.

    Returns:
        The fields of its `lpes_evo.evals.harness.HarnessScore`.

    Raises:
        ConfigError: lm-eval is not installed.
        TaskError: The task is unknown, its data cannot be read, or a label is missing.
    """
    from lpes_evo.evals.harness import run_harness

    with arm.apply(target.loaded):
        score = run_harness(
            target.loaded,
            None,
            [task],
            limit=config.limit,
            n_shots=config.shots,
            include_path=None if config.data is None else Path(config.data),
        )[task]
    return asdict(score)


def collect_lm_scores(
    pool: Pool,
    arms: Sequence[Arm],
    tasks: Sequence[str],
    config: EvalConfig,
    journal: Journal,
    reporter: Reporter,
) -> dict[str, LpesError]:
    """Run the tasks that the journal does not hold yet; a task under an arm is one line there.

    A task that cannot be run leaves the others to their work.

    Args:
        pool: Workers that hold the model.
        arms: The arms.
        tasks: Names of the tasks.
        config: The evaluation.
        journal: The journal that keeps the scores.
        reporter: Reports the progress.

    Returns:
        The error of each task that could not be run, by its name.

    Raises:
        StorageError: The journal cannot be written.
    """
    pairs = {
        pool.submit(run_lm_task, arm, task, config, label=f"{task} under {arm.name}", limited=False): (
            arm,
            task,
        )
        for task in tasks
        for arm in arms
        if journal.get(work_key(arm.name, task)) is None
    }

    failures: dict[str, LpesError] = {}
    for _ in range(len(pairs)):
        completion = pool.wait()
        arm, task = pairs[completion.ticket]
        if completion.failure is not None:
            failures.setdefault(task, completion.failure.to_error(f"{task!r} to run under {arm.name}"))
            reporter.stage(f"{task} under {arm.name}: failed")
            continue
        journal.append(work_key(arm.name, task), {"harness": completion.value})
        reporter.stage(f"{task} under {arm.name}: macro average {completion.value['macro']:.4f}")
    return failures


def summarise_lm_task(
    task: str, arms: Mapping[str, dict[str, Any]], base: str, journal: Journal
) -> TaskResult:
    """Condense the scores of all arms on one task.

    Args:
        task: Name of the task.
        arms: The arms by name.
        base: Name of the arm the others are compared with.
        journal: The journal that keeps the scores.

    Returns:
        The result; the score is the mean over subjects of their means.

    Raises:
        JournalError: The journal was edited, or the arms were asked different questions.
    """
    scores = {name: read_lm_score(journal.get, name, task, journal.path) for name in arms}
    if len({score["prompt_sha256"] for score in scores.values()}) > 1:
        raise JournalError(
            f"Expected the same prompts of {task!r} under every arm, but they differ. Move {journal.path} away and "
            "start anew."
        )

    scored = {name: scored_questions(score) for name, score in scores.items()}
    first = scores[base]
    results = {}
    for name, score in scores.items():
        result = summarise_arm(
            macro_headline,
            scored[name],
            None if name == base else scored[base],
            n_failed=0,
            n_in_smaller_batches=0,
        )
        low, high = score["macro_interval"]
        overall = result.overall.model_copy(
            update={"low": low, "high": high, "interval": "combined over subjects"}
        )
        results[name] = result.model_copy(update={"overall": overall})

    shots = "its own number of" if first["n_shots"] is None else first["n_shots"]
    micro = ", ".join(
        f"{name} {interval_text(score['micro'], score['micro_interval'][0], score['micro_interval'][1], '.4f')}"
        for name, score in scores.items()
    )

    return TaskResult(
        name=task,
        metric=f"macro average of {first['metric']}",
        larger_is_better=True,
        mode="lm-evaluation-harness",
        data=first["data_sha256"],
        n_examples=first["n"],
        n_sources=first["n"],
        n_skipped=0,
        n_cut=first["n_cut"],
        n_gold_lost=0,
        n_with_unknown=0,
        notes=[f"micro average: {micro}", f"{shots} shots; {first['prompt']}"],
        arms=results,
    )


def macro_headline(scores: npt.NDArray[np.float64]) -> float:
    """Return the mean over subjects of their means.

    Args:
        scores: Value and number of the subject of each question, ``(n_questions, 2)``.

    Returns:
        The mean.
    """
    return macro_average(scores[:, 0], scores[:, 1].tolist())


def scored_questions(score: dict[str, Any]) -> list[ScoredExample]:
    """Return the scores of the questions, with the number of their subject as second part.

    Args:
        score: The fields that `read_lm_score` gave.

    Returns:
        The scores, in the order of the harness.
    """
    subjects = sorted({key.partition("/")[0] for key in score["values"]})
    numbers = {subject: float(number) for number, subject in enumerate(subjects)}
    return [
        ScoredExample(key, None, key, (float(value), numbers[key.partition("/")[0]]))
        for key, value in score["values"].items()
    ]


def read_lm_score(
    get: Callable[[str], dict[str, Any] | None], arm: str, task: str, path: Path
) -> dict[str, Any]:
    """Check the line of a journal that holds the score of an arm on a task.

    Args:
        get: Returns the line of a key, such as `Journal.get`.
        arm: Name of the arm.
        task: Name of the task.
        path: The file, for messages.

    Returns:
        The fields of the score.

    Raises:
        JournalError: It was edited.
    """
    key = work_key(arm, task)
    record = get(key)
    if record is None:
        raise JournalError(
            f"Expected the scores of {task!r} under {arm} in {path}, but there are none. The file was edited; restore "
            "it or start a new evaluation."
        )
    HarnessLine.of(record, f"the scores of {task!r} under {arm} in {path}")
    return record["harness"]  # type: ignore[no-any-return]


class HarnessLine(Record):
    """A line of ``answers.jsonl`` with the score of a task of lm-evaluation-harness under an arm.

    Attributes:
        key: The key, see `work_key`.
        harness: The score.
    """

    WHAT: ClassVar[str] = "a score of lm-evaluation-harness"
    REMEDY: ClassVar[str] = "The file was edited; restore it or start a new evaluation."

    key: str
    harness: HarnessScore

    @model_validator(mode="after")
    def _has_questions(self) -> "HarnessLine":
        """Refuse a score of no question."""
        if not self.harness.values:
            raise ValueError("it has the score of no question")
        return self
