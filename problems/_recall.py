"""Associative recall: pairs of words are listed, and the partner of one word is asked for."""

from collections.abc import Sequence

from lpes_evo.problems._draws import Draws
from lpes_evo.problems._task import Example, Split, Task, check_count, check_draw, slot_of

WORDS = tuple(str(number) for number in range(192))
"""Words that keys and values are drawn from; each is one token of the embedded model."""

QUESTION = "?"
"""Word between the pairs and the key that is asked for."""


class RecallTask(Task):
    """Associative recall over words that the embedded model knows.

    The prompt is ``k1 v1 k2 v2 ... kN vN ? k`` and the answer the word that follows ``k`` among the pairs. Keys and
    values come from the same words and none occurs twice, so only the order of the words tells a key from a value.
    All examples are independent draws.

    Args:
        n_pairs: Pairs in the prompt, which has ``2 * n_pairs + 2`` words.

    Raises:
        TaskError: ``n_pairs`` is not an integer, is smaller than 2, or needs more words than there are.
    """

    name = "recall"

    def __init__(self, n_pairs: int = 48) -> None:
        self._n_pairs = check_count("n_pairs", n_pairs, least=2, most=len(WORDS) // 2)

    def examples(
        self, *, positions: Sequence[float], n_per_position: int, seed: int, split: Split
    ) -> list[Example]:
        """Make the examples, see `Task.examples`.

        Args:
            positions: Place of the gold pair among the pairs, each from 0 to 1.
            n_per_position: Examples at each position.
            seed: Seed of the draw.
            split: Which of the two disjoint splits the examples belong to.

        Returns:
            The examples.

        Raises:
            TaskError: An argument is not valid, see `Task.examples`.
        """
        places, n_per_position, seed = check_draw(positions, n_per_position, seed, split)
        return [
            self._example(split, seed, place, number) for place in places for number in range(n_per_position)
        ]

    def _example(self, split: str, seed: int, position: float, number: int) -> Example:
        name = f"recall/{split}/{seed}/{position!r}/{number}"
        source = f"{name}/{self._n_pairs}"
        words = Draws(source).sample(WORDS, 2 * self._n_pairs)
        gold = 2 * slot_of(position, self._n_pairs)
        return Example(
            id=name,
            position=position,
            prompt=" ".join([*words, QUESTION, words[gold]]),
            answer=words[gold + 1],
            source=source,
        )
