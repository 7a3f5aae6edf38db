"""ModelProblem: the scores of a model's answers to the examples of a task, under given scales."""

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import numpy.typing as npt

from lpes_evo.accelerators import input_device
from lpes_evo.errors import EvaluationError, TaskError
from lpes_evo.problems._aggregate import group_of
from lpes_evo.problems._checks import check_count
from lpes_evo.problems._encode import EncodedExample, OverLength
from lpes_evo.problems._encoding import encode_examples
from lpes_evo.problems._example import Example, data_hash
from lpes_evo.problems._gradient import answer_gradient
from lpes_evo.problems._output_scores import OutputScorer
from lpes_evo.problems._pack import Pack, pack_rows
from lpes_evo.problems._problem import Problem, check_curve, check_curves, check_weights
from lpes_evo.problems._score import AnswerScores, default_batch_tokens, score_answers
from lpes_evo.problems._sharing import Sharing, sharing_is_sound
from lpes_evo.problems._task import Kind, Task

if TYPE_CHECKING:
    from lpes_evo.models import LoadedModel

Metric = Literal["log_probability", "accuracy", "score"]


class ModelProblem(Problem):
    """Scores a model's answers to the examples of a task.

    Of several accepted answers the likeliest counts; all of them share the run over the prompt where the model allows
    it. The score of a text without a question is the log-probability of all its tokens.

    The model is patched for the time of one call and is untouched between calls, so several problems may
    share it.

    Args:
        loaded: The model.
        examples: The examples.
        task: The task that made the examples; ``None`` for questions with known answers.
        metric: ``log_probability`` of the answer in nats per token; ``accuracy`` of greedy decoding, 1 where it gives
            an accepted answer, else 0; or ``score``, what the task makes of the output of greedy generation, with the
            sign turned where less is better.
        chat_template: Whether the tokenizer's chat template is used where it has one.
        over_length: The treatment of an example longer than the model's window, see `encode_examples`.
        batch_tokens: Tokens of one forward pass, padding included; ``None`` chooses by the kind of device, see
            `default_batch_tokens`.
        share_prefixes: Whether examples about one text share the run over it where the model allows it.
        checkpointing: Whether `gradient` computes the activations of a layer twice instead of keeping them.

    Attributes:
        n_layers: Number of scales that `score` expects.
        example_ids: Ids of the examples, ``(n_examples,)``.
        positions: Gold positions from 0 to 1, ``None`` where an example has none, ``(n_examples,)``.
        sources: Material of each example, ``(n_examples,)``; examples of one source are not independent.
        groups: ``begin``, ``middle`` or ``end`` for each example, ``all`` without a position, ``(n_examples,)``.
        batch_tokens: Tokens of one forward pass, padding included.
        n_tokens: Tokens, without padding, that one evaluation of all examples forwards.
        sharing: Whether examples about one text share the run over it, and why or why not.
        skipped: Number of examples left out because they exceed the window.
        data_hash: SHA-256 of the examples that are scored.
        is_exact: Whether the model computes in float32 or better, see `Problem`.
        kind: ``likelihood`` for texts, of which all tokens are scored, else ``generate``.
        gradient_cost: Forward passes that `gradient` costs: 3, or 4 with checkpointing.

    Raises:
        TaskError: The metric is unknown or does not go with the task, ``batch_tokens`` is not a positive integer, the
            model has no checkpointing, or the examples cannot be encoded, see `encode_examples`.
    """

    def __init__(
        self,
        loaded: "LoadedModel",
        examples: Sequence[Example],
        *,
        task: Task | None = None,
        metric: Metric = "log_probability",
        chat_template: bool = True,
        over_length: OverLength = "error",
        batch_tokens: int | None = None,
        share_prefixes: bool = True,
        checkpointing: bool = False,
    ) -> None:
        if metric not in get_args(Metric):
            raise TaskError(
                f"Expected the metric to be one of {', '.join(get_args(Metric))}, but got {metric!r}."
            )
        self.kind: Kind = "generate" if task is None else task.kind
        is_text = self.kind == "likelihood"
        _refuse_metric(metric, task)
        if checkpointing and not getattr(loaded.model, "supports_gradient_checkpointing", False):
            raise TaskError(
                f"Expected a model that can checkpoint activations, but {type(loaded.model).__name__} cannot. Leave "
                "checkpointing out, and lower batch_tokens where the memory does not suffice."
            )
        if batch_tokens is None:
            batch_tokens = default_batch_tokens(input_device(loaded.model).type)
        self.batch_tokens = check_count("batch_tokens", batch_tokens)

        encoding = encode_examples(
            examples,
            loaded.tokenizer,
            max_length=loaded.max_length,
            chat_template=chat_template,
            over_length=over_length,
            scored="text" if is_text else "output" if metric == "score" else "every answer",
        )
        rows = [row for rows in encoding.rows_of for row in rows]
        self.sharing = (
            sharing_is_sound(loaded.model, rows, batch_tokens=batch_tokens)
            if share_prefixes
            else Sharing(False, "task.share_prefixes is off")
        )

        self.n_layers = loaded.n_layers
        self.example_ids = tuple(example.id for example in encoding.examples)
        self.positions = tuple(example.position for example in encoding.examples)
        self.sources = tuple(example.source for example in encoding.examples)
        self.groups = tuple(group_of(position) for position in self.positions)
        self.skipped = len(encoding.skipped)
        self.data_hash = data_hash(encoding.examples)
        self.is_exact = loaded.dtype in ("float32", "float64")

        self._loaded = loaded
        self._metric = metric
        self._is_text = is_text
        self._checkpointing = checkpointing
        self._rows = dict(zip(self.example_ids, encoding.rows_of, strict=True))
        self._scorer = (
            OutputScorer(
                loaded, task, encoding.examples, chat_template=chat_template, over_length=over_length
            )
            if task is not None and metric == "score"
            else None
        )

        # Which of several answers is the likeliest takes a forward pass of its own.
        has_choice = not is_text and len(rows) > len(self.example_ids)
        self.gradient_cost = (4 if checkpointing else 3) + has_choice
        self._pack_lengths = tuple(pack.n_tokens for pack in self._packs(self.example_ids))
        self.n_tokens = sum(self._pack_lengths)

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
        scores: npt.NDArray[np.float64] = self._metric_of(
            check_curve(scales, self.n_layers)[None], example_ids
        )[0]
        return scores

    def score_many(
        self, scales: npt.NDArray[np.float64], example_ids: Sequence[str] | None = None
    ) -> npt.NDArray[np.float64]:
        """Score the examples under several curves, which share forward passes.

        Which examples and candidates share a forward pass depends on their numbers alone, never on the scales. So
        calls with equally many candidates and the same examples are comparable in half precision too, where the
        shape of a batch shows in the scores.

        Args:
            scales: The curves, ``(n_candidates, n_layers)``.
            example_ids: The examples to score, in this order; all of them when ``None``.

        Returns:
            The metric of each example under each curve, ``(n_candidates, n_examples)``, higher is better.

        Raises:
            ScalesError: The scales have the wrong shape or a value that is not finite and positive.
            TaskError: An example id is unknown.
            EvaluationError: The model's output is not finite under one of the curves.
        """
        return self._metric_of(check_curves(scales, self.n_layers), example_ids)

    def _metric_of(
        self, curves: npt.NDArray[np.float64], example_ids: Sequence[str] | None
    ) -> npt.NDArray[np.float64]:
        """Return the metric of examples under checked curves, ``(n_candidates, n_examples)``."""
        ids = self._chosen(example_ids)
        if self._scorer is not None:
            return self._scorer.score(curves, ids, self.batch_tokens)

        scores = self._evaluate(curves, ids)
        return scores.correct.astype(np.float64) if self._metric == "accuracy" else scores.log_probability

    def gradient(
        self,
        scales: npt.NDArray[np.float64],
        example_ids: Sequence[str] | None = None,
        weights: npt.NDArray[np.float64] | None = None,
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Score the examples and take the gradient of a weighted sum of the scores, see `Problem.gradient`.

        Args:
            scales: Position divisor of each layer, ``(n_layers,)``.
            example_ids: The examples to score, in this order; all of them when ``None``.
            weights: Weight of each score, ``(n_examples,)``; ``None`` for equal weights with a sum of 1.

        Returns:
            The log-probability of each answer in nats per token, ``(n_examples,)``, and the derivative of their
            weighted sum with respect to each scale, ``(n_layers,)``.

        Raises:
            ScalesError: The scales have the wrong shape or a value that is not finite and positive.
            TaskError: The metric has no gradient, an example id is unknown, or there is not one finite weight for each
                example.
            EvaluationError: The model's output or its gradient is not finite, or the model has no backward pass.
        """
        if self._metric != "log_probability":
            raise TaskError(
                f"Expected the metric log_probability for a gradient, but {self._metric} has none. Set task.metric to "
                "log_probability, or use an algorithm without gradients."
            )

        ids, curve = self._chosen(example_ids), check_curve(scales, self.n_layers)
        chosen = self._likeliest(curve, ids)
        rows = [row for rows in chosen for row in rows]
        of_example = np.array([number for number, rows in enumerate(chosen) for _ in rows], dtype=np.intp)
        parts = np.array([share for rows in chosen for share in _shares(rows)])

        row_scores, gradient = answer_gradient(
            self._loaded.model,
            rows,
            curve,
            check_weights(weights, len(ids))[of_example] * parts,
            batch_tokens=self.batch_tokens,
            share_prefixes=self.sharing.is_sound,
            checkpointing=self._checkpointing,
        )
        scores = np.zeros(len(ids), dtype=np.float64)
        np.add.at(scores, of_example, row_scores * parts)

        _check_finite(scores[None], ids)
        wrong = np.flatnonzero(~np.isfinite(gradient))
        if wrong.size:
            raise EvaluationError(
                f"Expected a finite gradient, but got {gradient[wrong[0]]} for layer {wrong[0]} and {wrong.size} of "
                f"{gradient.size} in all. With float16, try bfloat16 or float32."
            )
        return scores, gradient

    def _likeliest(
        self, curve: npt.NDArray[np.float64], ids: tuple[str, ...]
    ) -> list[tuple[EncodedExample, ...]]:
        """Return the rows of each example that its score depends on: the likeliest answer, or all windows of a text."""
        rows_of = [self._rows[name] for name in ids]
        if self._is_text or all(len(rows) == 1 for rows in rows_of):
            return rows_of

        found = self._row_scores(curve[None], ids).log_probability[0]
        starts = np.cumsum([0, *(len(rows) for rows in rows_of)])
        return [
            (rows[int(np.argmax(found[start : start + len(rows)]))],)
            for rows, start in zip(rows_of, starts[:-1], strict=True)
        ]

    def evaluate(self, scales: npt.ArrayLike, example_ids: Sequence[str] | None = None) -> AnswerScores:
        """Return all metrics of the examples under the given scales.

        Args:
            scales: Position divisor of each layer, ``(n_layers,)``; 1.0 leaves a layer untouched.
            example_ids: The examples to score, in this order; all of them when ``None``.

        Returns:
            Log-probability and correctness of each example, and its score where that is the metric.

        Raises:
            ScalesError: The scales have the wrong shape or a value that is not finite and positive.
            TaskError: An example id is unknown.
            EvaluationError: The model's output is not finite.
        """
        curves, ids = check_curve(scales, self.n_layers)[None], self._chosen(example_ids)
        scores = self._evaluate(curves, ids)
        score = None if self._scorer is None else self._scorer.score(curves, ids, self.batch_tokens)[0]
        return AnswerScores(scores.log_probability[0], scores.correct[0], score)

    @property
    def rows(self) -> tuple[EncodedExample, ...]:
        """Token ids of everything that one evaluation forwards: a row for each answer, or for each window of a text."""
        return tuple(row for rows in self._rows.values() for row in rows)

    def n_tokens_of(self, example_ids: Sequence[str]) -> int:
        """Return the tokens, without padding, that score some examples, see `Problem.n_tokens_of`.

        Args:
            example_ids: The examples.

        Returns:
            The number of tokens; what examples share is counted once.

        Raises:
            TaskError: An example id is unknown.
        """
        if self._scorer is not None:
            return self._scorer.n_tokens_of(self._chosen(example_ids))
        return sum(pack.n_tokens for pack in self._packs(example_ids))

    def n_candidates_that_fit(self, example_ids: Sequence[str]) -> int:
        """Return under how many curves one forward pass can score some examples.

        Args:
            example_ids: The examples.

        Returns:
            The number of candidates, at least 1 although the examples may need several forward passes.

        Raises:
            TaskError: An example id is unknown.
        """
        if self._scorer is not None:
            return 1
        packs = self._packs(example_ids)
        return max(1, self.batch_tokens // (packs[0].n_tokens * len(packs))) if packs else 1

    def smaller(self) -> "ModelProblem | None":
        """Return the same problem with half of ``batch_tokens``, see `Problem.smaller`.

        Returns:
            The problem, which shares model and examples with this one; ``None`` where the largest forward pass
            would stay what it is, that of a single long example or of examples about one text.
        """
        halved = copy.copy(self)
        halved.batch_tokens = self.batch_tokens // 2
        return halved if halved._largest_batch() < self._largest_batch() else None

    def _largest_batch(self) -> int:
        """Return the tokens of the largest forward pass of any number of candidates."""
        return max(length * max(1, self.batch_tokens // length) for length in self._pack_lengths)

    def _packs(self, example_ids: Sequence[str]) -> list[Pack]:
        """Return the packs that score some examples."""
        from lpes_evo.rope import forget_lengths

        rows = [row for name in self._chosen(example_ids) for row in self._rows[name]]
        length_key = forget_lengths(self._loaded.model)

        return pack_rows(rows, share_prefixes=self.sharing.is_sound, length_key=length_key)

    def _chosen(self, example_ids: Sequence[str] | None) -> tuple[str, ...]:
        """Return some example ids, or all for ``None``.

        Raises:
            TaskError: An example id is unknown.
        """
        ids = self.example_ids if example_ids is None else tuple(example_ids)
        unknown = [name for name in ids if name not in self._rows]
        if unknown:
            raise TaskError(
                f"Expected ids among the {len(self._rows)} examples of this problem, but got {unknown[0]!r}. "
                "See its example_ids."
            )
        return ids

    def _evaluate(self, curves: npt.NDArray[np.float64], ids: tuple[str, ...]) -> AnswerScores:
        """Return log-probability and correctness, each ``(n_candidates, n_examples)``."""
        found = self._row_scores(curves, ids)
        rows_of = [self._rows[name] for name in ids]
        if all(len(rows) == 1 for rows in rows_of):
            return found

        starts = np.cumsum([0, *(len(rows) for rows in rows_of[:-1])])
        if self._is_text:
            shares = np.array([share for rows in rows_of for share in _shares(rows)])
            log_probability = np.add.reduceat(found.log_probability * shares, starts, axis=1)
            return AnswerScores(log_probability, np.logical_and.reduceat(found.correct, starts, axis=1))
        return AnswerScores(
            np.maximum.reduceat(found.log_probability, starts, axis=1),
            np.logical_or.reduceat(found.correct, starts, axis=1),
        )

    def _row_scores(self, curves: npt.NDArray[np.float64], ids: tuple[str, ...]) -> AnswerScores:
        """Return log-probability and correctness of every row of some examples, each ``(n_candidates, n_rows)``."""
        rows = [row for name in ids for row in self._rows[name]]
        scores = score_answers(
            self._loaded.model,
            rows,
            scales=curves,
            batch_tokens=self.batch_tokens,
            share_prefixes=self.sharing.is_sound,
        )
        _check_finite(scores.log_probability, tuple(row.id for row in rows))
        return scores


def _shares(rows: Sequence[EncodedExample]) -> npt.NDArray[np.float64]:
    """Return the share of each window in the tokens of a text, ``(n_rows,)``; 1 for an answer alone."""
    lengths = np.array([len(row.answer_ids) for row in rows], dtype=np.float64)
    shares: npt.NDArray[np.float64] = lengths / lengths.sum()
    return shares


def _refuse_metric(metric: Metric, task: Task | None) -> None:
    """Refuse a metric that a task cannot be scored by.

    Raises:
        TaskError: The task has no such metric.
    """
    if metric == "score" and task is None:
        raise TaskError(
            "Expected the task of the examples with the metric score, but got none. Pass task=..."
        )
    if metric != "log_probability" and task is not None and task.kind == "likelihood":
        raise TaskError(
            f"Expected the metric log_probability for {task.name}, of which the likelihood of a text is taken, but got "
            f"{metric}. Leave task.metric out."
        )


def _check_finite(log_probability: npt.NDArray[np.float64], ids: tuple[str, ...]) -> None:
    """Refuse log-probabilities, ``(n_candidates, n_examples)``, that are not finite.

    Raises:
        EvaluationError: One is not; the message names its example.
    """
    wrong = np.argwhere(~np.isfinite(log_probability))
    if wrong.size:
        candidate, row = wrong[0]
        of = f" under candidate {candidate}" if len(log_probability) > 1 else ""
        raise EvaluationError(
            f"Expected finite log-probabilities, but got {log_probability[candidate, row]} for example "
            f"{ids[row]!r}{of} and {len(wrong)} of {log_probability.size} in all. With float16, try "
            "bfloat16 or float32."
        )
