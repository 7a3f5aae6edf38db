"""The answers of an evaluation: batches go to workers, and each answer is scored and appended to the journal."""

import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from lpes_evo.errors import EvaluationError, JournalError, TaskError
from lpes_evo.evals._arms import Arm
from lpes_evo.evals._plan import PlannedTask
from lpes_evo.evals._target import Answer, answer_batch
from lpes_evo.problems import Example, score_output
from lpes_evo.reporting import Reporter
from lpes_evo.storage import Journal, Record
from lpes_evo.workers import Pool

ANSWERS_FORMAT = "lpes-evo/answers"
"""The value under ``format`` in the header of the journal of an evaluation."""

_FAILURE = "failure "
# Failures in a row, without an answer between them, that mean the cause is not in the examples.
_MOST_FAILURES = 20


@dataclass(frozen=True)
class _Batch:
    """A batch on its way.

    Attributes:
        arm: The arm it is answered under.
        planned: Its task.
        examples: All of its examples.
        missing: Ids of those without an answer in the journal; the others keep them company, so that an answer
            does not depend on where a run was interrupted.
    """

    arm: Arm
    planned: PlannedTask
    examples: tuple[Example, ...]
    missing: frozenset[str]


def answer_key(arm: str, task: str, example_id: str) -> str:
    """Return the key of an answer in the journal; no other arm, task and example have it."""
    return f"{work_key(arm, task)}/{example_id}"


def work_key(arm: str, task: str) -> str:
    """Return the key of an arm and a task in the journal; slashes in names are escaped."""
    return "/".join(name.replace("%", "%25").replace("/", "%2F") for name in (arm, task))


def split_answer_key(key: str) -> tuple[str, str, str] | None:
    """Return the arm, the task and the example of `answer_key`; ``None`` for any other key, as that of a failure."""
    parts = key.split("/", 2)
    if len(parts) < 3 or key.startswith(_FAILURE):
        return None
    arm, task = (name.replace("%2F", "/").replace("%25", "%") for name in parts[:2])
    return arm, task, parts[2]


def collect_answers(
    pool: Pool,
    arms: Sequence[Arm],
    tasks: Sequence[PlannedTask],
    journal: Journal,
    reporter: Reporter,
    batch_tokens: int,
    limited: bool,
) -> None:
    """Answer and score what the journal does not hold yet.

    An example that fails is written down as failed and tried again when the evaluation is resumed.

    Args:
        pool: Workers that hold the model.
        arms: The arms.
        tasks: The tasks.
        journal: Where answers are kept.
        reporter: Reports the progress.
        batch_tokens: Tokens of one forward pass over long texts.
        limited: Whether the pool's limit of time holds for a batch. One that follows the work seen so far suits
            batches of one size, and the first of an evaluation are the longest.

    Raises:
        EvaluationError: Many examples in a row failed.
        StorageError: The journal cannot be written.
        LpesError: An arm does not go with the model, or no worker can be started.
    """
    waiting = list(_missing_batches(arms, tasks, journal))
    reporter.begin(sum(len(batch.missing) for batch in waiting))
    waiting.reverse()

    at_work: dict[int, _Batch] = {}
    n_failures = 0
    while waiting or at_work:
        # Examples cross to the workers as text, so only as many as keep all of them busy are on their way.
        while waiting and len(at_work) < 2 * pool.n_workers:
            batch = waiting.pop()
            ticket = pool.submit(
                answer_batch,
                batch.arm,
                batch.examples,
                batch.planned.mode,
                batch_tokens,
                bool(batch.planned.sharing.get(batch.arm.name)),
                limited=limited,
                label=f"{batch.arm.name} on {len(batch.examples)} examples of {batch.planned.task.name}",
            )
            at_work[ticket] = batch

        completion = pool.wait()
        batch = at_work.pop(completion.ticket)
        if completion.failure is not None and completion.failure.final:
            raise completion.failure.to_error()

        answers: dict[str, Answer] = {answer.id: answer for answer in completion.value or ()}
        n_failed = 0
        for example in batch.examples:
            if example.id not in batch.missing:
                continue
            if completion.failure is None:
                record = _record(batch.planned, example, answers[example.id])
            else:
                record = {"status": "failed", "error": completion.failure.traceback}

            failed = record["status"] == "failed"
            n_failures = n_failures + 1 if failed else 0
            n_failed += failed
            key = answer_key(batch.arm.name, batch.planned.task.name, example.id)
            journal.append(_new_failure_key(journal, key) if failed else key, record)

            if n_failures >= _MOST_FAILURES:
                raise EvaluationError(
                    f"Expected examples that can be answered, but {n_failures} in a row failed, last {example.id!r} "
                    f"under {batch.arm.name}: {_last_line(record['error'])}. Mend the cause and go on with --resume."
                )

        reporter.answered(
            f"{batch.arm.name} {batch.planned.task.name}", len(batch.missing) - n_failed, n_failed
        )


def _missing_batches(arms: Sequence[Arm], tasks: Sequence[PlannedTask], journal: Journal) -> Iterator[_Batch]:
    """Yield batches with missing answers; arms take turns, so that an interrupted run has pairs to compare."""
    for planned in tasks:
        for examples in planned.batches:
            for arm in arms:
                missing = frozenset(
                    example.id
                    for example in examples
                    if journal.get(answer_key(arm.name, planned.task.name, example.id)) is None
                )
                if missing:
                    yield _Batch(arm, planned, examples, missing)


def _record(planned: PlannedTask, example: Example, answer: Answer) -> dict[str, Any]:
    """Score an answer and return its record for the journal."""
    record: dict[str, Any] = {
        "status": "ok",
        "prompt": answer.prompt_hash,
        "n_prompt": answer.n_prompt,
        "n_cut": answer.n_cut,
        "gold_lost": answer.gold_lost,
        "n_rows": answer.n_rows,
        "output": answer.output,
        "n_output": answer.n_output,
    }
    if answer.nats is not None:
        record["nats"] = answer.nats

    error = answer.error
    if error is None:
        try:
            if planned.mode == "likelihood":
                record["score"] = [float(answer.nats or 0.0), float(answer.n_output)]
            else:
                record["score"] = list(score_output(planned.task, answer.output or "", example))
        except TaskError:  # a metric of a user must not end an evaluation of hours
            error = traceback.format_exc()
    return record if error is None else record | {"status": "failed", "error": error}


def failure_key(key: str, number: int) -> str:
    """Return the key of a failure of an answer by its number from 1; the answer itself stays missing."""
    return f"{_FAILURE}{number} of {key}"


def _new_failure_key(journal: Journal, key: str) -> str:
    """Return the key of the next failure of an answer."""
    number = 1
    while journal.get(failure_key(key, number)) is not None:
        number += 1
    return failure_key(key, number)


def last_failure(journal: Journal, key: str) -> str | None:
    """Return the last line of the newest failure of an answer, or ``None`` where there is none."""
    found, number = None, 1
    while (record := journal.get(failure_key(key, number))) is not None:
        found, number = _last_line(str(record.get("error"))), number + 1
    return found


def _last_line(trouble: str) -> str:
    """Return the last line of a traceback."""
    return (trouble.strip().splitlines() or [""])[-1]


class AnswerRecord(Record):
    """A line of ``answers.jsonl`` with an answer to an example under an arm.

    Attributes:
        key: The key, see `answer_key`.
        status: ``"ok"``.
        prompt: Hash of the prompt as the model saw it.
        n_prompt: Tokens of the prompt.
        n_cut: Tokens that were cut out of the document.
        gold_lost: Whether a part of the needed fact was cut out.
        n_rows: Examples that were answered together.
        output: The text; ``None`` where none was generated.
        n_output: Tokens of the text.
        nats: Log-probability of the text, where it was taken.
        score: The numbers of the metric.
    """

    WHAT: ClassVar[str] = "an answer"
    REMEDY: ClassVar[str] = "The file was edited; restore it or start a new evaluation."

    key: str
    status: Literal["ok"]
    prompt: str
    n_prompt: NonNegativeInt
    n_cut: NonNegativeInt
    gold_lost: bool
    n_rows: PositiveInt
    output: str | None
    n_output: NonNegativeInt
    nats: float | None = None
    score: Annotated[tuple[float, ...], Field(min_length=1)]


def read_answer(record: dict[str, Any], n_parts: int | None, path: Path) -> AnswerRecord:
    """Check the line of an answer in the journal.

    Args:
        record: The line.
        n_parts: Number of parts of its score; ``None`` for any number.
        path: The file, for messages.

    Returns:
        The answer.

    Raises:
        JournalError: The line was edited.
    """
    answer = AnswerRecord.of(record, f"the line of key {str(record.get('key'))[:80]!r} in {path}")
    if n_parts is not None and len(answer.score) != n_parts:
        raise JournalError(
            f"Expected {n_parts} numbers as score under {answer.key!r} in {path}, but got {len(answer.score)}. "
            f"{AnswerRecord.REMEDY}"
        )
    return answer
