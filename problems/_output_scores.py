"""OutputScorer: what a task makes of the outputs of greedy generation under given scales."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lpes_evo.errors import EvaluationError
from lpes_evo.problems._encode import OverLength, PromptEncoder
from lpes_evo.problems._example import Example
from lpes_evo.problems._generate import end_ids, generate_greedy
from lpes_evo.problems._task import Task
from lpes_evo.problems._task_calls import headline_of, score_output

if TYPE_CHECKING:
    from lpes_evo.models import LoadedModel


class OutputScorer:
    """Lets a model answer examples by greedy generation, and lets their task score the outputs.

    The score of an example is the headline of the task for this example alone, such as the F1 of its words, with the
    sign turned where less is better.

    Args:
        loaded: The model.
        task: The task.
        examples: Its examples, whose prompts fit the window together with the room for an output.
        chat_template: Whether the tokenizer's chat template is used where it has one.
        over_length: The treatment of an example that is longer than the window.
    """

    def __init__(
        self,
        loaded: "LoadedModel",
        task: Task,
        examples: Sequence[Example],
        *,
        chat_template: bool,
        over_length: OverLength,
    ) -> None:
        encoder = PromptEncoder(loaded.tokenizer, loaded.max_length, chat_template, over_length)
        self._loaded = loaded
        self._task = task
        self._examples = {example.id: example for example in examples}
        self._prompts = {
            example.id: encoder.encode(example, "generation").rows[0].prompt_ids for example in examples
        }

    def n_tokens_of(self, example_ids: Sequence[str]) -> int:
        """Return the most tokens that answering some examples forwards: their prompts and the room for outputs."""
        return sum(len(self._prompts[name]) + self._examples[name].max_new_tokens for name in example_ids)

    def score(
        self, curves: npt.NDArray[np.float64], example_ids: Sequence[str], batch_tokens: int
    ) -> npt.NDArray[np.float64]:
        """Score the outputs to some examples under several curves, one curve after the other.

        Args:
            curves: The curves, ``(n_candidates, n_layers)``.
            example_ids: The examples.
            batch_tokens: Tokens of one batch, padding and room for outputs included.

        Returns:
            The scores, ``(n_candidates, n_examples)``, higher is better.

        Raises:
            TaskError: The code of the task fails.
            EvaluationError: The model's output is not finite.
        """
        from lpes_evo.rope import patch_rope

        outputs = []
        for curve in curves:
            with patch_rope(self._loaded.model, curve):
                outputs.append(self._answer(example_ids, batch_tokens))

        return np.array(
            [
                [self._score_of(name, output) for name, output in zip(example_ids, texts, strict=True)]
                for texts in outputs
            ]
        ).reshape(len(curves), len(example_ids))

    def _answer(self, example_ids: Sequence[str], batch_tokens: int) -> list[str]:
        """Return the outputs to some examples under the scales in force."""
        tokenizer, model = self._loaded.tokenizer, self._loaded.model
        ends = end_ids(model, tokenizer)

        # The longest come first, as prompts of one length leave least padding.
        texts: dict[str, str] = {}
        for batch in self._batches(example_ids, batch_tokens):
            found = generate_greedy(
                model,
                [self._prompts[name] for name in batch],
                [self._examples[name].max_new_tokens for name in batch],
                ends=ends,
                pad_id=tokenizer.pad_token_id or 0,
            )
            for name, said in zip(batch, found, strict=True):
                if not said.is_finite:
                    raise EvaluationError(
                        f"Expected finite logits, but the output to {name!r} has others. With float16, try bfloat16 or "
                        "float32."
                    )
                texts[name] = tokenizer.decode(said.ids, skip_special_tokens=True)
        return [texts[name] for name in example_ids]

    def _batches(self, example_ids: Sequence[str], batch_tokens: int) -> list[list[str]]:
        """Return the examples in batches of similar lengths, each within some tokens or alone."""
        order = sorted(example_ids, key=lambda name: -len(self._prompts[name]))
        room = max(self._examples[name].max_new_tokens for name in order)

        batches: list[list[str]] = []
        for name in order:
            if batches:
                width = len(self._prompts[batches[-1][0]]) + room
                if (len(batches[-1]) + 1) * width <= batch_tokens:
                    batches[-1].append(name)
                    continue
            batches.append([name])
        return batches

    def _score_of(self, name: str, output: str) -> float:
        """Return the score of one output, higher is better."""
        parts = score_output(self._task, output, self._examples[name])
        headline = headline_of(self._task)
        value = parts[0] if headline is None else headline(np.array([parts]))
        return value if self._task.larger_is_better else -value
