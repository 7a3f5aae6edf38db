"""Multi-key needle: several facts hidden in filler text, and a question about one of them."""

from lpes_evo.errors import TaskError
from lpes_evo.problems._checks import check_count
from lpes_evo.problems._draws import Draws
from lpes_evo.problems._example import Example
from lpes_evo.problems._task import DataRequest, check_draw, slot_of
from lpes_evo.problems.tasks._needle_wordings import NOLIMA, WORDINGS, Wording
from lpes_evo.problems.tasks._retrieval import RetrievalTask

MAX_FILLER = 10_000
"""Most repetitions of the filler, some 200,000 tokens before each needle."""


class NeedleTask(RetrievalTask):
    """Multi-key needle in filler text.

    The prompt holds one sentence for every key, ``The magic number for KEY is DIGITS.``, between
    repetitions of the same filler, after the multi-key needle of RULER (https://arxiv.org/abs/2404.06654). The
    model's turn begins with the same words, ``The magic number for KEY is``. So the digits are the answer, and a
    forward pass over prompt and answer measures retrieval and not the form of a reply. The examples at different
    positions ask different questions about the same texts, so that a text is forwarded once for all of them; examples
    at one position are independent draws.

    Args:
        n_keys: Needles in the text, each with its own key and number.
        n_filler: Repetitions of the filler before each needle, and after the last; at most `MAX_FILLER`.
        n_digits: Digits of a number, at most 18.

    Raises:
        TaskError: An option is not an integer, is too small or too large, or ``n_keys`` exceeds the number of
            key words.
    """

    reads_data = False

    def __init__(
        self,
        n_keys: int = 8,
        n_filler: int = 1,
        n_digits: int = 4,
        *,
        wording: int = 1,
        wordings: int = 1,
        nolima: bool = False,
    ) -> None:
        if (wording != 1) + (wordings != 1) + (nolima or 0) > 1 or (nolima and n_digits != 4):
            raise TaskError(
                "Expected one of the options wording, wordings and nolima of needle, and no digits beside nolima, but "
                "got several. Leave all but one out."
            )
        first = check_count("wording", wording, most=len(WORDINGS)) - 1
        n_wordings = check_count("wordings", wordings, most=len(WORDINGS))
        self._wordings = (NOLIMA,) if nolima else WORDINGS[first : first + n_wordings]

        most = min(len(one.keys) for one in self._wordings)
        self._n_keys = check_count("n_keys", n_keys, least=2, most=most)
        self._n_filler = check_count("n_filler", n_filler, most=MAX_FILLER)
        self._n_digits = check_count("n_digits", n_digits, most=18)

        options = {
            "filler": (n_filler, 1),
            "digits": (n_digits, 4),
            "wording": (wording, 1),
            "wordings": (wordings, 1),
        }
        self.name = f"needle:{self._n_keys}" + "".join(
            f"+{name}={value}" for name, (value, default) in options.items() if value != default
        )
        self.name += "+nolima" if nolima else ""

    def examples(self, request: DataRequest) -> list[Example]:
        """Draw the examples, see `Task.examples`.

        Args:
            request: Places of the gold needle among the needles, seed, split, and examples at each position,
                `DRAWN_PER_POSITION` by default.

        Returns:
            The examples, ordered by position.

        Raises:
            TaskError: The request is not valid.
        """
        places, n_each, seed = check_draw(request)
        made = []
        n_positions_at_slot = [0] * self._n_keys
        for place in places:
            slot = slot_of(place, self._n_keys)
            for number in range(n_each):
                # Two positions can fall on one slot. The second draws new texts, so that no question is asked twice.
                text = f"needle/{request.drawn_split}/{seed}/{number}/{n_positions_at_slot[slot]}"
                wording = self._wordings[number % len(self._wordings)]
                made.append(self._example(text, place, slot, wording))
            n_positions_at_slot[slot] += 1
        return made

    def _example(self, text: str, position: float, slot: int, wording: Wording) -> Example:
        """Return the example that asks for the needle of a slot; ``text`` names the draw."""
        source = f"{text}/{self._n_keys}/{self._n_filler}/{self._n_digits}"
        source += f"/{wording.name}" if wording.name else ""
        needles = wording.needles(Draws(source), self._n_keys, self._n_digits)

        filler = " ".join([wording.filler] * self._n_filler)
        document = " ".join(f"{filler} {needle.fact}" for needle in needles) + f" {filler}"
        asked = needles[slot]
        head = len(wording.opening)
        start = head + document.index(asked.fact)
        return Example(
            id=f"{text}/{position!r}",
            prompt=f"{wording.opening}{document}\n\n{asked.question}",
            answers=(asked.answer,),
            position=position,
            source=source,
            cut=(head, head + len(document)),
            gold=(start, start + len(asked.fact)),
            answer_prefix=asked.prefix,
            max_new_tokens=32,
        )
