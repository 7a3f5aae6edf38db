"""The problem a search solves on a real model: how well it answers under given scales."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import numpy.typing as npt

from lpes_evo.errors import EvaluationError, ScalesError, TaskError
from lpes_evo.problems._aggregate import group_of
from lpes_evo.problems._encode import OverLength, encode_examples
from lpes_evo.problems._pack import batches, pack_rows
from lpes_evo.problems._problem import Problem
from lpes_evo.problems._score import DEFAULT_BATCH_TOKENS, AnswerScores, score_answers, sharing_is_sound
from lpes_evo.problems._task import Example, data_hash
from lpes_evo.scales import check_scales

if TYPE_CHECKING:
    from lpes_evo.models import LoadedModel

Metric = Literal["log_probability", "accuracy"]


class ModelProblem(Problem):
    """Scores a model's answers to the examples of a task.

    The model is patched for the time of one call and is untouched between calls, so several problems may
    share it.

    Args:
        loaded: The model.
        examples: The examples.
        metric: ``log_probability`` of the answer in nats per token, or ``accuracy`` of greedy decoding (0 or
            1).
        chat_template: Whether the tokenizer's chat template is used where it has one.
        over_length: What happens to an example longer than the model's window: ``error``, or ``skip`` and
            count it.
        batch_tokens: Tokens of one forward pass, padding included.
        share_prefixes: Whether examples about one text share the run over it where the model allows it.

    Attributes:
        n_layers: Number of scales that `score` expects.
        example_ids: Ids of the examples, ``(n_examples,)``.
        positions: Gold positions from 0 to 1, ``(n_examples,)``.
        sources: What each example is made of, ``(n_examples,)``; examples of one source are not independent.
        groups: ``begin``, ``middle`` or ``end`` for each example, ``(n_examples,)``.
        n_tokens: Tokens, without padding, that one evaluation of all examples forwards.
        skipped: Number of examples left out because they exceed the window.
        data_hash: SHA-256 of the examples that are scored.

    Raises:
        TaskError: The metric is unknown, ``batch_tokens`` is not a positive integer, or the examples cannot be
            encoded, see `encode_examples`.
    """

    def __init__(
        self,
        loaded: "LoadedModel",
        examples: Sequence[Example],
        *,
        metric: Metric = "log_probability",
        chat_template: bool = True,
        over_length: OverLength = "error",
        batch_tokens: int = DEFAULT_BATCH_TOKENS,
        share_prefixes: bool = True,
    ) -> None:
        if metric not in get_args(Metric):
            raise TaskError(
                f"Expected the metric to be one of {', '.join(get_args(Metric))}, but got {metric!r}."
            )
        encoding = encode_examples(
            examples,
            loaded.tokenizer,
            max_length=loaded.max_length,
            chat_template=chat_template,
            over_length=over_length,
        )
        self._share_prefixes = share_prefixes and sharing_is_sound(loaded.model, encoding.rows)
        packs = pack_rows(encoding.rows, share_prefixes=self._share_prefixes)
        # Checks batch_tokens now instead of in the first evaluation.
        list(batches(packs, batch_tokens))
        self.n_layers = loaded.n_layers
        self.example_ids = tuple(example.id for example in encoding.examples)
        self.positions = tuple(example.position for example in encoding.examples)
        self.sources = tuple(example.source for example in encoding.examples)
        self.groups = tuple(group_of(position) for position in self.positions)
        self.n_tokens = sum(pack.n_tokens for pack in packs)
        self.skipped = len(encoding.skipped)
        self.data_hash = data_hash(encoding.examples)
        self._loaded = loaded
        self._metric = metric
        self._batch_tokens = batch_tokens
        self._rows = dict(zip(self.example_ids, encoding.rows, strict=True))

    def score(
        self, scales: npt.NDArray[np.float64], example_ids: Sequence[str] | None = None
    ) -> npt.NDArray[np.float64]:
        """Score the examples under the given scales, see `Problem.score`.

        Args:
            scales: Position divisor of each layer, ``(n_layers,)``; 1.0 leaves a layer untouched.
            example_ids: The examples to score, in this order; all of them when ``None``.

        Returns:
            The metric of each example, ``(n_examples,)``, higher is better.

        Raises:
            ScalesError: The scales have the wrong shape or a value that is not finite and positive.
            TaskError: An example id is unknown.
            EvaluationError: The model's output is not finite.
        """
        scores = self.evaluate(scales, example_ids)
        if self._metric == "accuracy":
            return scores.correct.astype(np.float64)
        return scores.log_probability

    def evaluate(self, scales: npt.ArrayLike, example_ids: Sequence[str] | None = None) -> AnswerScores:
        """Return both metrics of the examples under the given scales.

        Args:
            scales: Position divisor of each layer, ``(n_layers,)``; 1.0 leaves a layer untouched.
            example_ids: The examples to score, in this order; all of them when ``None``.

        Returns:
            Log-probability and correctness of each example.

        Raises:
            ScalesError: The scales have the wrong shape or a value that is not finite and positive.
            TaskError: An example id is unknown.
            EvaluationError: The model's output is not finite.
        """
        from lpes_evo.rope import patch_rope

        divisors = check_scales(scales, self.n_layers)
        if divisors.ndim != 1:
            raise ScalesError(
                f"Expected scales of shape (n_layers,) = ({self.n_layers},), but got {divisors.shape}. "
                "Score one curve at a time."
            )
        ids = self.example_ids if example_ids is None else tuple(example_ids)
        unknown = [name for name in ids if name not in self._rows]
        if unknown:
            raise TaskError(
                f"Expected ids among the {len(self._rows)} examples of this problem, but got {unknown[0]!r}. "
                "See its example_ids."
            )
        with patch_rope(self._loaded.model, divisors):
            scores = score_answers(
                self._loaded.model,
                [self._rows[name] for name in ids],
                batch_tokens=self._batch_tokens,
                share_prefixes=self._share_prefixes,
            )
        wrong = np.flatnonzero(~np.isfinite(scores.log_probability))
        if wrong.size:
            raise EvaluationError(
                f"Expected finite log-probabilities, but got {scores.log_probability[wrong[0]]} for example "
                f"{ids[wrong[0]]!r} and {wrong.size} of {len(ids)} in all. With float16, try bfloat16 or "
                "float32."
            )
        return scores
