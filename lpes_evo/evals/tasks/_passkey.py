"""Passkey retrieval (https://arxiv.org/abs/2305.16300): a number hidden in filler text."""

from lpes_evo.evals import DataRequest, EvalExample, EvalTask
from lpes_evo.evals.metrics import contains_value
from lpes_evo.evals.tasks._retrieval import DRAWN_PER_POSITION
from lpes_evo.problems import FILLER, MAX_FILLER, Draws, check_count, check_draw, slot_of

_HEAD = (
    "There is an important info hidden inside a lot of irrelevant text. Find it and memorize it. I will quiz you about "
    "the important information there.\n\n"
)
_QUESTION = "\n\nWhat is the pass key?"


class PasskeyTask(EvalTask):
    """Passkey retrieval: five digits between repetitions of one filler must occur in the output.

    Args:
        n_filler: Repetitions of the filler in all, about 24 tokens each.

    Raises:
        TaskError: ``n_filler`` is not an integer from 1 to `MAX_FILLER`.
    """

    metric = "accuracy"
    teacher_forcing = True
    reads_data = False

    def __init__(self, n_filler: int = 80) -> None:
        self._n_filler = check_count("the number of fillers of passkey", n_filler, most=MAX_FILLER)
        self.name = f"passkey:{self._n_filler}"

    def examples(self, request: DataRequest) -> list[EvalExample]:
        """Draw the examples, see `EvalTask.examples`.

        Args:
            request: Positions, seed, and the most examples at each position, `DRAWN_PER_POSITION` by default.

        Returns:
            The examples, ordered by position.

        Raises:
            TaskError: The request is not valid.
        """
        limit = DRAWN_PER_POSITION if request.limit is None else request.limit
        places, n_each, seed = check_draw(request.positions, limit, request.seed, "report")
        return [self._example(place, seed, number) for place in places for number in range(n_each)]

    def score(self, output: str, example: EvalExample) -> tuple[float, ...]:
        """Return 1 if the output contains the pass key, else 0; see `EvalTask.score`."""
        return (contains_value(output, example.answers[0]),)

    def _example(self, position: float, seed: int, number: int) -> EvalExample:
        label = f"passkey/report/{seed}/{position!r}/{number}"
        source = f"{label}/{self._n_filler}"
        key = str(10_000 + Draws(source).below(90_000))
        fact = f"The pass key is {key}. Remember it. {key} is the pass key."
        sentences = [FILLER] * self._n_filler
        sentences.insert(slot_of(position, self._n_filler + 1), fact)
        text = " ".join(sentences)
        start = len(_HEAD) + text.index(fact)
        return EvalExample(
            id=label,
            prompt=f"{_HEAD}{text}{_QUESTION}",
            answers=(key,),
            position=position,
            source=source,
            cut=(len(_HEAD), len(_HEAD) + len(text)),
            gold=(start, start + len(fact)),
            answer_prefix="The pass key is",
            max_new_tokens=16,
        )
