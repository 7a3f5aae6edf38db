"""HarnessScore: means over the subjects of a task and over its questions, with their intervals."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lpes_evo.statistics import Interval, combined_interval, mean_interval, wilson_interval


@dataclass(frozen=True)
class SubjectScore:
    """Score of one subject of a task, such as ``mmlu_anatomy``.

    Attributes:
        mean: Mean over its questions.
        interval: Limits of the 95 % interval: Wilson's where every question scores 0 or 1, else a bootstrap.
        stderr: Standard error of the mean; ``None`` with a single question, which tells nothing about the spread.
        n: Number of questions.
        n_shots: Solved examples in the prompt.
    """

    mean: float
    interval: tuple[float, float]
    stderr: float | None
    n: int
    n_shots: int


@dataclass(frozen=True)
class HarnessScore:
    """Score of one task of the harness.

    Attributes:
        task: Name of the task, as it was asked for.
        metric: Metric of a question, such as ``acc``.
        filter: Name of the harness's way to read an answer; ``none`` for multiple choice.
        macro: Mean over the subjects' means, the headline; that of the questions where a task has one subject.
        macro_interval: Limits of its 95 % interval.
        macro_stderr: Its standard error; ``None`` where a subject has a single question.
        micro: Mean over all questions.
        micro_interval: Limits of its 95 % interval, as if all questions were of one subject.
        micro_stderr: Its standard error under the same view; ``None`` with a single question.
        n: Number of questions.
        n_cut: Questions whose prompt was longer than the window, so that the harness dropped its beginning.
        n_shots: Solved examples in the prompt; ``None`` where subjects differ, see `subjects`.
        prompt: Description of the prompt: task version, chat template, version of the harness.
        prompt_sha256: Hash of all prompts as the model saw them; equal when two runs asked the same.
        data_sha256: Hash of all questions with their labels.
        scales: Position divisor of each layer, ``(n_layers,)``; ``None`` for the untouched model.
        subjects: Scores of the subjects.
        values: Score of every question, by subject, number and hash of the question, for paired comparisons.
    """

    task: str
    metric: str
    filter: str
    macro: float
    macro_interval: tuple[float, float]
    macro_stderr: float | None
    micro: float
    micro_interval: tuple[float, float]
    micro_stderr: float | None
    n: int
    n_cut: int
    n_shots: int | None
    prompt: str
    prompt_sha256: str
    data_sha256: str
    scales: tuple[float, ...] | None
    subjects: dict[str, SubjectScore]
    values: dict[str, float]


def score_subject(values: Sequence[float], n_shots: int) -> SubjectScore:
    """Condense the scores of the questions of one subject.

    Args:
        values: Score of each question, ``(n_questions,)``.
        n_shots: Solved examples in the prompt.

    Returns:
        The score.
    """
    array = np.asarray(values, dtype=np.float64)
    if np.isin(array, (0.0, 1.0)).all():
        interval = wilson_interval(int(array.sum()), array.size)
    else:
        interval = mean_interval(array)[1:]
    stderr = float(array.std(ddof=1)) / math.sqrt(array.size) if array.size > 1 else None
    return SubjectScore(float(array.mean()), interval, stderr, array.size, n_shots)


def macro_average(subjects: Mapping[str, SubjectScore]) -> SubjectScore:
    """Return the mean over subjects, each of the same weight, as if it were a subject.

    The limits combine those of the subjects, see `lpes_evo.statistics.combined_interval`.

    Args:
        subjects: Scores of the subjects.

    Returns:
        Mean, interval and standard error; the numbers of questions are added up.
    """
    scores = list(subjects.values())
    mean, low, high = combined_interval([Interval(score.mean, *score.interval) for score in scores])
    errors = [score.stderr for score in scores if score.stderr is not None]

    return SubjectScore(
        mean,
        (low, high),
        math.hypot(*errors) / len(scores) if len(errors) == len(scores) else None,
        sum(score.n for score in scores),
        scores[0].n_shots,
    )
