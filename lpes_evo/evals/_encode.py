"""From evaluation examples to token ids: chat template, the model's window, and cuts that keep the question."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from lpes_evo.errors import ModelError
from lpes_evo.evals._task import EvalExample
from lpes_evo.problems import EncodedExample, Example, PromptTexts
from lpes_evo.user_code import error_text

OverLength = Literal["error", "skip", "cut"]
"""What happens to an example that is too long for the window: the run is refused, the example is left out and counted,
or its document loses its middle."""

Mode = Literal["generation", "teacher forcing", "likelihood"]
"""How an example is answered."""


@dataclass(frozen=True)
class PromptFacts:
    """What is known about an encoded example without its tokens.

    Attributes:
        id: The example's id.
        n_prompt: Tokens of the prompt.
        n_answer: Tokens of the known answer, or of the room for one.
        n_cut: Tokens cut out of the document.
        gold_lost: Whether the cut took a part of the fact that is needed.
        n_unknown: Tokens of the prompt that stand for text the tokenizer does not know.
        refusal: Why the model cannot be asked; ``None`` where it can.
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
        facts: What is known about it.
    """

    rows: tuple[EncodedExample, ...]
    facts: PromptFacts

    @property
    def prompt_hash(self) -> str:
        """SHA-256 of the prompt's token ids, 64 hexadecimal digits."""
        digest = hashlib.sha256()
        for row in self.rows:
            digest.update(",".join(map(str, row.prompt_ids)).encode() + b";")
        return digest.hexdigest()


@dataclass(frozen=True)
class PromptEncoder:
    """Turns examples into token ids.

    Prompts are rendered by the tokenizer's chat template, and the model's turn begun with the example's prefix, as
    `lpes_evo.problems.encode_examples` does. A text whose likelihood is taken gets no template.

    Attributes:
        tokenizer: A tokenizer of transformers.
        max_length: Window in tokens.
        chat_template: Whether the tokenizer's chat template is used where it has one.
        over_length: What happens to an example that is too long.
    """

    tokenizer: Any
    max_length: int
    chat_template: bool = True
    over_length: OverLength = "error"

    def encode(self, example: EvalExample, mode: Mode) -> EncodedPrompt:
        """Encode one example.

        With ``over_length="cut"`` the tokens in the middle of the example's ``cut`` span are taken out, as many as it
        takes: equal shares of both ends stay, what stands outside stays whole, and no character is split.

        Args:
            example: The example.
            mode: How it will be answered.

        Returns:
            The encoded example; its facts hold a refusal where it does not fit.

        Raises:
            ModelError: The model's chat template refuses the prompt.
        """
        if mode == "likelihood":
            return self._encode_text(example)
        # An answer that is a space leaves the text before it as it is.
        answer = example.answers[0] if mode == "teacher forcing" else " "
        before, front = self._render(example, answer)
        ids, offsets = self._tokenize(before)
        answer_ids: list[int] = []
        n_answer = example.max_new_tokens
        if mode == "teacher forcing":
            whole = self._tokenize(before + answer)[0]
            boundary = _n_common(ids, whole)
            ids, offsets, answer_ids = ids[:boundary], offsets[:boundary], whole[boundary:]
            n_answer = len(answer_ids)
        excess = len(front) + len(ids) + n_answer - self.max_length
        n_unknown = self._n_unknown(ids)
        gold_lost, n_cut, refusal = False, 0, None
        if excess > 0:
            gap, refusal = self._gap(example, before, offsets, excess)
            if refusal is None:
                n_cut = len(gap)
                gold_lost = _loses_gold(example, before, offsets, gap)
                ids = ids[: gap.start] + ids[gap.stop :]
        row = EncodedExample(example.id, tuple(front + ids), tuple(answer_ids))
        n_prompt = len(row.prompt_ids)
        return EncodedPrompt(
            (row,),
            PromptFacts(example.id, n_prompt, n_answer, n_cut, gold_lost, n_unknown, refusal),
        )

    def _render(self, example: EvalExample, answer: str) -> tuple[str, list[int]]:
        """Return the text up to the answer, and the special tokens before it."""
        try:
            texts = PromptTexts(self.tokenizer, self.chat_template)
            asked = Example(example.id, 0.0, example.prompt, answer, "", example.answer_prefix)
            return texts.before(asked), texts.front
        except (
            Exception
        ) as error:  # a chat template is a program of the model's makers, and can raise anything
            if not self.chat_template or not getattr(self.tokenizer, "chat_template", None):
                raise
            raise ModelError(
                f"Expected the chat template of the model to render the prompt of {example.id!r:.80}, but it raised "
                f"{error_text(error)}. Leave the template out with --no-chat-template."
            ) from error

    def _tokenize(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the ids of a text, and the characters that each stands for where the tokenizer tells them."""
        is_fast = bool(getattr(self.tokenizer, "is_fast", False))
        encoded = self.tokenizer(
            text,
            add_special_tokens=False,
            return_attention_mask=False,
            return_offsets_mapping=is_fast,
            verbose=False,
        )
        offsets = encoded["offset_mapping"] if is_fast else []
        return list(encoded["input_ids"]), [(start, end) for start, end in offsets]

    def _n_unknown(self, ids: Sequence[int]) -> int:
        unknown = getattr(self.tokenizer, "unk_token_id", None)
        # Some tokenizers name an ordinary token, such as the end of the text, as the unknown one.
        is_special = unknown is not None and unknown not in (
            self.tokenizer.eos_token_id,
            self.tokenizer.pad_token_id,
            self.tokenizer.bos_token_id,
        )
        return sum(token == unknown for token in ids) if is_special else 0

    def _gap(
        self, example: EvalExample, before: str, offsets: list[tuple[int, int]], excess: int
    ) -> tuple[range, str | None]:
        """Return the tokens to take out, or why that cannot be done."""
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

    def _encode_text(self, example: EvalExample) -> EncodedPrompt:
        """Encode a text whose likelihood is taken; without a prompt, in as many windows as it needs."""
        front = list(PromptTexts(self.tokenizer, chat_template=False).front)
        text = example.answers[0]
        ids = self._tokenize(example.prompt + text)[0]
        n_given = _n_common(self._tokenize(example.prompt)[0], ids) if example.prompt else 0
        if example.prompt:
            rows = [EncodedExample(example.id, tuple(front + ids[:n_given]), tuple(ids[n_given:]))]
        else:
            size = self.max_length - len(front)
            windows = [front + ids[start : start + size] for start in range(0, len(ids), max(size, 1))]
            # Nothing predicts the first token of a window that begins with no special token.
            n_first = max(len(front), 1)
            rows = [
                EncodedExample(example.id, tuple(window[:n_first]), tuple(window[n_first:]))
                for window in windows
                if len(window) > n_first
            ]
        longest = max((len(row.prompt_ids) + len(row.answer_ids) for row in rows), default=0)
        refusal = None
        if not rows or not all(row.prompt_ids and row.answer_ids for row in rows):
            refusal = "its text has no token that another comes before"
        elif longest > self.max_length:
            refusal = f"it has {longest} tokens, and the window has {self.max_length}"
        facts = PromptFacts(
            example.id,
            n_prompt=sum(len(row.prompt_ids) for row in rows),
            n_answer=sum(len(row.answer_ids) for row in rows),
            n_unknown=self._n_unknown(ids),
            refusal=refusal,
        )
        return EncodedPrompt(tuple(rows), facts)


def _n_common(first: Sequence[int], second: Sequence[int]) -> int:
    """Return how many ids two sequences share at the front."""
    limit = min(len(first), len(second))
    return next((place for place in range(limit) if first[place] != second[place]), limit)


def _place(example: EvalExample, before: str, span: tuple[int, int]) -> tuple[int, int] | None:
    """Return where a span of the prompt stands in the rendered text; templates may strip the prompt."""
    stripped = example.prompt.strip()
    start = before.find(stripped)
    if start < 0:
        return None
    shift = start - (len(example.prompt) - len(example.prompt.lstrip()))
    return span[0] + shift, span[1] + shift


def _loses_gold(example: EvalExample, before: str, offsets: list[tuple[int, int]], gap: range) -> bool:
    """Return whether the tokens of the gap hold a part of the needed fact."""
    gold = None if example.gold is None else _place(example, before, example.gold)
    return gold is not None and any(
        offsets[index][0] < gold[1] and offsets[index][1] > gold[0] for index in gap
    )
