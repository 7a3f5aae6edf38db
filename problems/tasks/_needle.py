"""Multi-key needle: several magic numbers hidden in filler text, and a question about one of them."""

from lpes_evo.problems._checks import check_count
from lpes_evo.problems._draws import Draws
from lpes_evo.problems._example import Example
from lpes_evo.problems._task import DataRequest, check_draw, slot_of
from lpes_evo.problems.tasks._retrieval import RetrievalTask

FILLER = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
MAX_FILLER = 10_000
"""Most repetitions of the filler, some 200,000 tokens before each needle."""

_WORDS = """
    anchor apple arrow autumn basket beach bell bird blanket boat book bottle branch bread bridge
    brush bucket button cabin camera candle canyon carpet castle chain chair cheese circle cliff
    clock cloud coat coffee copper corner cotton cradle crown curtain desert diamond door dragon
    drum eagle engine feather fence field flame flower forest fountain garden glass glove guitar
    hammer harbor hat honey horse island jacket jungle kettle kitchen ladder lake lamp lantern leaf
    lemon letter lion marble market meadow melon mirror moon mountain needle ocean olive orange oven
    paper pencil pepper piano pillow planet pocket pond rabbit ribbon river road rocket roof rope
    saddle sail salt shadow shell ship silver snow spoon spring star stone storm street sugar summer
    table tiger tower train tree tunnel valley velvet violin wagon wall watch water wheel window
    winter wood
"""
KEYS = tuple(_WORDS.split())


class NeedleTask(RetrievalTask):
    """Multi-key needle in filler text.

    The prompt holds one sentence for every key, ``The magic number for KEY is DIGITS.``, between
    repetitions of the same filler, after the multi-key needle of RULER (https://arxiv.org/abs/2404.06654). The
    model's turn is begun with the same words, ``The magic number for KEY is``, and the digits are the
    answer, so that a forward pass over prompt and answer measures retrieval and not the form of a reply. The
    examples at different positions ask different questions about the same texts, so that a text is forwarded
    once for all of them; examples at one position are independent draws.

    Args:
        n_keys: Needles in the text, each with its own key and number.
        n_filler: Repetitions of the filler before each needle, and after the last; at most `MAX_FILLER`.
        n_digits: Digits of a number, at most 18.

    Raises:
        TaskError: An option is not an integer, is too small or too large, or ``n_keys`` exceeds the number of
            key words.
    """

    reads_data = False

    def __init__(self, n_keys: int = 8, n_filler: int = 1, n_digits: int = 4) -> None:
        self._n_keys = check_count("n_keys", n_keys, least=2, most=len(KEYS))
        self._n_filler = check_count("n_filler", n_filler, most=MAX_FILLER)
        self._n_digits = check_count("n_digits", n_digits, most=18)
        self.name = f"needle:{self._n_keys}" + (f"+filler={self._n_filler}" if self._n_filler != 1 else "")
        self.name += f"+digits={self._n_digits}" if self._n_digits != 4 else ""

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
        n_askings = [0] * self._n_keys
        for place in places:
            slot = slot_of(place, self._n_keys)
            for number in range(n_each):
                # Two positions can mean one slot; the second asks about other texts, so that no example occurs twice.
                text = f"needle/{request.split}/{seed}/{number}/{n_askings[slot]}"
                made.append(self._example(text, place, slot))
            n_askings[slot] += 1
        return made

    def _example(self, text: str, position: float, slot: int) -> Example:
        """Return the example that asks for the needle of a slot; ``text`` names the draw."""
        source = f"{text}/{self._n_keys}/{self._n_filler}/{self._n_digits}"
        draws = Draws(source)
        keys = draws.sample(KEYS, self._n_keys)
        least = 10 ** (self._n_digits - 1)
        numbers = [str(least + draws.below(9 * least)) for _ in keys]

        filler = " ".join([FILLER] * self._n_filler)
        facts = [
            f"The magic number for {key} is {digits}." for key, digits in zip(keys, numbers, strict=True)
        ]
        document = " ".join(f"{filler} {fact}" for fact in facts) + f" {filler}"
        start = document.index(facts[slot])
        return Example(
            id=f"{text}/{position!r}",
            prompt=f"{document}\n\nWhat is the magic number for {keys[slot]}?",
            answers=(numbers[slot],),
            position=position,
            source=source,
            cut=(0, len(document)),
            gold=(start, start + len(facts[slot])),
            answer_prefix=f"The magic number for {keys[slot]} is",
            max_new_tokens=32,
        )
