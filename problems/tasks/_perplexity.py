"""Perplexity of local text, in nats per token."""

import hashlib
import re
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lpes_evo.errors import TaskError
from lpes_evo.problems._checks import check_count
from lpes_evo.problems._data import choose, find_files
from lpes_evo.problems._example import Example
from lpes_evo.problems._splits import divide
from lpes_evo.problems._task import DataRequest, Task

_WORD = re.compile(r"\S+")


class PerplexityTask(Task):
    """Nats per token of the ``.txt`` files of the data folder, sum over sum.

    Texts are cut into windows of so many words. A task knows no tokenizer, so all models see the same windows. A window
    keeps its white space, and the last window of a file can be shorter. Every window starts anew, so its first tokens
    have little context.

    Search and report divide the texts, one to a file. The windows of one text share its topic and words, so they are
    never divided: a search needs several texts. Texts with a window in common count as one.

    Args:
        n_words: Words of a window.

    Raises:
        TaskError: ``n_words`` is not an integer of at least 2.
    """

    metric = "nats per token"
    kind = "likelihood"
    parts = ("nats", "tokens")
    larger_is_better = False
    splits_sources = True

    def __init__(self, n_words: int = 1024) -> None:
        self._n_words = check_count("the number of words of perplexity", n_words, least=2)
        self.name = f"perplexity:{self._n_words}"

    def examples(self, request: DataRequest) -> list[Example]:
        """Read the windows, see `Task.examples`.

        Args:
            request: The folder; ``limit`` windows are chosen with the seed.

        Returns:
            The examples, one for each window; the text is its only answer.

        Raises:
            TaskError: There is no ``.txt`` file, or one is not UTF-8 or empty.
        """
        texts = {path: _read(path) for path in find_files(request.folder, ("*.txt",), self.name)}
        kept = divide(
            list(texts.items()),
            request,
            self.name,
            source=lambda item: _source(item[1]),
            texts=lambda item: (item[1], *_windows(item[1], self._n_words)),
        )

        made = [
            Example(
                id=f"{self.name}/{path.name}/{number}",
                prompt="",
                answers=(window,),
                source=_source(text),
                max_new_tokens=0,
            )
            for path, text in kept
            for number, window in enumerate(_windows(text, self._n_words))
        ]
        return choose(made, request.limit, request.seed, "perplexity")

    def score(self, output: str, example: Example) -> tuple[float, ...]:  # noqa: ARG002
        """Refuse, since nothing is generated; see `Task.score`.

        Raises:
            TaskError: Always.
        """
        raise TaskError(
            "Expected an output to score, but perplexity has none: it is measured by `lpes-evo eval`."
        )

    def headline(self, scores: npt.NDArray[np.float64]) -> float:
        """Return the sum of nats over the sum of tokens, see `Task.headline`."""
        nats, tokens = scores.sum(axis=0)
        return float(nats / tokens)


def _source(text: str) -> str:
    """Return the source of the windows of a text."""
    return f"perplexity/{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _read(path: Path) -> str:
    """Return the text of a file.

    Raises:
        TaskError: The file cannot be read, is not UTF-8, or is empty.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise TaskError(f"Expected {path} to be a text in UTF-8, but reading it failed: {error}.") from error
    if not text.strip():
        raise TaskError(f"Expected {path} to hold text, but it is empty. Remove it from the folder.")
    return text


def _windows(text: str, n_words: int) -> list[str]:
    """Cut a text before every ``n_words``-th word; the windows joined give the text without its leading white space."""
    starts = [word.start() for word in _WORD.finditer(text)][::n_words]
    return [text[start:end] for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]
