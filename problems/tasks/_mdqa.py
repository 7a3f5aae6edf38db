"""Multi-document question answering: one of several documents has the answer (https://arxiv.org/abs/2307.03172)."""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lpes_evo.errors import TaskError
from lpes_evo.problems._checks import check_count
from lpes_evo.problems._data import DataRecord, choose, find_file, find_files, optional_module, read_records
from lpes_evo.problems._draws import Draws
from lpes_evo.problems._example import Example
from lpes_evo.problems._splits import divide
from lpes_evo.problems._task import DataRequest, Task, check_places
from lpes_evo.problems.metrics import best_subspan_match
from lpes_evo.problems.tasks._documents import HEAD, Document, arrange, plain_answer, warn_of_empty_answers

_OFFICIAL = re.compile(r"nq-open-(\d+)_total_documents_gold_at_(\d+)\..*")
_ORACLE = ("nq-open-oracle.jsonl.gz", "nq-open-oracle.jsonl", "nq-open-oracle.*jsonl*")


@dataclass(frozen=True)
class _Question:
    """A question of the file.

    Attributes:
        text: The question.
        answers: Accepted answers.
        gold: The document that has the answer.
        others: Distractors, in the order of the file.
        place: Where the question stands, for messages.
    """

    text: str
    answers: tuple[str, ...]
    gold: Document
    others: tuple[Document, ...]
    place: str

    @property
    def key(self) -> str:
        """The hash of the question, which ids and sources are made of."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]

    @property
    def source(self) -> str:
        """The source of its examples, the same for every number of documents."""
        return f"nq-open/{self.key}"


class MdqaTask(Task):
    """Multi-document question answering of Lost in the Middle.

    Reads a file ``nq-open-N_total_documents_gold_at_K.jsonl.gz`` of that project, the smallest one with enough
    documents, and shows the first of its distractors; the gold document is moved to each position that is asked
    for, and the documents are numbered in the order shown. Without such a file, or with ``built``, distractors are
    gold passages of other questions of ``nq-open-oracle.jsonl.gz``, drawn with the seed; none contains an accepted
    answer. Built distractors are about other topics, so that they are easier to tell apart than retrieved ones. With
    ``bm25`` they are those that BM25 (Okapi, k1 = 1.5, b = 0.75) ranks highest for the question, best first, so that
    they share words with it. In a search, each split takes distractors from its own questions.

    Args:
        n_documents: Documents in the prompt.
        built: Whether to build the set from ``nq-open-oracle`` even where a file with distractors is there.
        bm25: Whether to take the distractors that BM25 ranks highest instead of random ones; with ``built`` alone.

    Raises:
        TaskError: ``n_documents`` is not an integer of at least 2, or ``bm25`` comes without ``built``.
    """

    metric = "best-subspan exact match"
    teacher_forcing = True
    splits_sources = True

    def __init__(self, n_documents: int = 20, *, built: bool = False, bm25: bool = False) -> None:
        self._n_documents = check_count("the number of documents of mdqa", n_documents, least=2, most=10_000)
        if bm25 and not built:
            raise TaskError(
                "Expected +bm25 with +built, since a file with distractors has its own, but got mdqa with +bm25 alone. "
                "Ask for mdqa:10+built+bm25."
            )
        self._built, self._bm25 = built, bm25
        self.name = f"mdqa:{self._n_documents}" + ("+built" if built else "") + ("+bm25" if bm25 else "")

    def examples(self, request: DataRequest) -> list[Example]:
        """Read or build the examples, see `Task.examples`.

        Args:
            request: Positions of the gold document; ``limit`` questions are chosen with the seed, and each is asked
                at every position.

        Returns:
            The examples, ordered by position.

        Raises:
            TaskError: A file is missing or malformed, or there are too few passages without an answer.
        """
        places, seed = check_places(request)

        path, oracle = self._file(request.folder)
        questions = [_question(record) for record in read_records(path)]
        _check_distinct(questions, path)
        questions = divide(
            questions,
            request,
            self.name,
            source=lambda question: question.source,
            texts=lambda question: (question.gold.text, question.text),
        )
        chosen = choose(questions, request.limit, seed, "mdqa")

        if oracle:
            ranked = _ranking(questions) if self._bm25 else None
            shown = [
                self._built_from(
                    question,
                    ranked(question)
                    if ranked
                    else _shuffled(questions, Draws("mdqa distractors", seed, question.text)),
                )
                for question in chosen
            ]
        else:
            shown = [self._stored(question) for question in chosen]

        return [
            _example(question, others, place, f"{self.name}/{seed if oracle else path.name}")
            for place in places
            for question, others in zip(chosen, shown, strict=True)
        ]

    def score(self, output: str, example: Example) -> tuple[float, ...]:
        """Return 1 if the first line of the output contains an accepted answer, else 0; see `Task.score`."""
        return (best_subspan_match(output, example.answers),)

    def check(self, examples: Sequence[Example]) -> list[str]:
        """Warn of accepted answers that every output contains, see `Task.check`."""
        return warn_of_empty_answers(examples)

    def _file(self, folder: Path | None) -> tuple[Path, bool]:
        """Return the file to read, and whether it holds gold passages alone."""
        if self._built:
            return find_file(folder, _ORACLE, self.name), True

        patterns = ("nq-open-*_total_documents_gold_at_*.jsonl*", *_ORACLE)
        fits = []
        found = find_files(folder, patterns, self.name)
        for path in found:
            sizes = _OFFICIAL.fullmatch(path.name)
            if sizes and int(sizes[1]) >= self._n_documents:
                fits.append((int(sizes[1]), int(sizes[2]), path))
        if fits:
            return min(fits)[2], False
        return find_file(folder, _ORACLE, self.name), True

    def _stored(self, question: _Question) -> list[Document]:
        """Return the first distractors that the file has for a question.

        Raises:
            TaskError: There are too few.
        """
        others = list(question.others[: self._n_documents - 1])
        if len(others) < self._n_documents - 1:
            raise TaskError(
                f"Expected {question.place} to have {self._n_documents} documents, but it has {len(others) + 1}. "
                f"Ask for mdqa:{len(others) + 1} or use a file with more."
            )
        return others

    def _built_from(self, question: _Question, pool: Iterable[_Question]) -> list[Document]:
        """Return the first gold passages of other questions that contain no accepted answer.

        Raises:
            TaskError: There are too few.
        """
        wanted = [answer for answer in map(plain_answer, question.answers) if answer]

        taken: dict[str, Document] = {question.gold.text: question.gold}
        for other in pool:
            passage = plain_answer(f"{other.gold.title} {other.gold.text}")
            if not any(answer in passage for answer in wanted):
                taken.setdefault(other.gold.text, other.gold)
            if len(taken) == self._n_documents:
                return list(taken.values())[1:]

        raise TaskError(
            f"Expected {self._n_documents - 1} passages without an accepted answer of {question.place}, but the file "
            f"has {len(taken) - 1}. Ask for fewer documents or use a longer file."
        )


def _shuffled(items: Sequence[_Question], draws: Draws) -> Iterator[_Question]:
    """Yield the items in random order, drawing no more than are taken."""
    pool = list(items)
    for index in range(len(pool)):
        other = index + draws.below(len(pool) - index)
        pool[index], pool[other] = pool[other], pool[index]
        yield pool[index]


def _ranking(pool: Sequence[_Question]) -> Callable[[_Question], Iterator[_Question]]:
    """Return a function that gives questions by how BM25 ranks their gold passages for a question, best first.

    Raises:
        TaskError: The package that does it is not installed.
    """
    bm25 = optional_module("rank_bm25", "rank passages")
    index = bm25.BM25Okapi([plain_answer(f"{other.gold.title} {other.gold.text}").split() for other in pool])

    def ranked(question: _Question) -> Iterator[_Question]:
        scores = index.get_scores(plain_answer(question.text).split())
        # Rounded, the order depends on no last digit of a platform; equal scores keep the order of the file.
        return (pool[number] for number in sorted(range(len(pool)), key=lambda n: (-round(scores[n], 6), n)))

    return ranked


def _question(record: DataRecord) -> _Question:
    """Return the question of a row.

    Raises:
        TaskError: The row is malformed, or has not one gold document.
    """
    text = record.text("question")
    answers = record.texts("answers")
    contexts = record.get("ctxs")
    if not isinstance(contexts, list) or not all(isinstance(context, dict) for context in contexts):
        raise record.error("hold a list of documents in the field 'ctxs'", f"it holds {contexts!r:.60}")

    golds: list[Document] = []
    others: list[Document] = []
    for number, context in enumerate(contexts, start=1):
        part = DataRecord(f"document {number} of {record.place}", context)
        document = Document(part.text("title"), part.text("text"))
        (golds if context.get("isgold") is True else others).append(document)

    if len(golds) != 1:
        raise record.error("have one document with isgold true", f"it has {len(golds)}")
    return _Question(text, answers, golds[0], tuple(others), record.place)


def _check_distinct(questions: Sequence[_Question], path: Path) -> None:
    """Refuse a file that asks a question twice, since ids are made of questions.

    Raises:
        TaskError: A question comes twice.
    """
    seen: dict[str, str] = {}
    for question in questions:
        if question.text in seen:
            raise TaskError(
                f"Expected every question of {path} once, but {question.place} repeats that of {seen[question.text]}."
            )
        seen[question.text] = question.place


def _example(question: _Question, others: Sequence[Document], position: float, label: str) -> Example:
    """Return the example that shows the gold document at a position among the others."""
    arranged = arrange([question.gold], others, position)
    start = len(HEAD)
    return Example(
        id=f"{label}/{question.key}/{position!r}",
        prompt=f"{HEAD}{arranged.text}\n\nQuestion: {question.text}\nAnswer:",
        answers=question.answers,
        position=position,
        source=question.source,
        cut=(start, start + len(arranged.text)),
        gold=(start + arranged.gold[0], start + arranged.gold[1]),
        max_new_tokens=100,
        details={
            "question": question.text,
            "n_documents": arranged.n_documents,
            "gold_document": arranged.first,
        },
    )
