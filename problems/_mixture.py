"""MixtureProblem: several tasks as one problem, some of them searched and some of them guards."""

import copy
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lpes_evo.errors import TaskError
from lpes_evo.problems._problem import Problem, check_curve, check_curves, check_weights
from lpes_evo.problems._score import AnswerScores
from lpes_evo.problems._sharing import Sharing
from lpes_evo.problems._task import Kind

DEFAULT_TOLERANCE = 0.02
"""Nats per token that a guard may lose, 2 % of perplexity. The choice is ours."""


@dataclass(frozen=True)
class Mixture:
    """How the examples of several tasks are put together.

    Attributes:
        tasks: Name of the task of each example, ``(n_examples,)``.
        sets: Name of the set of each example within its task, ``(n_examples,)``.
        weights: Weight of each searched task in the fitness.
        guards: Tolerance of each task that must not become worse, in units of its scores.
        texts: The tasks of known texts, whose examples are neither right nor wrong.
    """

    tasks: tuple[str, ...]
    sets: tuple[str, ...]
    weights: dict[str, float]
    guards: dict[str, float]
    texts: tuple[str, ...] = ()


class MixtureProblem(Problem):
    """Scores the examples of several problems under one curve, each problem in forward passes of its own.

    The scores are those of the parts, in their units. An `lpes_evo.execution.Evaluator` makes them comparable: it
    measures the untouched model once, and turns each score into the gain over it. So no worker needs to know the scores
    of the untouched model, and a worker that is replaced, or that computes on another device, cannot shift them.

    Args:
        searched: The problem of each task that a search improves, by its name.
        weights: Weight of each of these tasks in the fitness; 1 for those that are not given.
        guarded: The problem of each guard by its name.
        tolerances: How much each guard may lose, in units of its scores; `DEFAULT_TOLERANCE` for those not given.

    Attributes:
        mixture: How the examples are put together.
        kind: ``likelihood`` where known texts alone are searched, else ``generate``.
        positions: Gold positions of the examples, ``(n_examples,)``; ``None`` where there is none.
        n_tokens: Tokens, without padding, that one evaluation of all examples forwards.
        sharing: Whether the examples about one text share the run over it in every part.
        skipped: Number of examples that the parts left out.
        data_hash: SHA-256 of the examples of all parts.

    Raises:
        TaskError: There is no searched task, the parts differ in their numbers of layers, a weight or a tolerance
            belongs to no part or is out of range.
    """

    def __init__(
        self,
        searched: Mapping[str, Problem],
        weights: Mapping[str, float] | None = None,
        *,
        guarded: Mapping[str, Problem] | None = None,
        tolerances: Mapping[str, float] | None = None,
    ) -> None:
        guarded = guarded if guarded is not None else {}
        self._parts = _parts_of(searched, guarded)
        self.n_layers = next(iter(self._parts.values())).n_layers

        # Names of examples, sets and sources are made distinct: two tasks may use the same.
        named = [
            (task, part, row) for task, part in self._parts.items() for row in range(len(part.example_ids))
        ]
        self.example_ids = tuple(f"{task}/{part.example_ids[row]}" for task, part, row in named)
        self.groups = tuple(f"{task}/{part.groups[row]}" for task, part, row in named)
        self._sources = tuple(f"{task}/{part.sources[row]}" for task, part, row in named)
        self.mixture = Mixture(
            tasks=tuple(task for task, _, _ in named),
            sets=tuple(part.groups[row] for _, part, row in named),
            weights=_settings_of(searched, weights, 1.0, "weight", least_is_zero=False),
            guards=_settings_of(guarded, tolerances, DEFAULT_TOLERANCE, "tolerance", least_is_zero=True),
            texts=tuple(task for task, part in self._parts.items() if _kind_of(part) == "likelihood"),
        )
        self._place = {
            name: (task, part.example_ids[row])
            for name, (task, part, row) in zip(self.example_ids, named, strict=True)
        }

        self.kind = "likelihood" if {*searched} <= {*self.mixture.texts} else "generate"
        parts = self._parts.values()
        self.positions = tuple(position for part in parts for position in _positions_of(part))
        self.n_tokens = sum(getattr(part, "n_tokens", 0) for part in parts)
        self.sharing = _sharing_of(self._parts)
        self.skipped = sum(getattr(part, "skipped", 0) for part in parts)
        self.data_hash = _hash_of(self._parts)
        self.is_exact = all(part.is_exact for part in parts)
        self.gradient_cost = max(part.gradient_cost for part in searched.values())

    @property
    def parts(self) -> dict[str, Problem]:
        """The problem of each task, the searched ones first, then the guards."""
        return dict(self._parts)

    @property
    def sources(self) -> tuple[str, ...]:
        """Material of each example, ``(n_examples,)``; tasks have none in common."""
        return self._sources

    @property
    def has_gradient(self) -> bool:
        """Whether every searched part defines a gradient."""
        return all(self._parts[task].has_gradient for task in self.mixture.weights)

    def score(
        self, scales: npt.NDArray[np.float64], example_ids: Sequence[str] | None = None
    ) -> npt.NDArray[np.float64]:
        """Score the examples under one curve, see `Problem.score`.

        Args:
            scales: Position divisor of each layer, ``(n_layers,)``.
            example_ids: The examples to score, in this order; all of them when ``None``.

        Returns:
            One score for each example, in units of its part, ``(n_examples,)``.

        Raises:
            ScalesError: The scales have the wrong shape or a value that is not finite and positive.
            TaskError: An example id is unknown.
        """
        (scores,) = self.score_many(check_curve(scales, self.n_layers)[None], example_ids)
        return np.asarray(scores)

    def score_many(
        self, scales: npt.NDArray[np.float64], example_ids: Sequence[str] | None = None
    ) -> npt.NDArray[np.float64]:
        """Score the examples under several curves, part by part, see `Problem.score_many`.

        Args:
            scales: The curves, ``(n_candidates, n_layers)``.
            example_ids: The examples to score, in this order; all of them when ``None``.

        Returns:
            One score for each curve and example, ``(n_candidates, n_examples)``.

        Raises:
            ScalesError: The scales have the wrong shape or a value that is not finite and positive.
            TaskError: An example id is unknown.
        """
        curves = check_curves(scales, self.n_layers)
        ids = self.example_ids if example_ids is None else tuple(example_ids)
        scores = np.empty((len(curves), len(ids)))
        for task, rows, names in self._divided(ids):
            scores[:, rows] = self._parts[task].score_many(curves, names)
        return scores

    def evaluate(self, scales: npt.ArrayLike) -> AnswerScores:
        """Return both metrics of all examples under the given scales, see `ModelProblem.evaluate`.

        Args:
            scales: Position divisor of each layer, ``(n_layers,)``.

        Returns:
            Log-probability and correctness of each example.

        Raises:
            ScalesError: The scales have the wrong shape or a value that is not finite and positive.
            TaskError: A part is no `ModelProblem`.
            EvaluationError: The model's output is not finite.
        """
        scores = []
        for task, part in self._parts.items():
            if not hasattr(part, "evaluate"):
                raise TaskError(f"Expected parts with answers of a model, but {task} has none. Use score.")
            scores.append(part.evaluate(scales))
        return AnswerScores(
            np.concatenate([part.log_probability for part in scores]),
            np.concatenate([part.correct for part in scores]),
        )

    def gradient(
        self,
        scales: npt.NDArray[np.float64],
        example_ids: Sequence[str] | None = None,
        weights: npt.NDArray[np.float64] | None = None,
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Score the examples, and add up the gradients of the parts, see `Problem.gradient`.

        Args:
            scales: Position divisor of each layer, ``(n_layers,)``.
            example_ids: The examples to score, in this order; all of them when ``None``.
            weights: Weight of each score, ``(n_examples,)``; ``None`` for equal weights with a sum of 1.

        Returns:
            One score for each example, ``(n_examples,)``, and the derivative of their weighted sum with respect to each
            scale, ``(n_layers,)``.

        Raises:
            TaskError: A part has no gradients, an example id is unknown, or there is not one finite weight for each
                example.
            ScalesError: The scales have the wrong shape or a value that is not finite and positive.
        """
        curve = check_curve(scales, self.n_layers)
        ids = self.example_ids if example_ids is None else tuple(example_ids)
        weight_of = check_weights(weights, len(ids))

        scores, slope = np.empty(len(ids)), np.zeros(self.n_layers)
        for task, rows, names in self._divided(ids):
            scores[rows], of_part = self._parts[task].gradient(curve, names, weight_of[rows])
            slope += of_part
        return scores, slope

    def n_tokens_of(self, example_ids: Sequence[str]) -> int:
        """Return the tokens, without padding, that score some examples, see `Problem.n_tokens_of`.

        Args:
            example_ids: The examples.

        Returns:
            The sum over the parts.

        Raises:
            TaskError: An example id is unknown.
        """
        return sum(self._parts[task].n_tokens_of(names) for task, _, names in self._divided(example_ids))

    def n_candidates_that_fit(self, example_ids: Sequence[str]) -> int:
        """Return under how many curves some examples can be scored at once, see `Problem.n_candidates_that_fit`.

        Args:
            example_ids: The examples.

        Returns:
            The smallest number of any part, since the parts take turns.

        Raises:
            TaskError: An example id is unknown.
        """
        divided = self._divided(example_ids)
        return min((self._parts[task].n_candidates_that_fit(names) for task, _, names in divided), default=1)

    def smaller(self) -> "MixtureProblem | None":
        """Return the same problem with half the batch in every part that can halve it, see `Problem.smaller`.

        Returns:
            The problem; ``None`` where no part has anything to halve.
        """
        halved = {task: part.smaller() for task, part in self._parts.items()}
        if not any(halved.values()):
            return None
        smaller = copy.copy(self)
        smaller._parts = {task: halved[task] or part for task, part in self._parts.items()}
        return smaller

    def _divided(self, example_ids: Sequence[str]) -> list[tuple[str, list[int], list[str]]]:
        """Return, for each part that some examples belong to, its task, their rows, and their ids in it.

        Raises:
            TaskError: An example id is unknown.
        """
        unknown = [name for name in example_ids if name not in self._place]
        if unknown:
            raise TaskError(
                f"Expected ids among the {len(self._place)} examples of this mixture, but got {unknown[0]!r:.80}. "
                "See its example_ids."
            )

        divided: dict[str, tuple[list[int], list[str]]] = {}
        for row, name in enumerate(example_ids):
            task, own = self._place[name]
            rows, names = divided.setdefault(task, ([], []))
            rows.append(row)
            names.append(own)
        return [(task, rows, names) for task, (rows, names) in divided.items()]


def _parts_of(searched: Mapping[str, Problem], guarded: Mapping[str, Problem]) -> dict[str, Problem]:
    """Return all parts by name, the searched ones first.

    Raises:
        TaskError: There is no searched task, a task is a guard as well, or the numbers of layers differ.
    """
    if not searched:
        raise TaskError("Expected at least one task to search on, but got none. Name one besides the guards.")
    both = sorted(searched.keys() & guarded.keys())
    if both:
        raise TaskError(
            f"Expected a guard to be no task of the search, but {both[0]!r} is both. Leave it out of one of the two."
        )

    parts = {**searched, **guarded}
    depths = {task: part.n_layers for task, part in parts.items()}
    if len(set(depths.values())) > 1:
        shown = ", ".join(f"{task} has {depth}" for task, depth in depths.items())
        raise TaskError(f"Expected problems of one number of layers, but {shown}. Make them with one model.")
    return parts


def _settings_of(
    parts: Mapping[str, Problem],
    given: Mapping[str, float] | None,
    default: float,
    what: str,
    *,
    least_is_zero: bool,
) -> dict[str, float]:
    """Return the weight or the tolerance of each part.

    Raises:
        TaskError: One belongs to no part or is out of range.
    """
    given = given if given is not None else {}
    unknown = [task for task in given if task not in parts]
    if unknown:
        known = ", ".join(parts) or "none"
        raise TaskError(f"Expected a {what} of a task among {known}, but got one of {unknown[0]!r:.80}.")

    found = {task: float(given.get(task, default)) for task in parts}
    for task, value in found.items():
        if not math.isfinite(value) or value < 0 or (value == 0 and not least_is_zero):
            least = "of at least 0" if least_is_zero else "above 0"
            raise TaskError(
                f"Expected the {what} of {task} to be a finite number {least}, but got {value:g}."
            )
    return found


def _kind_of(part: Problem) -> Kind:
    """Return whether a part has known texts, or asks questions."""
    kind: Kind = getattr(part, "kind", "generate")
    return kind


def _positions_of(part: Problem) -> tuple[Any, ...]:
    """Return the gold positions of a part, ``None`` for examples without one."""
    return tuple(getattr(part, "positions", ())) or (None,) * len(part.example_ids)


def _sharing_of(parts: Mapping[str, Problem]) -> Sharing | None:
    """Return whether all parts share prefixes, and what each says of it; ``None`` where none says anything."""
    verdicts = {task: getattr(part, "sharing", None) for task, part in parts.items()}
    said = {task: verdict for task, verdict in verdicts.items() if verdict is not None}
    if not said:
        return None
    is_sound = all(said.values())
    shown = {task: verdict for task, verdict in said.items() if is_sound or not verdict}
    return Sharing(is_sound, "; ".join(f"{task}: {verdict.reason}" for task, verdict in shown.items()))


def _hash_of(parts: Mapping[str, Problem]) -> str:
    """Return the SHA-256 of the names and the data of the parts; empty where none is made of data."""
    hashes = {task: getattr(part, "data_hash", "") for task, part in parts.items()}
    if not any(hashes.values()):
        return ""
    return hashlib.sha256(json.dumps(list(hashes.items())).encode()).hexdigest()
