"""ZeroSCROLLS (https://arxiv.org/abs/2305.14196): ten tasks over long texts, asked without examples."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lpes_evo.errors import TaskError
from lpes_evo.problems._data import DataRecord, choose, find_files, load_hub, read_records
from lpes_evo.problems._example import Example
from lpes_evo.problems._splits import divide
from lpes_evo.problems._task import DataRequest, Task
from lpes_evo.problems.metrics import (
    concordance_index,
    exponential_similarity,
    geometric_mean,
    has_rouge_words,
    letter_accuracy,
    listed_numbers,
    normalize_answer,
    option_letter,
    percentage,
    rouge,
    token_f1,
)

HUB = "tau/zero_scrolls"


@dataclass(frozen=True)
class _Metric:
    """The metric of a task.

    Attributes:
        name: Name of the score.
        score: Function that scores an output against references.
        is_reference: Whether a text can be a reference; others are refused.
        reference: Description of such a text.
        parts: Names of the numbers that ``score`` gives.
        counts: Whether an output can score above 0 with a reference.
        lack: The part that the others lack.
    """

    name: str
    score: Callable[[str, tuple[str, ...]], tuple[float, ...]]
    is_reference: Callable[[str], bool] = bool
    reference: str = "text"
    parts: tuple[str, ...] = ("score",)
    counts: Callable[[str], bool] = bool
    lack: str = "text"


def _has_words(text: str) -> bool:
    """Return whether a text has words but articles."""
    return bool(normalize_answer(text))


def _f1(output: str, answers: tuple[str, ...]) -> tuple[float, ...]:
    """Return the F1 of words, with other letters spelled in ASCII as the only part of a score."""
    return (token_f1(output, answers, ascii_only=True),)


def _accuracy(output: str, answers: tuple[str, ...]) -> tuple[float, ...]:
    """Return the accuracy of the chosen letter as the only part of a score."""
    return (letter_accuracy(output, answers),)


def _similarity(output: str, answers: tuple[str, ...]) -> tuple[float, ...]:
    """Return the similarity of percentages as the only part of a score."""
    return (exponential_similarity(output, answers),)


def _concordance(output: str, answers: tuple[str, ...]) -> tuple[float, ...]:
    """Return the concordance index as the only part of a score."""
    return (concordance_index(output, answers),)


def _has_letter(text: str) -> bool:
    """Return whether a text has an option letter."""
    return option_letter(text) is not None


def _has_percentage(text: str) -> bool:
    """Return whether a text has a percentage."""
    return percentage(text) is not None


def _is_order(text: str) -> bool:
    """Return whether a text lists the numbers from 1 on, each once."""
    numbers = listed_numbers(text)
    return bool(numbers) and sorted(numbers) == list(range(1, len(numbers) + 1))


_ROUGE = _Metric(
    "ROUGE geometric mean",
    rouge,
    parts=("ROUGE-1", "ROUGE-2", "ROUGE-L"),
    counts=has_rouge_words,
    lack="word of Latin letters or digits",
)
_F1 = _Metric("F1", _f1, counts=_has_words, lack="word but articles")
_ACCURACY = _Metric("accuracy", _accuracy, _has_letter, "a letter from A to D")
_SIMILARITY = _Metric("exponential similarity", _similarity, _has_percentage, "a percentage such as 62%")
_CONCORDANCE = _Metric("concordance index", _concordance, _is_order, "an order of the numbers from 1 on")

ZEROSCROLLS_TASKS: dict[str, tuple[_Metric, int]] = {
    "gov_report": (_ROUGE, 1024),
    "summ_screen_fd": (_ROUGE, 512),
    "qmsum": (_ROUGE, 512),
    "squality": (_ROUGE, 512),
    "qasper": (_F1, 128),
    "narrative_qa": (_F1, 64),
    "quality": (_ACCURACY, 10),
    "musique": (_F1, 32),
    "space_digest": (_SIMILARITY, 36),
    "book_sum_sort": (_CONCORDANCE, 256),
}
"""Metric of each task, and the most tokens of an answer, as the released runner sets them."""


class ZeroScrollsTask(Task):
    """One task of ZeroSCROLLS, scored in percent as the released metric does.

    Reads ``NAME.zip`` with ``SPLIT.jsonl`` in it, ``NAME/SPLIT.jsonl``, or Parquet files ``NAME/SPLIT-*.parquet``. Rows
    that share an id are one question with several references. The input is shown as it is; the document alone may be
    cut, so that instruction and question stay. Examples about one document share their source.

    Args:
        variant: Name of the task, one of `ZEROSCROLLS_TASKS`.
        test: Whether to read the test split instead of the validation split.
        hub: Whether to load the Parquet revision from the hub instead of a local file.

    Raises:
        TaskError: The variant is unknown.
    """

    splits_sources = True

    def __init__(self, variant: str, *, test: bool = False, hub: bool = False) -> None:
        if variant not in ZEROSCROLLS_TASKS:
            raise TaskError(
                f"Expected a task of ZeroSCROLLS, one of {', '.join(ZEROSCROLLS_TASKS)}, but got {variant!r:.60}."
            )

        self._variant = variant
        self._split = "test" if test else "validation"
        self._hub = hub
        self._scorer, self._max_new_tokens = ZEROSCROLLS_TASKS[variant]
        self.name = f"zeroscrolls:{variant}" + ("+test" if test else "") + ("+hub" if hub else "")
        self.metric = f"{self._scorer.name} (%)"
        self.parts = self._scorer.parts

    def examples(self, request: DataRequest) -> list[Example]:
        """Read the examples, see `Task.examples`.

        Args:
            request: The folder; ``limit`` questions are chosen with the seed. Positions mean nothing here.

        Returns:
            The examples, in the order of the file.

        Raises:
            TaskError: A file is missing or malformed, or a question has no reference.
        """
        questions: dict[str, list[DataRecord]] = {}
        for record in self._records(request.folder):
            questions.setdefault(record.text("id"), []).append(record)
        made = divide(
            [self._example(key, records) for key, records in questions.items()],
            request,
            self.name,
            source=lambda example: example.source,
            texts=lambda example: (example.prompt[slice(*(example.cut or (None,)))],),
        )
        return choose(made, request.limit, request.seed, self.name)

    def score(self, output: str, example: Example) -> tuple[float, ...]:
        """Return the released metric of one output in percent, see `Task.score`."""
        return tuple(100 * value for value in self._scorer.score(output, example.answers))

    def headline(self, scores: npt.NDArray[np.float64]) -> float:
        """Return the mean, or the geometric mean of the three mean ROUGE scores, see `Task.headline`."""
        return geometric_mean(scores) if len(self.parts) == 3 else super().headline(scores)

    def check(self, examples: Sequence[Example]) -> list[str]:
        """Warn of questions none of whose references an output can match, see `Task.check`."""
        faulty = [example for example in examples if not any(map(self._scorer.counts, example.answers))]
        if not faulty:
            return []
        return [
            f"{len(faulty)} of {len(examples)} questions have references without a {self._scorer.lack}, so that every "
            f"output scores 0: first {faulty[0].id}"
        ]

    def _records(self, folder: Path | None) -> list[DataRecord]:
        """Return the rows of the task, of the hub or of files."""
        if self._hub:
            return load_hub(HUB, self._variant, self._split)
        name, split = self._variant, self._split
        patterns = (f"{name}.zip", f"{name}/{split}.jsonl", f"{name}/{split}*.parquet")
        found = find_files(folder, patterns, self.name)
        return [record for path in found for record in read_records(path, f"{split}.jsonl")]

    def _example(self, key: str, records: list[DataRecord]) -> Example:
        """Return the question that rows of one id ask."""
        first = records[0]
        prompt = first.text("input")
        for record in records[1:]:
            if record.text("input") != prompt:
                raise record.error(f"have the input of the other rows with the id {key!r}", "it has another")

        cut = first.span("document_start_index", "document_end_index", len(prompt))
        document = hashlib.sha256(prompt[slice(*cut)].encode()).hexdigest()[:16]
        return Example(
            id=key,
            prompt=prompt,
            answers=tuple(self._reference(record) for record in records),
            source=f"zeroscrolls/{self._variant}/{document}",
            cut=cut,
            max_new_tokens=self._max_new_tokens,
        )

    def _reference(self, record: DataRecord) -> str:
        """Return the reference of a row.

        Raises:
            TaskError: The row has none that the metric can use.
        """
        output = record.get("output")
        if not isinstance(output, str) or not self._scorer.is_reference(output.strip()):
            raise record.error(
                f"have {self._scorer.reference} as its output",
                f"it has {output!r:.60}",
                "The test split was first released without labels; leave out +test for the validation split.",
            )
        return output
