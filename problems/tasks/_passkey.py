"""Passkey retrieval (https://arxiv.org/abs/2305.16300): a number hidden in filler text."""

from lpes_evo.problems._checks import check_count
from lpes_evo.problems._draws import Draws
from lpes_evo.problems._example import Example
from lpes_evo.problems._task import DataRequest, check_draw, slot_of
from lpes_evo.problems.tasks._needle import MAX_FILLER
from lpes_evo.problems.tasks._needle_wordings import FILLER
from lpes_evo.problems.tasks._retrieval import RetrievalTask

_HEAD = (
    "There is an important info hidden inside a lot of irrelevant text. Find it and memorize it. I will quiz you about "
    "the important information there.\n\n"
)
_QUESTION = "\n\nWhat is the pass key?"


class PasskeyTask(RetrievalTask):
    """Passkey retrieval: five digits between repetitions of one filler must occur in the output.

    Args:
        n_filler: Repetitions of the filler in all, about 24 tokens each.

    Raises:
        TaskError: ``n_filler`` is not an integer from 1 to `MAX_FILLER`.
    """

    reads_data = False

    def __init__(self, n_filler: int = 80) -> None:
        self._n_filler = check_count("the number of fillers of passkey", n_filler, most=MAX_FILLER)
        self.name = f"passkey:{self._n_filler}"

    def examples(self, request: DataRequest) -> list[Example]:
        """Draw the examples, see `Task.examples`.

        Args:
            request: Positions, seed, split, and examples at each position, `DRAWN_PER_POSITION` by default.

        Returns:
            The examples, ordered by position.

        Raises:
            TaskError: The request is not valid.
        """
        places, n_each, seed = check_draw(request)
        return [
            self._example(f"passkey/{request.drawn_split}/{seed}/{place!r}/{number}", place)
            for place in places
            for number in range(n_each)
        ]

    def _example(self, name: str, position: float) -> Example:
        """Return the example of a name."""
        source = f"{name}/{self._n_filler}"
        key = str(10_000 + Draws(source).below(90_000))
        fact = f"The pass key is {key}. Remember it. {key} is the pass key."
        sentences = [FILLER] * self._n_filler
        sentences.insert(slot_of(position, self._n_filler + 1), fact)

        text = " ".join(sentences)
        start = len(_HEAD) + text.index(fact)
        return Example(
            id=name,
            prompt=f"{_HEAD}{text}{_QUESTION}",
            answers=(key,),
            position=position,
            source=source,
            cut=(len(_HEAD), len(_HEAD) + len(text)),
            gold=(start, start + len(fact)),
            answer_prefix="The pass key is",
            max_new_tokens=16,
        )
