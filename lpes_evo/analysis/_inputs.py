"""AnalysisInput: a prompt of a task, with the place of the gold fact, or a piece of a text."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lpes_evo.errors import TaskError
from lpes_evo.problems import EncodedExample, Example, PromptEncoder, encode_examples

if TYPE_CHECKING:
    from lpes_evo.models import LoadedModel

LEAST_TOKENS = 4
"""Smallest number of tokens of an input. The first cannot move, and fewer than three others have too little spread."""


@dataclass(frozen=True)
class AnalysisInput:
    """One input of an analysis.

    Attributes:
        id: Name of the input.
        source: Source of the input; inputs of one source are not independent.
        token_ids: Tokens that the model is given, ``(n_tokens,)``.
        position: Place of the gold fact, from 0 to 1; ``None`` where there is none.
        gold: First token of the gold span and the one after its last; ``None`` where it is not known.
        row: Prompt and answer, to score retrieval; ``None`` where there is no answer.
    """

    id: str
    source: str
    token_ids: tuple[int, ...]
    position: float | None = None
    gold: tuple[int, int] | None = None
    row: EncodedExample | None = None

    @property
    def n_tokens(self) -> int:
        """Number of tokens."""
        return len(self.token_ids)


def inputs_of_examples(
    loaded: "LoadedModel", examples: Sequence[Example], *, chat_template: bool = True
) -> list[AnalysisInput]:
    """Return the prompts of examples as inputs.

    The gold span are the tokens of the answer where it stands in the prompt as words of their own; of several such
    places, the one that is nearest to the example's position, or the first where it has none. It is not known where the
    answer does not stand in the prompt, or where the tokenizer does not tell which letters a token covers.

    Args:
        loaded: The model.
        examples: The examples.
        chat_template: Whether the tokenizer's chat template is used where it has one.

    Returns:
        One input for each example.

    Raises:
        TaskError: The examples cannot be encoded, see `lpes_evo.problems.encode_examples`, or a prompt has fewer than
            four tokens.
    """
    encoding = encode_examples(
        examples, loaded.tokenizer, max_length=loaded.max_length, chat_template=chat_template
    )
    encoder = PromptEncoder(loaded.tokenizer, chat_template=chat_template)

    return [
        _checked(
            AnalysisInput(
                id=example.id,
                source=example.source,
                token_ids=row.prompt_ids,
                position=example.position,
                gold=_gold_span(encoder, example, row),
                row=row,
            )
        )
        for example, row in zip(encoding.examples, encoding.rows, strict=True)
    ]


def inputs_of_text(
    loaded: "LoadedModel", file: str | Path, *, length: int, n_inputs: int
) -> list[AnalysisInput]:
    """Cut a text file into inputs of equal length.

    Every input begins with the special tokens that the tokenizer puts in front of a text. The rest at the end of the
    text is an input only where the text is too short for one of full length.

    Args:
        loaded: The model.
        file: A text in UTF-8.
        length: Number of tokens of an input, special tokens included.
        n_inputs: Largest number of inputs; they come from the beginning of the text.

    Returns:
        At least one input.

    Raises:
        TaskError: The file cannot be read, is empty, or has words that the tokenizer does not know; the length does
            not lie between four tokens and the model's window, or ``n_inputs`` is not positive.
    """
    if not LEAST_TOKENS <= length <= loaded.max_length or n_inputs < 1:
        raise TaskError(
            f"Expected at least one input of {LEAST_TOKENS} to {loaded.max_length} tokens, the model's window, but got "
            f"{n_inputs} of {length}."
        )

    try:
        text = Path(file).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise TaskError(f"Expected a text file at {file}, but it cannot be read: {reason}.") from error
    if not text.strip():
        raise TaskError(f"Expected a text in {file}, but it is empty. Name a file with some text.")
    front = list(PromptEncoder(loaded.tokenizer, chat_template=False).front)
    ids = list(loaded.tokenizer(text, add_special_tokens=False, return_attention_mask=False)["input_ids"])
    unknown = getattr(loaded.tokenizer, "unk_token_id", None)
    if unknown is not None and unknown in ids:
        raise TaskError(
            f"Expected words that the model's tokenizer knows, but {file} has others. The embedded model knows the "
            "numbers 0 to 191 alone."
        )

    step = max(1, length - len(front))
    n_pieces = max(1, min(n_inputs, len(ids) // step))
    return [
        _checked(
            AnalysisInput(
                id=f"{Path(file).name}/{number}",
                source=f"{Path(file).name}/{number}",
                token_ids=tuple(front + ids[number * step : (number + 1) * step]),
            )
        )
        for number in range(n_pieces)
    ]


def check_inputs(inputs: Sequence[AnalysisInput]) -> list[AnalysisInput]:
    """Return inputs as a list, after a check of their number and length.

    Raises:
        TaskError: There are none, or one has fewer than four tokens.
    """
    if not inputs:
        raise TaskError("Expected at least one input to analyse, but got none.")
    return [_checked(entry) for entry in inputs]


def _checked(entry: AnalysisInput) -> AnalysisInput:
    if entry.n_tokens < LEAST_TOKENS:
        raise TaskError(
            f"Expected inputs of at least {LEAST_TOKENS} tokens, but {entry.id!r} has {entry.n_tokens}. Give a longer "
            "text."
        )
    return entry


def _gold_span(encoder: PromptEncoder, example: Example, row: EncodedExample) -> tuple[int, int] | None:
    """Return where the answer stands among the tokens of the prompt."""
    tokenizer: Any = encoder.tokenizer
    if not getattr(tokenizer, "is_fast", False):
        return None
    before = encoder.text_before(example, example.answer)
    # The prompt of the example, without what the template or the answer's beginning add behind it.
    end = before.rfind(example.prompt.rstrip()) + len(example.prompt.rstrip())
    answer = re.escape(example.answer.strip())
    places = [match.span() for match in re.finditer(rf"(?<!\w){answer}(?!\w)", before[:end])]
    if not places or not example.answer.strip():
        return None
    encoded = tokenizer(before, add_special_tokens=False, return_offsets_mapping=True)
    n_front = len(encoder.front)
    n_shared = len(row.prompt_ids) - n_front
    if list(encoded["input_ids"])[:n_shared] != list(row.prompt_ids[n_front:]):
        return None
    wanted = example.position or 0.0
    first, last = min(places, key=lambda place: abs(place[0] / max(1, end) - wanted))
    covering = [
        index
        for index, (start, stop) in enumerate(encoded["offset_mapping"][:n_shared])
        if start < last and stop > first
    ]
    return (n_front + covering[0], n_front + covering[-1] + 1) if covering else None
