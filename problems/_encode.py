"""PromptEncoder: token ids of examples, with chat template, answer boundary, window and cuts that keep the question."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from lpes_evo.errors import ModelError, TaskError
from lpes_evo.problems._example import Example
from lpes_evo.user_code import error_text

OverLength = Literal["error", "skip", "cut"]
"""The treatment of an example that is too long for the window: the run is refused, the example is left out and counted,
or its document loses its middle."""

Mode = Literal["generation", "teacher forcing", "likelihood"]
"""The way in which an example is answered."""


@dataclass(frozen=True)
class EncodedExample:
    """The token ids of one forward pass.

    Attributes:
        id: The example's id.
        prompt_ids: Tokens that the model is given, ``(n_prompt,)``.
        answer_ids: Tokens that it should answer with, ``(n_answer,)``.
    """

    id: str
    prompt_ids: tuple[int, ...]
    answer_ids: tuple[int, ...]

    @property
    def n_tokens(self) -> int:
        """Tokens of the forward pass that scores the example: all but the last of prompt and answer."""
        return len(self.prompt_ids) + len(self.answer_ids) - 1


@dataclass(frozen=True)
class PromptSummary:
    """The facts about an encoded example without its tokens.

    Attributes:
        id: The example's id.
        n_prompt: Tokens of the prompt.
        n_answer: Tokens of the known answer, or of the room for one.
        n_cut: Tokens cut out of the document.
        gold_lost: Whether the cut took a part of the fact that is needed.
        n_unknown: Tokens of the prompt that stand for text the tokenizer does not know.
        refusal: The reason why the model cannot be asked; ``None`` where it can.
    """

    id: str
    n_prompt: int
    n_answer: int
    n_cut: int = 0
    gold_lost: bool = False
    n_unknown: int = 0
    refusal: str | None = None


@dataclass(frozen=True)
class EncodedPrompt:
    """An example as the model gets it.

    Attributes:
        rows: Its token ids. Without an answer for generation; several windows for a text that exceeds the window.
        summary: The facts about it without the tokens.
    """

    rows: tuple[EncodedExample, ...]
    summary: PromptSummary

    @property
    def prompt_hash(self) -> str:
        """SHA-256 of the prompt's token ids, 64 hexadecimal digits."""
        digest = hashlib.sha256()
        for row in self.rows:
            digest.update(",".join(map(str, row.prompt_ids)).encode() + b";")
        return digest.hexdigest()


class PromptEncoder:
    """Turns examples into token ids.

    The text of a question is ``template(prompt)``, ``answer_prefix`` and the answer; without a template it is
    ``prompt``, the prefix on a line of its own, and the answer. A space comes before the prefix and the answer where no
    white space stands yet; at the beginning of a turn the template's own habit decides. A text whose likelihood is
    taken gets no template.

    The text is tokenized as a whole, as the model would have met it in training, and split at the first token
    that is not also in the tokenization of the text before the answer. So a tokenizer that has one token for
    a space and a number, and one that has several, are both asked for what comes naturally to them. Special
    tokens at the front come from the template or else from the tokenizer's default, never from both, and nothing
    is appended.

    Attributes:
        tokenizer: A tokenizer of transformers.
        max_length: Window of the model in tokens; ``None`` for no limit.
        chat_template: Whether the tokenizer's chat template is used where it has one.
        over_length: The treatment of an example that is too long; all but ``cut`` refuse it.
    """

    def __init__(
        self,
        tokenizer: Any,
        max_length: int | None = None,
        chat_template: bool = True,
        over_length: OverLength = "error",
    ) -> None:
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.chat_template = chat_template and bool(getattr(tokenizer, "chat_template", None))
        self.over_length = over_length

    @cached_property
    def default_front(self) -> tuple[int, ...]:
        """The special tokens that the tokenizer puts before a text."""
        with_specials = list(self.tokenizer("a")["input_ids"])
        plain = list(self.tokenizer("a", add_special_tokens=False)["input_ids"])
        for start in range(len(with_specials) - len(plain) + 1):
            if with_specials[start : start + len(plain)] == plain:
                return tuple(with_specials[:start])
        return ()

    @property
    def front(self) -> tuple[int, ...]:
        """The special tokens before the text of a question, which a template writes itself."""
        return () if self.chat_template else self.default_front

    @cached_property
    def unknown_id(self) -> int | None:
        """The token that stands for text which the tokenizer does not know; ``None`` where there is none."""
        unknown: int | None = getattr(self.tokenizer, "unk_token_id", None)
        # Some tokenizers name an ordinary token, such as the end of the text, as the unknown one.
        ordinary = (
            self.tokenizer.eos_token_id,
            self.tokenizer.pad_token_id,
            self.tokenizer.bos_token_id,
        )
        return None if unknown in ordinary else unknown

    def encode(self, example: Example, mode: Mode) -> EncodedPrompt:
        """Encode one example.

        With ``over_length="cut"`` the tokens in the middle of the example's ``cut`` span are taken out, as many as it
        takes: equal shares of both ends stay, what stands outside stays whole, and no character is split.

        Args:
            example: The example.
            mode: The way in which it will be answered.

        Returns:
            The encoded example; its summary holds a refusal where it does not fit.

        Raises:
            ModelError: The model's chat template refuses the prompt.
            TaskError: An example for teacher forcing has no token of a prompt or of an answer.
        """
        if mode == "likelihood":
            return self._encode_text(example)

        # An answer that is a space leaves the text before it as it is.
        answer = example.answer if mode == "teacher forcing" else " "
        before = self.text_before(example, answer)
        ids = self._ids(before)
        answer_ids: list[int] = []
        n_answer = example.max_new_tokens
        if mode == "teacher forcing":
            whole = self._ids(before + answer)
            boundary = _n_common(ids, whole)
            ids, answer_ids = ids[:boundary], whole[boundary:]
            n_answer = len(answer_ids)
            if not answer_ids or not (self.front or ids):
                raise TaskError(
                    f"Expected a prompt and an answer of at least one token each, but example {example.id!r} has "
                    f"{len(self.front) + len(ids)} and {len(answer_ids)}."
                )

        n_unknown = self.n_unknown(ids)
        excess = 0 if self.max_length is None else len(self.front) + len(ids) + n_answer - self.max_length
        gold_lost, n_cut, refusal = False, 0, None
        if excess > 0:
            offsets = self._offsets(before)[: len(ids)] if self.over_length == "cut" else []
            gap, refusal = self._gap(example, before, offsets, excess)
            if refusal is None:
                n_cut = len(gap)
                gold_lost = _loses_gold(example, before, offsets, gap)
                ids = ids[: gap.start] + ids[gap.stop :]

        row = EncodedExample(example.id, self.front + tuple(ids), tuple(answer_ids))
        n_prompt = len(row.prompt_ids)
        return EncodedPrompt(
            (row,),
            PromptSummary(example.id, n_prompt, n_answer, n_cut, gold_lost, n_unknown, refusal),
        )

    def text_before(self, example: Example, answer: str) -> str:
        """Return the text up to the answer.

        Args:
            example: The example.
            answer: The answer that follows; where it begins with white space, none is put before it.

        Returns:
            The text, template included, without the special tokens at the front.

        Raises:
            ModelError: The model's chat template refuses the prompt.
        """
        if not self.chat_template:
            parts = [example.prompt, example.answer_prefix] if example.answer_prefix else [example.prompt]
            return _join("\n".join(parts), " ", answer)

        with _explained(example):
            text = self._render([{"role": "user", "content": example.prompt}], add_generation_prompt=True)
            glue = self._template_glue
        if not example.answer_prefix:
            return _join(text, glue, answer)
        return _join(_join(text, glue, example.answer_prefix) + example.answer_prefix, " ", answer)

    def n_unknown(self, ids: Sequence[int]) -> int:
        """Return how many tokens stand for text that the tokenizer does not know."""
        return 0 if self.unknown_id is None else sum(token == self.unknown_id for token in ids)

    def _render(self, messages: list[dict[str, str]], *, add_generation_prompt: bool) -> str:
        """Return messages as the chat template writes them."""
        return str(
            self.tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=add_generation_prompt
            )
        )

    @cached_property
    def _template_glue(self) -> str:
        """The text that the template writes between the opening of the model's turn and a reply.

        It is empty for most templates, and a space for some. A template that inserts more than white space, such as a
        thinking block, gets nothing.
        """
        question = [{"role": "user", "content": "question"}]
        opening = self._render(question, add_generation_prompt=True)
        finished = self._render(
            [*question, {"role": "assistant", "content": "reply"}], add_generation_prompt=False
        )
        glue, found, _ = finished.removeprefix(opening).partition("reply")
        return glue if found and finished.startswith(opening) and not glue.strip() else ""

    def _ids(self, text: str) -> list[int]:
        """Return the token ids of a text, without special tokens of the tokenizer."""
        encoded = self.tokenizer(text, add_special_tokens=False, return_attention_mask=False, verbose=False)
        return list(encoded["input_ids"])

    def _offsets(self, text: str) -> list[tuple[int, int]]:
        """Return the characters that each token of a text stands for; none where the tokenizer does not tell."""
        if not getattr(self.tokenizer, "is_fast", False):
            return []
        encoded = self.tokenizer(
            text,
            add_special_tokens=False,
            return_attention_mask=False,
            return_offsets_mapping=True,
            verbose=False,
        )
        return [(start, end) for start, end in encoded["offset_mapping"]]

    def _gap(
        self, example: Example, before: str, offsets: list[tuple[int, int]], excess: int
    ) -> tuple[range, str | None]:
        """Return the tokens to take out, or the reason why that cannot be done."""
        too_long = (
            f"it is {excess} tokens longer than the window of {self.max_length} tokens, answer included"
        )
        if self.over_length != "cut":
            return range(0), too_long
        if example.cut is None:
            return range(0), f"{too_long}, and no part of it may be cut"
        if not offsets:
            return range(0), f"{too_long}, and the tokenizer does not tell where a document begins"

        span = _place(example, before, example.cut)
        if span is None:
            return range(0), f"{too_long}, and the chat template changes the prompt, so it cannot be cut"
        inside = [index for index, (start, end) in enumerate(offsets) if span[0] <= start < end <= span[1]]
        kept = len(inside) - excess
        if kept < 1:
            return range(0), f"{too_long}, and its document has only {len(inside)} tokens"

        first, last = inside[0], inside[-1] + 1
        left, right = first + (kept + 1) // 2, last - kept // 2
        # Several tokens can stand for one character; none of them may be left alone.
        while left > first and offsets[left - 1][1] > offsets[left][0]:
            left -= 1
        while right < last and offsets[right][0] < offsets[right - 1][1]:
            right += 1
        return range(left, right), None

    def _encode_text(self, example: Example) -> EncodedPrompt:
        """Encode a text whose likelihood is taken; without a prompt, in as many windows as it needs."""
        front, text = self.default_front, example.answer
        ids = self._ids(example.prompt + text)
        n_given = _n_common(self._ids(example.prompt), ids) if example.prompt else 0
        if example.prompt:
            rows = [EncodedExample(example.id, front + tuple(ids[:n_given]), tuple(ids[n_given:]))]
        else:
            size = len(ids) if self.max_length is None else self.max_length - len(front)
            windows = [front + tuple(ids[start : start + size]) for start in range(0, len(ids), max(size, 1))]
            # Nothing predicts the first token of a window that begins with no special token.
            n_first = max(len(front), 1)
            rows = [
                EncodedExample(example.id, window[:n_first], window[n_first:])
                for window in windows
                if len(window) > n_first
            ]

        longest = max((len(row.prompt_ids) + len(row.answer_ids) for row in rows), default=0)
        refusal = None
        if not rows or not all(row.prompt_ids and row.answer_ids for row in rows):
            refusal = "its text has no token that another comes before"
        elif self.max_length is not None and longest > self.max_length:
            refusal = f"it has {longest} tokens, and the window has {self.max_length}"
        summary = PromptSummary(
            example.id,
            n_prompt=sum(len(row.prompt_ids) for row in rows),
            n_answer=sum(len(row.answer_ids) for row in rows),
            n_unknown=self.n_unknown(ids),
            refusal=refusal,
        )
        return EncodedPrompt(tuple(rows), summary)


@contextmanager
def _explained(example: Example) -> Iterator[None]:
    """Say in one line what a chat template raises, for the length of a block."""
    try:
        yield
    except Exception as error:  # a chat template is a program of the model's makers, and can raise anything
        raise ModelError(
            f"Expected the chat template of the model to render the prompt of {example.id!r:.80}, but it raised "
            f"{error_text(error)}. Leave the template out with --no-chat-template, or with chat_template=False."
        ) from error


def _join(before: str, glue: str, after: str) -> str:
    """Return a text with the glue behind it, where no white space separates it from what follows."""
    return before if not before or before[-1].isspace() or after[:1].isspace() else before + glue


def _n_common(first: Sequence[int], second: Sequence[int]) -> int:
    """Return how many ids two sequences share at the front."""
    limit = min(len(first), len(second))
    return next((place for place in range(limit) if first[place] != second[place]), limit)


def _place(example: Example, before: str, span: tuple[int, int]) -> tuple[int, int] | None:
    """Return where a span of the prompt stands in the rendered text; templates may strip the prompt."""
    stripped = example.prompt.strip()
    start = before.find(stripped)
    if start < 0:
        return None
    shift = start - (len(example.prompt) - len(example.prompt.lstrip()))
    return span[0] + shift, span[1] + shift


def _loses_gold(example: Example, before: str, offsets: list[tuple[int, int]], gap: range) -> bool:
    """Return whether the tokens of the gap hold a part of the needed fact."""
    gold = None if example.gold is None else _place(example, before, example.gold)
    return gold is not None and any(
        offsets[index][0] < gold[1] and offsets[index][1] > gold[0] for index in gap
    )
