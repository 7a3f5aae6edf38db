"""Questions of a user's own file: documents with a question, or whole prompts, and the accepted answers."""

import hashlib
import json
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lpes_evo.errors import TaskError
from lpes_evo.problems._checks import check_count
from lpes_evo.problems._data import DataRecord, choose, is_file, read_records
from lpes_evo.problems._example import Example
from lpes_evo.problems._splits import divide
from lpes_evo.problems._task import DataRequest, Task, check_places
from lpes_evo.problems.metrics import best_subspan_match, normalize_answer, token_f1
from lpes_evo.problems.tasks._documents import HEAD, Document, arrange, warn_of_empty_answers

_TEMPLATE = HEAD + "{documents}\n\nQuestion: {question}\nAnswer:"
# Malformed rows that one message names.
_MOST_NAMED = 5


def _f1(output: str, answers: Sequence[str]) -> float:
    """Return the F1 of the words of the first line."""
    return token_f1(output.split("\n")[0], answers)


def _exact(output: str, answers: Sequence[str]) -> float:
    """Return whether the first line is an accepted answer, once both are normalised."""
    said = normalize_answer(output.split("\n")[0])
    return float(any(normalize_answer(answer) == said for answer in answers))


_METRICS: dict[str, tuple[str, Callable[[str, Sequence[str]], float]]] = {
    "subspan": ("best-subspan exact match", best_subspan_match),
    "f1": ("F1", _f1),
    "exact": ("exact match", _exact),
}


@dataclass(frozen=True)
class _Row:
    """A row of the file.

    Attributes:
        text: The question, or the whole prompt where there are no documents.
        answers: Accepted answers.
        golds: The documents that have the answer; none with a whole prompt.
        others: The other documents, in the order of the file.
        key: Hash of the content, with the number of its occurrence where a row comes again.
    """

    text: str
    answers: tuple[str, ...]
    golds: tuple[Document, ...]
    others: tuple[Document, ...]
    key: str = ""

    @property
    def source(self) -> str:
        """The source of its examples: the question, whatever the file is called."""
        return f"qa/{hashlib.sha256(self.text.encode()).hexdigest()[:16]}"

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts that no row of the other split has: that of the gold documents, and the question."""
        gold = "\n".join(document.text for document in self.golds)
        return (gold, self.text) if gold else (self.text,)


@dataclass(frozen=True)
class _Form:
    """A text with places for values.

    Attributes:
        parts: Texts, and names of places, which are marked.
    """

    parts: tuple[tuple[str, bool], ...]

    @classmethod
    def of(
        cls, path: str | Path | None, *, needed: tuple[str, ...], others: tuple[str, ...] = ()
    ) -> "_Form | None":
        """Read a form from a file.

        Args:
            path: The file; ``None`` for none.
            needed: Places that it has once each.
            others: Places that it has at most once each.

        Returns:
            The form, or ``None`` without a file.

        Raises:
            TaskError: The file cannot be read, a brace stands alone, or the places are others.
        """
        if path is None:
            return None
        expected = f"Expected {path} to hold {' and '.join(f'{{{name}}}' for name in needed)} once each"
        expected += f" and at most {', '.join(f'{{{name}}}' for name in others)}" if others else ""
        remedy = "Double a brace that is to be shown."

        try:
            text = Path(path).read_text(encoding="utf-8-sig").rstrip("\r\n")
        except (OSError, ValueError) as error:
            raise TaskError(
                f"Expected {path} to be a text in UTF-8, but reading it failed: {error}."
            ) from error
        try:
            parsed = list(string.Formatter().parse(text))
        except ValueError as error:
            raise TaskError(f"{expected}, but it is no template: {error}. {remedy}") from error

        known = (*needed, *others)
        for _, name, form, conversion in parsed:
            if name is not None and (form or conversion or name not in known):
                raise TaskError(
                    f"{expected}, but it holds {{{name:.40}}} with other names or marks. {remedy}"
                )
        names = [name for _, name, _, _ in parsed if name is not None]
        if len(set(names)) < len(names) or not set(needed) <= set(names):
            raise TaskError(
                f"{expected}, but it holds {', '.join(f'{{{name}}}' for name in names) or 'none'}."
            )
        return cls.parsed(text)

    @classmethod
    def parsed(cls, text: str) -> "_Form":
        """Return the form of a text whose places are known."""
        parts: list[tuple[str, bool]] = []
        for part, name, _, _ in string.Formatter().parse(text):
            parts += [(part, False)] if part else []
            parts += [(name, True)] if name is not None else []
        return cls(tuple(parts))

    def filled(self, values: Mapping[str, str]) -> str:
        """Return the text with a value in each place."""
        return "".join(values[part] if is_name else part for part, is_name in self.parts)

    def start(self, name: str, values: Mapping[str, str]) -> int:
        """Return where the value of a place starts, in characters of the filled text."""
        return len(_Form(self.parts[: self.parts.index((name, True))]).filled(values))

    def document(self, document: Document, number: int) -> str:
        """Return the text of a document."""
        return self.filled({"text": document.text, "title": document.title, "number": str(number)})


class QaTask(Task):
    """Question answering over the rows of a user's file.

    Each line is a JSON object with ``question``, ``answers`` (a list of texts; or ``answer``, one text), ``documents``
    (texts, or objects with ``text`` and, if they have one, ``title``) and ``gold`` (the index of the document that has
    the answer, from 0, or a list of them). The gold documents are moved to each position, side by side, and the others
    keep their order. Or each line has ``prompt`` and ``answers``, which is asked as it is, without positions. All rows
    are of one of the two kinds; further fields are allowed and not read.

    Args:
        file: The file, ``.jsonl`` or ``.jsonl.gz``, relative to the working directory.
        n_documents: Most documents shown: the gold ones, then the first others. ``None`` for all.
        template: A text file with the prompt, in which ``{documents}`` and ``{question}`` stand once each; doubled
            braces give one. ``None`` for the prompt of Lost in the Middle.
        passage: A text file with one document, in which ``{text}`` stands once, and ``{number}`` and ``{title}`` at
            most once each; a title that is missing is empty. ``None`` for the form of Lost in the Middle.
        metric: ``subspan`` (best-subspan exact match), ``f1`` or ``exact``, each of the first line of the output.

    Raises:
        TaskError: An option is not valid, or the template cannot be read or has other placeholders.
    """

    reads_data = False
    splits_sources = True

    def __init__(
        self,
        file: str | Path,
        *,
        n_documents: int | None = None,
        template: str | Path | None = None,
        passage: str | Path | None = None,
        metric: str = "subspan",
    ) -> None:
        if metric not in _METRICS:
            raise TaskError(
                f"Expected the metric of qa to be one of {', '.join(_METRICS)}, but got {metric!r:.60}."
            )
        if n_documents is not None:
            n_documents = check_count("the number of documents of qa", n_documents, least=2, most=10_000)

        self._file = Path(file)
        self._n_documents = n_documents
        self._has_forms = template is not None or passage is not None
        self._prompt = _Form.of(template, needed=("documents", "question")) or _Form.parsed(_TEMPLATE)
        self._passage = _Form.of(passage, needed=("text",), others=("number", "title"))
        self.metric, self._score = _METRICS[metric]
        self.teacher_forcing = metric == "subspan"

        options = {
            "documents": n_documents,
            "template": template,
            "passage": passage,
            "metric": None if metric == "subspan" else metric,
        }
        written = "".join(f"+{key}={value}" for key, value in options.items() if value is not None)
        self.name = f"qa:{file}{written}"

    def examples(self, request: DataRequest) -> list[Example]:
        """Read the examples, see `Task.examples`.

        Args:
            request: Positions of the gold documents; ``limit`` rows are chosen with the seed, and each is asked at
                every position. A row without documents is asked once.

        Returns:
            The examples, ordered by position.

        Raises:
            TaskError: The file is missing or malformed, or an option has no effect on it.
        """
        places, seed = check_places(request)
        rows = self._rows()
        self._refuse_idle_options(rows)

        kept = divide(rows, request, self.name, source=lambda row: row.source, texts=lambda row: row.texts)
        chosen = choose(kept, request.limit, seed, "qa")
        if not rows[0].golds:
            return [
                Example(
                    f"qa/{row.key}",
                    row.text,
                    row.answers,
                    source=row.source,
                    details={"question": row.text[:200]},
                )
                for row in chosen
            ]
        return [self._example(row, place) for place in places for row in chosen]

    def score(self, output: str, example: Example) -> tuple[float, ...]:
        """Return the score of one output from 0 to 1, see `Task.score`."""
        return (self._score(output, example.answers),)

    def check(self, examples: Sequence[Example]) -> list[str]:
        """Warn of accepted answers that every output contains, see `Task.check`."""
        return warn_of_empty_answers(examples)

    def _rows(self) -> list[_Row]:
        """Read the rows.

        Raises:
            TaskError: The file is missing, rows are malformed (the message holds the first fault and names the rows of
                others), or it has rows of both kinds.
        """
        if not is_file(self._file):
            raise TaskError(
                f"Expected a file of questions at {self._file}, but there is none. Its path is relative to the "
                "working directory."
            )

        records = read_records(self._file)
        rows: list[_Row] = []
        faults: list[TaskError] = []
        n_times: Counter[str] = Counter()
        for record in records:
            try:
                row = _row(record)
            except TaskError as error:
                faults.append(error)
                continue
            n_times[row.key] += 1
            again = f"-{n_times[row.key]}" if n_times[row.key] > 1 else ""
            rows.append(_Row(row.text, row.answers, row.golds, row.others, row.key + again))

        if faults:
            more = f" The faults of {len(faults) - 1} further rows:" if len(faults) > 1 else ""
            others = " ".join(str(error) for error in faults[1:_MOST_NAMED])
            raise TaskError(f"{faults[0]}{more} {others}".rstrip())

        other = next((n for n, row in enumerate(rows) if bool(row.golds) != bool(rows[0].golds)), None)
        if other is not None:
            raise TaskError(
                f"Expected all rows of {self._file} to have documents or none to have some, but {records[0].place} and "
                f"{records[other].place} differ. Put them into two files."
            )
        return rows

    def _refuse_idle_options(self, rows: Sequence[_Row]) -> None:
        """Refuse options that change no example.

        Raises:
            TaskError: There is one.
        """
        most = max(len(row.golds) + len(row.others) for row in rows)
        if not most and (self._n_documents is not None or self._has_forms):
            raise TaskError(
                f"Expected documents in {self._file} for the options of {self.name}, but its rows have whole prompts. "
                "Leave +documents, +template and +passage out."
            )
        if self._n_documents is not None and most <= self._n_documents:
            raise TaskError(
                f"Expected rows with more than {self._n_documents} documents in {self._file}, of which the first would "
                f"be shown, but none has more than {most}. Leave +documents out, or show fewer."
            )

        many = max(len(row.golds) for row in rows)
        if self._n_documents is not None and many >= self._n_documents:
            raise TaskError(
                f"Expected +documents to leave room beside the gold documents, but a row of {self._file} has {many} of "
                f"them and {self._n_documents} are shown. Show more."
            )

    def _example(self, row: _Row, position: float) -> Example:
        """Return the example of a row with its gold documents at a position."""
        n_others = None if self._n_documents is None else self._n_documents - len(row.golds)
        show = Document.numbered if self._passage is None else self._passage.document
        arranged = arrange(row.golds, row.others[:n_others], position, show)
        values = {"documents": arranged.text, "question": row.text}

        start = self._prompt.start("documents", values)
        return Example(
            id=f"qa/{row.key}/{position!r}",
            prompt=self._prompt.filled(values),
            answers=row.answers,
            position=position,
            source=row.source,
            cut=(start, start + len(arranged.text)),
            gold=(start + arranged.gold[0], start + arranged.gold[1]),
            max_new_tokens=100,
            details={
                "question": row.text,
                "n_documents": arranged.n_documents,
                "gold_document": arranged.first,
            },
        )


def _row(record: DataRecord) -> _Row:
    """Return the content of a row.

    Raises:
        TaskError: The row is malformed; the message names its place and the field.
    """
    answers = record.texts("answers") if "answers" in record.fields else (record.text("answer"),)
    if "documents" not in record.fields:
        if "prompt" not in record.fields:
            raise record.error(
                "have the field 'documents' with 'question' and 'gold', or the field 'prompt'",
                f"it has {', '.join(map(repr, record.fields))}",
            )
        row = _Row(record.text("prompt"), answers, (), ())
    else:
        question = record.text("question")
        documents = _documents(record)
        gold = _gold(record, len(documents))
        row = _Row(
            question,
            answers,
            tuple(documents[index] for index in gold),
            tuple(document for index, document in enumerate(documents) if index not in gold),
        )

    content = [
        row.text,
        row.answers,
        *([(d.title, d.text) for d in part] for part in (row.golds, row.others)),
    ]
    return _Row(
        row.text,
        row.answers,
        row.golds,
        row.others,
        hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16],
    )


def _documents(record: DataRecord) -> list[Document]:
    """Return the documents of a row.

    Raises:
        TaskError: They are no list of texts, or of objects with a text.
    """
    given = record.get("documents")
    if not isinstance(given, list) or len(given) < 2:
        raise record.error(
            "hold a list of at least two documents in the field 'documents'", f"it holds {given!r:.60}"
        )

    documents = []
    for number, value in enumerate(given):
        part = DataRecord(
            f"document {number} of {record.place}", value if isinstance(value, dict) else {"text": value}
        )
        title = part.fields.get("title")
        if title is not None and not isinstance(title, str):
            raise part.error("hold text in the field 'title'", f"it holds {title!r:.60}")
        documents.append(Document(title or "", part.text("text")))
    return documents


def _gold(record: DataRecord, n_documents: int) -> tuple[int, ...]:
    """Return the indices of the gold documents of a row, in order.

    Raises:
        TaskError: There are none, one is no index of a document or comes twice, or no other document is left.
    """
    given = record.get("gold")
    indices = given if isinstance(given, list) else [given]
    if not indices or not all(type(index) is int and 0 <= index < n_documents for index in indices):
        raise record.error(
            f"hold an index from 0 to {n_documents - 1}, or a list of such, in the field 'gold'",
            f"it holds {given!r:.60}",
        )
    if len(set(indices)) < len(indices) or len(indices) == n_documents:
        raise record.error(
            "name each gold document once in the field 'gold', and leave others", f"it holds {given!r:.60}"
        )
    return tuple(sorted(indices))
