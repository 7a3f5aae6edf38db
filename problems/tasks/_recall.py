"""Associative recall: a list of pairs of words, and a question for the partner of one word."""

from lpes_evo.problems._checks import check_count
from lpes_evo.problems._draws import Draws
from lpes_evo.problems._example import Example
from lpes_evo.problems._task import DataRequest, check_draw, slot_of
from lpes_evo.problems.tasks._retrieval import RetrievalTask

WORDS = tuple(str(number) for number in range(192))
"""Words that keys and values are drawn from; each is one token of the embedded model."""

QUESTION = "?"
"""Word between the pairs and the key that is asked for."""


class RecallTask(RetrievalTask):
    """Associative recall over words that the embedded model knows.

    The prompt is ``k1 v1 k2 v2 ... kN vN ? k`` and the answer the word that follows ``k`` among the pairs. Keys and
    values come from the same words and none occurs twice, so only the order of the words tells a key from a value.
    All examples are independent draws.

    Args:
        n_pairs: Pairs in the prompt, which has ``2 * n_pairs + 2`` words.

    Raises:
        TaskError: ``n_pairs`` is not an integer, is smaller than 2, or needs more words than there are.
    """

    reads_data = False

    def __init__(self, n_pairs: int = 48) -> None:
        self._n_pairs = check_count("n_pairs", n_pairs, least=2, most=len(WORDS) // 2)
        self.name = f"recall:{self._n_pairs}"

    def examples(self, request: DataRequest) -> list[Example]:
        """Draw the examples, see `Task.examples`.

        Args:
            request: Places of the gold pair among the pairs, seed, split, and examples at each position,
                `DRAWN_PER_POSITION` by default.

        Returns:
            The examples, ordered by position.

        Raises:
            TaskError: The request is not valid.
        """
        places, n_each, seed = check_draw(request)
        return [
            self._example(f"recall/{request.drawn_split}/{seed}/{place!r}/{number}", place)
            for place in places
            for number in range(n_each)
        ]

    def score(self, output: str, example: Example) -> tuple[float, ...]:
        """Return 1 if the first word of the output is the answer, else 0; see `Task.score`."""
        return (float(output.split()[:1] == [example.answer]),)

    def _example(self, name: str, position: float) -> Example:
        """Return the example of a name."""
        source = f"{name}/{self._n_pairs}"
        words = Draws(source).sample(WORDS, 2 * self._n_pairs)
        gold = 2 * slot_of(position, self._n_pairs)

        document = " ".join(words)
        start = len(" ".join(words[:gold])) + (gold > 0)
        fact = f"{words[gold]} {words[gold + 1]}"
        return Example(
            id=name,
            prompt=f"{document} {QUESTION} {words[gold]}",
            answers=(words[gold + 1],),
            position=position,
            source=source,
            # The space in front of the question goes with the pairs.
            cut=(0, len(document) + 1),
            gold=(start, start + len(fact)),
            max_new_tokens=4,
        )
