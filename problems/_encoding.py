"""Encoding: the token ids of several examples with known answers, as searches and analyses score them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from lpes_evo.errors import TaskError
from lpes_evo.problems._encode import EncodedExample, EncodedPrompt, OverLength, PromptEncoder
from lpes_evo.problems._example import Example, check_examples

Scored = Literal["first answer", "every answer", "output", "text"]
"""What is scored of an example: its first accepted answer, each of its accepted answers, these and what the model
generates, or a text without a question."""


@dataclass(frozen=True)
class Encoding:
    """The token ids of several examples with known answers.

    Attributes:
        examples: The examples that were encoded.
        rows_of: The ids of each example, in the same order: one row for each answer that is scored, or for each window
            of a text.
        skipped: Examples left out because they are longer than the window.
    """

    examples: tuple[Example, ...]
    rows_of: tuple[tuple[EncodedExample, ...], ...]
    skipped: tuple[Example, ...] = ()

    @property
    def rows(self) -> tuple[EncodedExample, ...]:
        """The first row of each example."""
        return tuple(rows[0] for rows in self.rows_of)


def encode_examples(
    examples: Sequence[Example],
    tokenizer: Any,
    *,
    max_length: int | None = None,
    chat_template: bool = True,
    over_length: OverLength = "error",
    scored: Scored = "first answer",
) -> Encoding:
    """Turn examples with known answers into token ids, see `PromptEncoder`.

    Args:
        examples: The examples.
        tokenizer: A tokenizer of transformers.
        max_length: Window of the model in tokens; ``None`` for no limit.
        chat_template: Whether the tokenizer's chat template is used where it has one.
        over_length: The treatment of an example longer than the window: ``error``; ``skip`` leaves it out and counts
            it; ``cut`` takes the middle out of its document, and leaves it out where that is not enough.
        scored: What is scored of an example. All answers to a question follow the same prompt, so that a cut makes room
            for the longest of them.

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
    kept, rows_of, skipped = [], [], []
    for example in check_examples(examples):
        _refuse_empty(example, scored)
        encoded = _encode(encoder, example, scored)
        rows, summary = encoded.rows, encoded.summary
        if summary.n_unknown or any(encoder.n_unknown(row.answer_ids) for row in rows):
            raise TaskError(
                f"Expected words that the model's tokenizer knows, but example {example.id!r} has others. "
                "Choose a task that suits the model; the embedded model knows only the task 'recall'."
            )

        if summary.refusal is None:
            kept.append(example)
            rows_of.append(rows)
        elif scored == "text":
            raise TaskError(
                f"Expected texts that the model can be asked for, but of {example.id!r} {summary.refusal}."
            )
        elif over_length == "error":
            longest = summary.n_prompt + summary.n_answer
            raise TaskError(
                f"Expected every example to fit the model's window of {max_length} tokens, but "
                f"{example.id!r} has {longest}. Make the task smaller, or skip such examples with over_length='skip'."
            )
        else:
            skipped.append(example)

    if not rows_of:
        raise TaskError(
            f"Expected examples that fit the model's window of {max_length} tokens, but all {len(skipped)} "
            "are longer. Make the task smaller."
        )
    return Encoding(tuple(kept), tuple(rows_of), tuple(skipped))


def _encode(encoder: PromptEncoder, example: Example, scored: Scored) -> EncodedPrompt:
    """Encode what is scored of one example."""
    if scored == "text":
        return encoder.encode(example, "likelihood")
    if scored == "first answer" or (scored == "every answer" and len(example.answers) == 1):
        return encoder.encode(example, "teacher forcing")

    made = [
        encoder.encode(replace(example, answers=(answer,)), "teacher forcing")
        for answer in dict.fromkeys(example.answers)
    ]
    # The longest answer leaves least room for the prompt; an output needs room too.
    outputs = [encoder.encode(example, "generation")] if scored == "output" else []
    tightest = max([*made, *outputs], key=lambda one: (one.summary.refusal is not None, one.summary.n_cut))
    if tightest.summary.refusal is not None or not tightest.summary.n_cut:
        return EncodedPrompt(tuple(one.rows[0] for one in made), tightest.summary)

    prompt = tightest.rows[0].prompt_ids
    rows = tuple(replace(one.rows[0], prompt_ids=prompt) for one in made)
    return EncodedPrompt(rows, tightest.summary)


def _refuse_empty(example: Example, scored: Scored) -> None:
    """Refuse an example that asks nothing, except for a text alone, or has no answer.

    Raises:
        TaskError: It is such an example.
    """
    if scored != "text" and not example.prompt.strip():
        raise TaskError(
            f"Expected the prompt of example {example.id!r} to be text that is not empty, but got {example.prompt!r}."
        )
    if not example.answers:
        raise TaskError(f"Expected an accepted answer of example {example.id!r}, but it has none.")
