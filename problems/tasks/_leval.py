"""L-Eval (https://arxiv.org/abs/2307.11088): twenty tasks with several questions on each long document."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lpes_evo.errors import TaskError
from lpes_evo.problems._data import DataRecord, choose, find_file, load_hub, read_records
from lpes_evo.problems._example import Example
from lpes_evo.problems._splits import divide
from lpes_evo.problems._task import DataRequest, Task
from lpes_evo.problems.metrics import (
    answer_letters,
    code_output,
    code_reference,
    exact_match,
    final_number,
    geometric_mean,
    reference_letters,
    rouge,
    token_f1,
    truth_word,
)
from lpes_evo.problems.tasks._leval_prompts import closed_book_prompt, document_prompt, has_length_variant
from lpes_evo.problems.tasks._leval_references import readable_references

HUB = "L4NLP/LEval"
FACT = "[fact:"
"""The mark between the two answers of SFiction in references and prediction files."""

_PREDICTION = "_pred"
_MEASURED = ("exam", "f1", "rouge")
_JUDGED = ("LLM", "human")
_GROUPED = ("sci_fi", "topic_retrieval_longchat")


def _choice(output: str, gold: str) -> float:
    """Return the match of one option letter."""
    return exact_match(answer_letters(output, several=False), reference_letters(gold))


def _choices(output: str, gold: str) -> float:
    """Return the match of several option letters."""
    return exact_match(answer_letters(output, several=True), reference_letters(gold))


def _number(output: str, gold: str) -> float:
    """Return the match of the result of a solved problem."""
    return exact_match(final_number(output), final_number(gold))


def _code(output: str, gold: str) -> float:
    """Return the match of the output of a program."""
    return exact_match(code_output(output, gold), code_reference(gold))


def _truth(output: str, gold: str) -> float:
    """Return the match of true or false."""
    return exact_match(truth_word(output), gold)


def _f1(output: str, gold: str) -> float:
    """Return the F1 of words."""
    return token_f1(output, (gold,))


_CLOSED: dict[str, Callable[[str, str], float]] = {
    "coursera": _choices,
    "quality": _choice,
    "tpo": _choice,
    "gsm100": _number,
    "codeU": _code,
    "topic_retrieval_longchat": exact_match,
    "sci_fi": _truth,
}
_F1_TASKS = (
    "financial_qa",
    "legal_contract_qa",
    "multidoc_qa",
    "narrative_qa",
    "natural_question",
    "scientific_qa",
)
_ROUGE_TASKS = (
    "gov_report_summ",
    "meeting_summ",
    "news_summ",
    "paper_assistant",
    "patent_summ",
    "review_summ",
    "tv_show_summ",
)
LEVAL_TASKS: tuple[str, ...] = (*_CLOSED, *_F1_TASKS, *_ROUGE_TASKS)
"""Names of the tasks: seven closed-ended ones, then those scored by F1, then those by ROUGE."""


@dataclass(frozen=True)
class LEvalAnswer:
    """A finished answer of a prediction file.

    Attributes:
        example: The question as far as the scorer needs it; the file lacks the document.
        output: The output of the model.
    """

    example: Example
    output: str


class LEvalTask(Task):
    """One task of L-Eval, scored in percent as the released ``auto_eval.py`` does.

    Reads ``NAME.jsonl``, whose lines have ``instructions``, ``outputs``, ``input``, ``source`` and ``evaluation``; each
    instruction is an example. Documents that the benchmark gives to human or model judges (``evaluation`` is ``human``
    or ``LLM``) are left out, as the released scorer does. SFiction asks each question twice, with the document
    and, for what the model knows of the world, without; both halves count the same.

    Args:
        variant: Name of the task, one of `LEVAL_TASKS`.
        length: Whether the prompt says how many words the reference has, as L-Eval does for its open-ended tasks.
        hub: Whether to load the Parquet revision from the hub instead of a local file.

    Raises:
        TaskError: The variant is unknown, or its prompt has no place for a length.
    """

    splits_sources = True

    def __init__(self, variant: str, *, length: bool = False, hub: bool = False) -> None:
        if variant not in LEVAL_TASKS:
            raise TaskError(
                f"Expected a task of L-Eval, one of {', '.join(LEVAL_TASKS)}, but got {variant!r:.60}."
            )
        if length and not has_length_variant(variant):
            raise TaskError(
                f"Expected a task of L-Eval whose prompt can ask for a length, but got {variant}. Leave out +length."
            )

        self._variant = variant
        self._length = length
        self._hub = hub

        self.name = f"leval:{variant}" + ("+length" if length else "") + ("+hub" if hub else "")
        if variant in _ROUGE_TASKS:
            self.metric, self.parts = "ROUGE geometric mean (%)", ("ROUGE-1", "ROUGE-2", "ROUGE-L")
        else:
            self.metric = "exact match (%)" if variant in _CLOSED else "F1 (%)"
            self.parts = ("score", "group") if variant in _GROUPED else ("score",)

    def examples(self, request: DataRequest) -> list[Example]:
        """Read the examples, see `Task.examples`.

        Args:
            request: The folder; ``limit`` examples are chosen with the seed. Positions mean nothing here.

        Returns:
            The examples, in the order of the file.

        Raises:
            TaskError: A file is missing or malformed, or no document of it is scored by a metric.
        """
        documents = [
            (str(record.get("input")), self._of_document(number, record))
            for number, record in enumerate(self._records(request.folder))
            if self._is_measured(record)
        ]
        if not documents:
            raise TaskError(
                f"Expected a document of {self.name} that a metric scores, but all are for human or model judges."
            )

        kept = divide(
            documents,
            request,
            self.name,
            source=lambda document: document[1][0].source,
            texts=lambda document: (document[0],),
        )
        made = [example for _, examples in kept for example in examples]
        return choose(made, request.limit, request.seed, self.name)

    def score(self, output: str, example: Example) -> tuple[float, ...]:
        """Return the score of one output in percent, and its group where groups are averaged; see `Task.score`."""
        gold = example.answers[0]
        if self._variant in _ROUGE_TASKS:
            return tuple(100 * value for value in rouge(output, (gold,)))
        value = 100 * _CLOSED.get(self._variant, _f1)(output, gold)
        return (value, float(example.details["group"])) if self._variant in _GROUPED else (value,)

    def headline(self, scores: npt.NDArray[np.float64]) -> float:
        """Return the mean, the mean of group means, or the geometric mean of ROUGE; see `Task.headline`."""
        if self._variant in _ROUGE_TASKS:
            return geometric_mean(scores)
        if self._variant in _GROUPED:
            groups = np.unique(scores[:, 1])
            return float(np.mean([scores[scores[:, 1] == group, 0].mean() for group in groups]))
        return super().headline(scores)

    def check(self, examples: Sequence[Example]) -> list[str]:
        """Warn of references of which the scorer makes nothing, see `Task.check`."""
        is_readable, lack, outcome = readable_references(self._variant)
        faulty = [example for example in examples if not is_readable(example.answers[0])]
        if not faulty:
            return []
        return [
            f"{len(faulty)} of {len(examples)} references hold no {lack}, so that {outcome}: first "
            f"{faulty[0].answers[0]!r:.60} of {faulty[0].id}"
        ]

    def answers(self, path: Path, system: str | None = None) -> list[LEvalAnswer]:
        """Read a prediction file in L-Eval's own format.

        Args:
            path: A file whose lines have ``gt``, ``evaluation`` and a field ``SYSTEM_pred``.
            system: Whose answers to read where a file holds those of several systems.

        Returns:
            Its answers, without those for human or model judges.

        Raises:
            TaskError: The file is malformed, it holds answers of other or of several systems, or none of its answers
                is scored by a metric.
        """
        records = read_records(path)
        field = _prediction_field(records[0], system)

        answers = []
        for number, record in enumerate(records):
            if not self._is_measured(record):
                continue
            output = record.get(field)
            if not isinstance(output, str):
                raise record.error(f"hold text in the field {field!r}", f"it holds {output!r:.60}")

            golds = self._golds(record.text("gt"), record)
            outputs = _halves(output, record) if len(golds) == 2 else (output,)
            for half, (gold, said) in enumerate(zip(golds, outputs, strict=True)):
                group = half if len(golds) == 2 else number % 3
                example = Example(
                    id=f"leval/{self._variant}/{number}/{half}",
                    prompt="",
                    answers=(gold,),
                    # The file does not name the document, so that each question stands for itself.
                    source=f"{path.name}/{number}",
                    details={"group": group},
                )
                answers.append(LEvalAnswer(example, said))

        if not answers:
            raise TaskError(f"Expected {path} to hold answers that a metric scores, but all are for judges.")
        return answers

    def _records(self, folder: Path | None) -> list[DataRecord]:
        """Return the rows of the task, of the hub or of a file."""
        name = self._variant
        if self._hub:
            return load_hub(HUB, name, "test")
        return read_records(
            find_file(folder, (f"{name}.jsonl", f"{name}.jsonl.gz", f"{name}.*.jsonl"), self.name)
        )

    def _is_measured(self, record: DataRecord) -> bool:
        """Return whether a metric scores a document; judges score the others."""
        evaluation = record.text("evaluation")
        if evaluation not in (*_MEASURED, *_JUDGED):
            raise record.error(
                f"have one of {', '.join((*_MEASURED, *_JUDGED))} as its evaluation",
                f"it has {evaluation!r:.40}",
            )
        return evaluation in _MEASURED

    def _of_document(self, number: int, record: DataRecord) -> list[Example]:
        """Return the examples about one document."""
        document = record.get("input")
        # The solved problems of gsm100 can stand in the instruction.
        if not isinstance(document, str) or (not document.strip() and self._variant != "gsm100"):
            raise record.error("hold a document in the field 'input'", f"it holds {document!r:.60}")

        questions, references = record.texts("instructions"), record.texts("outputs")
        if len(questions) != len(references):
            raise record.error(
                "have one output for each instruction",
                f"it has {len(references)} for {len(questions)} instructions",
            )

        source = f"leval/{self._variant}/{hashlib.sha256(document.encode()).hexdigest()[:16]}"
        made = []
        for index, (question, reference) in enumerate(zip(questions, references, strict=True)):
            n_words = len(reference.split()) if self._length else None
            golds = self._golds(reference, record)
            for half, gold in enumerate(golds):
                if half:
                    prompt, cut = closed_book_prompt(question), None
                else:
                    prompt, cut = document_prompt(self._variant, document, question, n_words)
                made.append(
                    Example(
                        id=f"leval/{self._variant}/{number}/{index}"
                        + (f"/{half}" if len(golds) == 2 else ""),
                        prompt=prompt,
                        answers=(gold,),
                        source=source,
                        cut=cut,
                        max_new_tokens=512,
                        details={"group": half if len(golds) == 2 else index % 3, "question": question},
                    )
                )
        return made

    def _golds(self, reference: str, record: DataRecord) -> tuple[str, ...]:
        """Return the references in a text: two for SFiction, one elsewhere."""
        if self._variant != "sci_fi":
            return (reference,)
        golds = _halves(reference, record)
        if not all(golds):
            raise record.error(
                f"hold a reference for the document and one for the world, such as 'true {FACT} false]'",
                f"it holds {reference!r:.60}",
            )
        return golds


def _prediction_field(record: DataRecord, system: str | None) -> str:
    """Return the name of the field that holds the answers."""
    fields = [name for name in record.fields if name.endswith(_PREDICTION)]
    if not fields:
        raise record.error("have a field such as 'SYSTEM_pred'", f"it has {', '.join(record.fields)}")

    systems = ", ".join(name.removesuffix(_PREDICTION) for name in fields)
    if system is not None and f"{system}{_PREDICTION}" not in fields:
        raise record.error(f"hold answers of the system {system!r}", f"it holds those of {systems}")
    if system is None and len(fields) > 1:
        raise record.error(
            "hold answers of one system",
            f"it holds those of {systems}",
            "Name the one you mean with --system.",
        )
    return fields[0] if system is None else f"{system}{_PREDICTION}"


def _halves(text: str, record: DataRecord) -> tuple[str, str]:
    """Split an answer of SFiction into the answer by the document and the answer about the world."""
    parts = text.lower().split(FACT)
    if len(parts) < 2:
        raise record.error(f"hold an answer such as 'true {FACT} false]'", f"it holds {text!r:.60}")
    # The last character is the closing bracket.
    return parts[0].strip(), parts[1][:-1].strip()
