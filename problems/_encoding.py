"""Encoding: the token ids of several examples with known answers, as searches and analyses score them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

from lpes_evo.errors import TaskError
from lpes_evo.problems._encode import EncodedExample, OverLength, PromptEncoder
from lpes_evo.problems._example import Example, check_examples


@dataclass(frozen=True)
class Encoding:
    """The token ids of several examples with known answers.

    Attributes:
        examples: The examples that were encoded.
        rows: Their ids, in the same order.
        skipped: Examples left out because they are longer than the window.
    """

    examples: tuple[Example, ...]
    rows: tuple[EncodedExample, ...]
    skipped: tuple[Example, ...] = ()


def encode_examples(
    examples: Sequence[Example],
    tokenizer: Any,
    *,
    max_length: int | None = None,
    chat_template: bool = True,
    over_length: OverLength = "error",
) -> Encoding:
    """Turn examples with known answers into token ids, see `PromptEncoder`.

    Args:
        examples: The examples; the first accepted answer of each is the one that is scored.
        tokenizer: A tokenizer of transformers.
        max_length: Window of the model in tokens; ``None`` for no limit.
        chat_template: Whether the tokenizer's chat template is used where it has one.
        over_length: The treatment of an example longer than the window: ``error``; ``skip`` leaves it out and counts
            it; ``cut`` takes the middle out of its document, and leaves it out where that is not enough.

    Returns:
        The ids of the examples that fit, and the examples that do not.

    Raises:
        TaskError: There are no examples or none fits, two share an id, ``over_length`` is unknown, or an example
            is longer than the window, is not as `Example` describes it, has an empty prompt or answer, or has words
            that the tokenizer does not know.
        ModelError: The model's chat template refuses a prompt.
    """
    if over_length not in get_args(OverLength):
        raise TaskError(
            f"Expected over_length to be one of {', '.join(get_args(OverLength))}, but got {over_length!r}."
        )

    encoder = PromptEncoder(tokenizer, max_length, chat_template, over_length)
    kept, rows, skipped = [], [], []
    for example in check_examples(examples):
        _refuse_empty(example)
        encoded = encoder.encode(example, "teacher forcing")
        (row,) = encoded.rows
        if encoded.summary.n_unknown or encoder.n_unknown(row.answer_ids):
            raise TaskError(
                f"Expected words that the model's tokenizer knows, but example {example.id!r} has others. "
                "Choose a task that suits the model; the embedded model knows only the task 'recall'."
            )

        if encoded.summary.refusal is None:
            kept.append(example)
            rows.append(row)
        elif over_length == "error":
            raise TaskError(
                f"Expected every example to fit the model's window of {max_length} tokens, but "
                f"{example.id!r} has {len(row.prompt_ids) + len(row.answer_ids)}. Make the task smaller, or skip "
                "such examples with over_length='skip'."
            )
        else:
            skipped.append(example)

    if not rows:
        raise TaskError(
            f"Expected examples that fit the model's window of {max_length} tokens, but all {len(skipped)} "
            "are longer. Make the task smaller."
        )
    return Encoding(tuple(kept), tuple(rows), tuple(skipped))


def _refuse_empty(example: Example) -> None:
    """Refuse an example that asks nothing or has no answer.

    Raises:
        TaskError: It is such an example.
    """
    if not example.prompt.strip():
        raise TaskError(
            f"Expected the prompt of example {example.id!r} to be text that is not empty, but got {example.prompt!r}."
        )
    if not example.answers:
        raise TaskError(f"Expected an accepted answer of example {example.id!r}, but it has none.")
