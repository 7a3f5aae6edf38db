"""From examples to token ids: chat template, answer boundary, and the model's window."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from lpes_evo.errors import TaskError
from lpes_evo.problems._task import Example, check_examples

OverLength = Literal["error", "skip"]


@dataclass(frozen=True)
class EncodedExample:
    """The token ids of one example.

    Attributes:
        id: The example's id.
        prompt_ids: What the model is given, ``(n_prompt,)``.
        answer_ids: What it should say, ``(n_answer,)``.
    """

    id: str
    prompt_ids: tuple[int, ...]
    answer_ids: tuple[int, ...]

    @property
    def n_tokens(self) -> int:
        """Tokens of the forward pass that scores the example: all but the last of prompt and answer."""
        return len(self.prompt_ids) + len(self.answer_ids) - 1


@dataclass(frozen=True)
class Encoding:
    """The token ids of several examples.

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
    """Turn examples into token ids.

    The text is ``template(prompt)``, ``answer_prefix`` and ``answer``; without a template it is ``prompt``,
    the prefix on a line of its own, and ``answer``. A space comes before the prefix and the answer where no
    white space stands yet; at the beginning of a turn the template's own habit decides.

    The text is tokenized as a whole, as the model would have met it in training, and split at the first token
    that is not also in the tokenization of the text before the answer. So a tokenizer that has one token for
    a space and a number, and one that has several, are both asked for what comes naturally to them. Special
    tokens at the front come from the template or else from the tokenizer's default, never from both; nothing
    is appended, and nothing is ever cut.

    Args:
        examples: The examples.
        tokenizer: A tokenizer of transformers.
        max_length: Window of the model in tokens; ``None`` for no limit.
        chat_template: Whether the tokenizer's chat template is used where it has one.
        over_length: What happens to an example longer than the window: ``error``, or ``skip`` and count it.

    Returns:
        The ids of the examples that fit, and the examples that do not.

    Raises:
        TaskError: There are no examples or none fits, two share an id, ``over_length`` is unknown, an example
            is longer than the window, has a field of a wrong type, an empty id, prompt or answer or a position
            outside [0, 1], or has words the tokenizer does not know.
    """
    if over_length not in get_args(OverLength):
        raise TaskError(f"Expected over_length to be error or skip, but got {over_length!r}.")
    examples = check_examples(examples)
    texts = PromptTexts(tokenizer, chat_template)
    kept, rows, skipped = [], [], []
    for example, row in zip(examples, texts.encode(examples), strict=True):
        length = len(row.prompt_ids) + len(row.answer_ids)
        if max_length is None or length <= max_length:
            kept.append(example)
            rows.append(row)
        elif over_length == "skip":
            skipped.append(example)
        else:
            raise TaskError(
                f"Expected every example to fit the model's window of {max_length} tokens, but "
                f"{example.id!r} has {length}. Make the task smaller, or skip "
                "such examples with over_length='skip'."
            )
    if not rows:
        raise TaskError(
            f"Expected examples that fit the model's window of {max_length} tokens, but all {len(skipped)} "
            "are longer. Make the task smaller."
        )
    return Encoding(tuple(kept), tuple(rows), tuple(skipped))


class PromptTexts:
    """Writes examples as text and splits the ids of the text at the answer.

    Args:
        tokenizer: A tokenizer of transformers.
        chat_template: Whether its chat template is used where it has one.

    Attributes:
        front: Special tokens before a text that no template writes.
    """

    def __init__(self, tokenizer: Any, chat_template: bool) -> None:
        self._tokenizer = tokenizer
        self._is_chat = chat_template and bool(getattr(tokenizer, "chat_template", None))
        self.front: list[int] = [] if self._is_chat else _front_ids(tokenizer)
        self._glue = self._template_glue() if self._is_chat else " "

    def encode(self, examples: Sequence[Example]) -> list[EncodedExample]:
        """Return the ids of each example, refusing empty answers and unknown words."""
        befores = [self.before(example) for example in examples]
        wholes = [before + example.answer for before, example in zip(befores, examples, strict=True)]
        rows = []
        for example, before, whole in zip(examples, self._ids(befores), self._ids(wholes), strict=True):
            boundary = 0
            while boundary < min(len(before), len(whole)) and before[boundary] == whole[boundary]:
                boundary += 1
            prompt, answer = self.front + whole[:boundary], whole[boundary:]
            if not answer or not prompt:
                raise TaskError(
                    f"Expected a prompt and an answer of at least one token each, but example "
                    f"{example.id!r} has {len(prompt)} and {len(answer)}."
                )
            self._refuse_unknown(example)
            rows.append(EncodedExample(example.id, tuple(prompt), tuple(answer)))
        return rows

    def before(self, example: Example) -> str:
        """Return the text up to the answer of an example."""
        if not self._is_chat:
            parts = [example.prompt, example.answer_prefix] if example.answer_prefix else [example.prompt]
            return _join("\n".join(parts), " ", example.answer)
        text = self._render([{"role": "user", "content": example.prompt}], add_generation_prompt=True)
        if not example.answer_prefix:
            return _join(text, self._glue, example.answer)
        return _join(
            _join(text, self._glue, example.answer_prefix) + example.answer_prefix, " ", example.answer
        )

    def _render(self, messages: list[dict[str, str]], *, add_generation_prompt: bool) -> str:
        return str(
            self._tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=add_generation_prompt
            )
        )

    def _template_glue(self) -> str:
        # What the template itself writes between the opening of the model's turn and a reply: nothing for
        # most, a space for some. Templates that insert more than white space (a thinking block) get nothing.
        question = [{"role": "user", "content": "question"}]
        opening = self._render(question, add_generation_prompt=True)
        finished = self._render(
            [*question, {"role": "assistant", "content": "reply"}], add_generation_prompt=False
        )
        glue, found, _ = finished.removeprefix(opening).partition("reply")
        return glue if found and finished.startswith(opening) and not glue.strip() else ""

    def _ids(self, texts: list[str]) -> list[list[int]]:
        encoded = self._tokenizer(texts, add_special_tokens=False, return_attention_mask=False)
        return [list(ids) for ids in encoded["input_ids"]]

    def _refuse_unknown(self, example: Example) -> None:
        unknown = getattr(self._tokenizer, "unk_token_id", None)
        if unknown is None:
            return
        text = f"{example.prompt} {example.answer_prefix} {example.answer}"
        if (
            unknown
            in self._tokenizer(text, add_special_tokens=False, return_attention_mask=False)["input_ids"]
        ):
            raise TaskError(
                f"Expected words that the model's tokenizer knows, but example {example.id!r} has others. "
                "Choose a task that suits the model; the embedded model knows only the task 'recall'."
            )


def _join(before: str, glue: str, after: str) -> str:
    return before if not before or before[-1].isspace() or after[:1].isspace() else before + glue


def _front_ids(tokenizer: Any) -> list[int]:
    """Return the special tokens that the tokenizer puts before a text."""
    with_specials = list(tokenizer("a")["input_ids"])
    plain = list(tokenizer("a", add_special_tokens=False)["input_ids"])
    for start in range(len(with_specials) - len(plain) + 1):
        if with_specials[start : start + len(plain)] == plain:
            return with_specials[:start]
    return []
