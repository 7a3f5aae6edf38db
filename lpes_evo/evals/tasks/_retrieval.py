"""The retrieval tasks of the search, asked of a model that answers freely; only their report split is used."""

import re
from abc import abstractmethod
from pathlib import Path

from lpes_evo.evals import DataRequest, EvalExample, EvalTask, find_files, read_records
from lpes_evo.evals.metrics import contains_value
from lpes_evo.problems import Example, KeyValueTask, NeedleTask, RecallTask, Task, check_count

DRAWN_PER_POSITION = 100
"""Examples at each position of a task that draws them, where no limit is given."""

_KV_FILE = re.compile(r"kv-retrieval-(\d+)_keys\..*")


class _RetrievalTask(EvalTask):
    """A search task whose output must contain the answer."""

    metric = "accuracy"
    teacher_forcing = True

    def examples(self, request: DataRequest) -> list[EvalExample]:
        """Draw or read the examples of the report split, see `EvalTask.examples`.

        Args:
            request: Positions, seed, and the most examples at each position; `DRAWN_PER_POSITION` by default where
                they are drawn.

        Returns:
            The examples, ordered by position.

        Raises:
            TaskError: The request is not valid, or a file is missing or malformed.
        """
        task, most = self._task(request.folder)
        limit = request.limit if request.limit is not None else (most or DRAWN_PER_POSITION)
        limit = check_count("the limit of examples", limit)
        made = task.examples(
            positions=request.positions,
            n_per_position=min(limit, most) if most is not None else limit,
            seed=request.seed,
            split="report",
        )
        return [self._convert(example) for example in made]

    def score(self, output: str, example: EvalExample) -> tuple[float, ...]:
        """Return 1 if the output contains the answer, case aside, else 0; see `EvalTask.score`."""
        return (contains_value(output, example.answers[0]),)

    @abstractmethod
    def _task(self, folder: Path | None) -> tuple[Task, int | None]:
        """Return the task, and how many examples at each position its file allows."""

    def _convert(self, example: Example) -> EvalExample:
        return EvalExample(
            id=example.id,
            prompt=example.prompt,
            answers=(example.answer,),
            position=example.position,
            source=example.source,
            cut=self._document(example.prompt),
            gold=self._gold(example),
            answer_prefix=example.answer_prefix,
            max_new_tokens=self._max_new_tokens,
        )

    _max_new_tokens = 100

    @abstractmethod
    def _document(self, prompt: str) -> tuple[int, int]:
        """Return the span of the prompt that may be cut."""

    @abstractmethod
    def _gold(self, example: Example) -> tuple[int, int]:
        """Return the span of the prompt that holds the answer."""


def _n_pairs_of(path: Path) -> int:
    """Return the pairs of a record that the name of a file promises."""
    named = _KV_FILE.fullmatch(path.name)
    return int(named[1]) if named else 0


def _span_of(fact: str, prompt: str) -> tuple[int, int]:
    start = prompt.index(fact)
    return start, start + len(fact)


class KeyValueEvalTask(_RetrievalTask):
    """Key-value retrieval: the value must occur in the output, both lower-cased.

    With a data folder, records of its ``kv-retrieval-N_keys.jsonl.gz`` are read, the file with the fewest pairs
    that has enough; the records that a search draws from it are left out. Else, and with ``drawn``, pairs are drawn.

    Args:
        n_pairs: Pairs in the prompt. ``None`` keeps all pairs of the file with the fewest, and draws 75.
        drawn: Whether to draw pairs although there is a data folder.

    Raises:
        TaskError: ``n_pairs`` is not an integer of at least 2.
    """

    def __init__(self, n_pairs: int | None = None, *, drawn: bool = False) -> None:
        self._n_pairs = (
            None if n_pairs is None else check_count("the number of pairs of kv", n_pairs, least=2)
        )
        self._drawn = drawn
        self.reads_data = not drawn
        self.name = "kv" + ("" if n_pairs is None else f":{n_pairs}") + ("+drawn" if drawn else "")

    def _task(self, folder: Path | None) -> tuple[Task, int | None]:
        if folder is None or self._drawn:
            return KeyValueTask(self._n_pairs), None
        found = find_files(folder, ("kv-retrieval-*_keys.*",), self.name)
        sizes = [(_n_pairs_of(path), path) for path in found]
        fits = [(size, path) for size, path in sizes if self._n_pairs is None or size >= self._n_pairs]
        # Where all are too short the task refuses the longest, and says what it has.
        path = min(fits)[1] if fits else max(sizes)[1]
        n_records = len(read_records(path))
        return KeyValueTask(self._n_pairs, data=path), n_records - n_records // 2

    def _document(self, prompt: str) -> tuple[int, int]:
        return prompt.index("{") + 1, prompt.rindex("}")

    def _gold(self, example: Example) -> tuple[int, int]:
        key = example.prompt.rpartition('\n\nKey: "')[2].removesuffix('"\nCorresponding value:')
        return _span_of(f'"{key}": "{example.answer}"', example.prompt)


class NeedleEvalTask(_RetrievalTask):
    """Multi-key needle: the magic number of one key must occur in the output.

    Args:
        n_keys: Needles in the text.
        n_filler: Repetitions of the filler before each needle and after the last.
        n_digits: Digits of a number.

    Raises:
        TaskError: An option is not valid, see `NeedleTask`.
    """

    reads_data = False
    _max_new_tokens = 32

    def __init__(self, n_keys: int = 8, n_filler: int = 1, n_digits: int = 4) -> None:
        self._needle = NeedleTask(n_keys, n_filler, n_digits)
        self.name = f"needle:{n_keys}" + (f"+filler={n_filler}" if n_filler != 1 else "")
        self.name += f"+digits={n_digits}" if n_digits != 4 else ""

    def _task(self, folder: Path | None) -> tuple[Task, int | None]:  # noqa: ARG002
        return self._needle, None

    def _document(self, prompt: str) -> tuple[int, int]:
        return 0, prompt.rindex("\n\n")

    def _gold(self, example: Example) -> tuple[int, int]:
        return _span_of(f"{example.answer_prefix} {example.answer}.", example.prompt)


class RecallEvalTask(_RetrievalTask):
    """Associative recall over the words of the embedded model: the output must be the partner of a word.

    Args:
        n_pairs: Pairs in the prompt.

    Raises:
        TaskError: The option is not valid, see `RecallTask`.
    """

    reads_data = False
    _max_new_tokens = 4

    def __init__(self, n_pairs: int = 48) -> None:
        self._recall = RecallTask(n_pairs)
        self.name = f"recall:{n_pairs}"

    def score(self, output: str, example: EvalExample) -> tuple[float, ...]:
        """Return 1 if the first word of the output is the answer, else 0; see `EvalTask.score`."""
        return (float(output.split()[:1] == [example.answers[0]]),)

    def _task(self, folder: Path | None) -> tuple[Task, int | None]:  # noqa: ARG002
        return self._recall, None

    def _document(self, prompt: str) -> tuple[int, int]:
        return 0, prompt.rindex("?")

    def _gold(self, example: Example) -> tuple[int, int]:
        # Spaces around keep 20 from being found in 120.
        key = example.prompt.rpartition(" ")[2]
        start, end = _span_of(f" {key} {example.answer} ", f" {example.prompt}")
        return start, end - 2
