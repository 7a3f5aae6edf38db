"""Scores of finished prediction files, without a model."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lpes_evo.errors import JournalError, TaskError
from lpes_evo.evals._answers import ANSWERS_FORMAT, read_answer, split_answer_key
from lpes_evo.evals._statistics import score_interval
from lpes_evo.problems import (
    DataRecord,
    DataRequest,
    Example,
    Task,
    examples_of,
    headline_of,
    is_file,
    make_task,
    read_records,
    score_output,
    warnings_of,
)
from lpes_evo.problems.tasks import LEvalTask
from lpes_evo.storage import read_header, read_journal


@dataclass(frozen=True)
class PredictionScore:
    """The score of a prediction file.

    Attributes:
        task: Name of the task.
        metric: Name of the score.
        score: The headline score.
        low: Lower limit of its 95 % interval.
        high: Upper limit.
        interval: Name of the method that made the interval.
        n: Answers that were scored.
        n_missing: Examples of the task without an answer in the file.
        parts: Mean of each number that the metric gives.
        positions: Score, limits and number of answers at each gold position; empty where the task has none.
        warnings: Reasons why the score may mislead.
    """

    task: str
    metric: str
    score: float
    low: float
    high: float
    interval: str
    n: int
    n_missing: int
    parts: dict[str, float]
    positions: dict[float, dict[str, float]]
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON can hold them."""
        fields = asdict(self)
        fields["positions"] = {str(position): row for position, row in self.positions.items()}
        return fields


def score_predictions(
    task: str | Task,
    file: Path,
    request: DataRequest | None = None,
    *,
    partial: bool = False,
    system: str | None = None,
) -> PredictionScore:
    """Score a prediction file.

    Args:
        task: The task, or its name for `make_task`.
        file: JSON lines: L-Eval's own format (``gt``, ``SYSTEM_pred``, ``evaluation``) for its tasks, which needs no
            data; for every task, the ``answers.jsonl`` of an evaluation, or lines with the ``id`` of an example and
            the ``output``.
        request: The data that the file answers; the same as when it was made. Nothing for L-Eval's own format.
        partial: Whether examples without an answer are left out and counted instead of refused.
        system: Whose answers are scored, where a file in L-Eval's own format holds those of several systems, or an
            evaluation those of several arms.

    Returns:
        The score.

    Raises:
        TaskError: The file or the data is malformed, an id is unknown or given twice, an answer is missing, the task
            generates nothing, or an argument does not go with the format of the file.
    """
    made = make_task(task) if isinstance(task, str) else task
    if made.kind != "generate":
        raise TaskError(
            f"Expected a task whose answers are texts, but {made.name} takes the likelihood of one. Use lpes-evo eval."
        )
    if not is_file(file):
        raise TaskError(f"Expected a file of predictions, but there is no file {file}.")

    if _is_evaluation(file):
        examples = examples_of(made, request or DataRequest())
        known = {example.id for example in examples}
        return _scored(made, examples, _answered(file, known, made.name, system), file, partial)

    records = read_records(file)
    if isinstance(made, LEvalTask) and "gt" in records[0].fields:
        if request is not None or partial:
            raise TaskError(
                f"Expected no data, positions, limit, seed or --partial with {file}, since a file in L-Eval's own "
                "format holds its references and is scored whole. Leave them out."
            )
        pairs = [(answer.example, answer.output) for answer in made.answers(file, system)]
        return _score(made, pairs, 0)
    if system is not None:
        raise TaskError(
            f"Expected --system only with a file in L-Eval's own format or the answers of an evaluation, but {file} is "
            "another. Leave it out."
        )
    examples = examples_of(made, request or DataRequest())
    outputs = _outputs(records, {example.id for example in examples}, made.name)
    return _scored(made, examples, outputs, file, partial)


def _is_evaluation(file: Path) -> bool:
    """Return whether a file is the journal of an evaluation, by its first line."""
    try:
        return read_header(file).get("format") == ANSWERS_FORMAT
    except JournalError:
        # Lines of another kind; what is wrong with them is said where they are read.
        return False


def _scored(
    made: Task, examples: Sequence[Example], outputs: dict[str, str], file: Path, partial: bool
) -> PredictionScore:
    """Score the outputs, or refuse a file that lacks some."""
    missing = [example.id for example in examples if example.id not in outputs]
    if missing and not partial:
        raise TaskError(
            f"Expected an output for each of the {len(examples)} examples of {made.name}, but {file} lacks "
            f"{len(missing)}, first {missing[0]!r}. Give the positions, limit and seed it was made with, or --partial."
        )
    pairs = [(example, outputs[example.id]) for example in examples if example.id in outputs]
    return _score(made, pairs, len(missing))


def _outputs(records: Sequence[DataRecord], known: set[str], task: str) -> dict[str, str]:
    """Return the output to each example of a file of lines with ids.

    Raises:
        TaskError: A line is malformed, or has an id that is unknown or comes twice.
    """
    outputs: dict[str, str] = {}
    for record in records:
        key, output = record.text("id"), record.get("output")
        if not isinstance(output, str):
            raise record.error("hold text in the field 'output'", f"it holds {output!r:.60}")
        if key not in known:
            raise record.error(
                f"have the id of an example of {task}, such as {min(known)!r}",
                f"it has {key!r:.80}",
                "Give the data, positions, limit and seed that the file was made with.",
            )
        if key in outputs:
            raise record.error("have an id of its own", f"{key!r:.80} stands in an earlier line too")

        outputs[key] = output
    return outputs


def _answered(file: Path, known: set[str], task: str, arm: str | None) -> dict[str, str]:
    """Return the outputs of one arm to one task from the journal of an evaluation, by example.

    Failures stand in the journal too, under keys of their own; their examples are missing until they are answered. A
    torn last line, left by a kill, is an answer that is missing.

    Raises:
        JournalError: A line was edited or damaged.
        TaskError: The journal has no such answers, or those of other examples.
    """
    by_arm: dict[str, dict[str, str]] = {}
    for key, record in read_journal(file, kind=ANSWERS_FORMAT).records.items():
        place = split_answer_key(key)
        if place is None or place[1] != task:
            continue
        output = read_answer(record, None, file).output
        if output is None:
            raise TaskError(
                f"Expected the answer under {key!r:.80} of {file} to be text, but got {output!r:.60}. Answers of a "
                "likelihood task are not scored again."
            )
        by_arm.setdefault(place[0], {})[place[2]] = output

    chosen = arm if arm is not None else next(iter(by_arm), None)
    if chosen not in by_arm or (arm is None and len(by_arm) > 1):
        raise TaskError(
            f"Expected answers to {task} under one arm of {file}, but it has those of {', '.join(by_arm)}. Name one "
            "with --system."
            if by_arm
            else f"Expected answers to {task}, but {file} has none. Name a task that the evaluation asked."
        )
    outputs = by_arm[chosen]
    strange = next((id_ for id_ in outputs if id_ not in known), None)
    if strange is not None:
        raise TaskError(
            f"Expected the answers of {file} to belong to the examples of {task}, but it has one to {strange!r:.80}. "
            "Give the data, positions, limit and seed that the evaluation was made with."
        )
    return outputs


def _score(task: Task, pairs: Sequence[tuple[Example, str]], n_missing: int) -> PredictionScore:
    """Score the outputs to examples, overall and by gold position."""
    scores = np.array([score_output(task, output, example) for example, output in pairs], dtype=np.float64)
    examples = [example for example, _ in pairs]
    sources = [example.source for example in examples]
    headline = headline_of(task)
    score, low, high, interval = score_interval(headline, scores, sources)

    positions = {}
    for position in sorted({example.position for example in examples if example.position is not None}):
        chosen = [index for index, example in enumerate(examples) if example.position == position]
        mean, lower, upper, _ = score_interval(headline, scores[chosen], [sources[index] for index in chosen])
        positions[position] = {"score": mean, "low": lower, "high": upper, "n": len(chosen)}

    return PredictionScore(
        task=task.name,
        metric=task.metric,
        score=score,
        low=low,
        high=high,
        interval=interval,
        n=len(pairs),
        n_missing=n_missing,
        parts=dict(zip(task.parts, map(float, scores.mean(axis=0)), strict=True)),
        positions=positions,
        warnings=tuple(warnings_of(task, examples)),
    )
