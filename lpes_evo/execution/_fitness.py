"""FitnessRule: from the scores of examples to fitness values, violations of guards, races and weights of gradients."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lpes_evo.config import SearchSettings
from lpes_evo.errors import ConfigError, TaskError
from lpes_evo.execution._facts import ProblemFacts
from lpes_evo.problems import SETS, Mixture, aggregate
from lpes_evo.search import is_worse

_LEAST_SPREAD = 1e-3
"""The least unit of a task; below, rounding in half precision alone spreads the scores as widely."""


class FitnessRule:
    """How the scores of all examples become fitness values and a violation.

    A problem of one task without guards is aggregated as it is. In a mixture of several tasks, each score becomes the
    gain over the untouched model, divided by the standard deviation of the untouched scores of its task. The mean over
    the sets of a task is the gain of the task, and the weighted mean over the tasks is the fitness. So no task counts
    for more because it has more examples, more sets, or scores that spread more widely. A single task keeps its own
    units, beside guards too.

    The score of an example of a guard is the gain over the untouched model in units of the guard. The loss of a guard
    is the mean loss over its sets; what exceeds its tolerance is its violation. The violation is the sum over the
    guards.

    Args:
        facts: The problem.
        settings: The aggregate, the algorithm and the rules of racing.

    Attributes:
        tasks: Name of the task of each example, ``(n_examples,)``; empty names for a problem of one task.
        searched: Numbers of the examples that make the fitness, ascending.
        guarding: Numbers of the examples of guards, ascending.

    Raises:
        ConfigError: Tasks have different weights that would have no effect.
    """

    def __init__(self, facts: ProblemFacts, settings: SearchSettings) -> None:
        n = len(facts.groups)
        # A problem of one task is a mixture of itself.
        mixture = facts.mixture or Mixture(("",) * n, facts.groups, {"": 1.0}, {})
        self.tasks, self._groups = mixture.tasks, facts.groups
        self._weights, self._tolerances = mixture.weights, mixture.guards
        self._how, self._level = settings.objectives, settings.race_level
        self._is_mixed = len(self._weights) > 1
        self.searched = np.flatnonzero([task in self._weights for task in self.tasks])
        self.guarding = np.flatnonzero([task in self._tolerances for task in self.tasks])

        # What an example counts for where objectives or sets are compared one by one.
        labels = {"groups": mixture.sets, "tasks": mixture.tasks}
        self._labels = labels.get(self._how, facts.groups if self._is_mixed else mixture.sets)
        self._refuse_without_effect()
        self._untouched, self._unit = np.zeros(n), np.ones(n)
        self.is_ready = not (self._is_mixed or self.is_guarded)

    def _refuse_without_effect(self) -> None:
        """Refuse weights, or tasks as objectives, that would have no effect.

        Raises:
            ConfigError: There are some.
        """
        if self._how == "tasks" and not self._is_mixed:
            raise ConfigError(
                "Expected several tasks where each is an objective, but got one. Leave search.nsga2_objectives out."
            )
        if self._how in ("min", "tasks") and len(set(self._weights.values())) > 1:
            ignoring = (
                "search.aggregate=min" if self._how == "min" else "a search with a task for each objective"
            )
            raise ConfigError(
                f"Expected tasks without weights, because {ignoring} takes no mean over tasks, but "
                f"got {', '.join(f'{task}*{weight:g}' for task, weight in self._weights.items())}. Leave the weights "
                "out."
            )

    @property
    def is_guarded(self) -> bool:
        """Whether evaluations can have a violation."""
        return bool(len(self.guarding))

    @property
    def n_objectives(self) -> int:
        """Number of fitness values of an evaluation."""
        return len(self._objectives()) if self._how in ("groups", "tasks") else 1

    @property
    def example_weights(self) -> tuple[float, ...] | None:
        """Weight of each score in the mean fitness, ``(n_examples,)``; ``None`` for one task without guards."""
        if not (self._is_mixed or self.is_guarded):
            return None
        weights = np.zeros(len(self._groups))
        weights[self.searched] = self._shares(self.searched)
        return tuple(weights.tolist())

    def relate(self, untouched: npt.ArrayLike) -> None:
        """Take the scores of the untouched model, over which gains are measured.

        Args:
            untouched: Score of each example, in units of its task, ``(n_examples,)``.

        Raises:
            TaskError: All scores of a task of a mixture are alike, so that they give no unit.
        """
        scores = np.asarray(untouched, dtype=np.float64)
        tasks = np.array(self.tasks)

        for task in self._weights if self._is_mixed else ():
            rows = tasks == task
            spread = float(scores[rows].std())
            if spread < _LEAST_SPREAD:
                raise TaskError(
                    f"Expected the untouched model to score the {rows.sum()} search examples of {task} differently, "
                    f"since their spread is the unit of the task in a mixture, but all are {scores[rows].mean():.4g} "
                    f"to within {_LEAST_SPREAD:g}: the task is too hard or too easy for this model, or the scores are "
                    "too coarse. Change its difficulty, score it by task.metric=log_probability, or leave it out."
                )
            self._untouched[rows] = scores[rows]
            self._unit[rows] = spread

        self._untouched[self.guarding] = scores[self.guarding]
        self.is_ready = True

    def gains(
        self, scores: npt.NDArray[np.float64], numbers: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.float64]:
        """Return scores as the search compares them.

        Args:
            scores: Scores in units of their tasks, ``(n_scored,)``.
            numbers: The numbers of their examples, ``(n_scored,)``.

        Returns:
            The gains, ``(n_scored,)``; the scores themselves for a single task.
        """
        gains: npt.NDArray[np.float64] = (scores - self._untouched[numbers]) / self._unit[numbers]
        return gains

    def values(self, gains: npt.NDArray[np.float64]) -> tuple[float, ...]:
        """Return the fitness values.

        Args:
            gains: What `gains` gave of all examples, ``(n_examples,)``.
        """
        if not self._is_mixed or self._how == "min":
            return aggregate(gains[self.searched], [self._labels[row] for row in self.searched], self._how)

        objectives = self._objectives() if self._how != "mean" else [None]
        rows_of = [self._rows_of(objective) for objective in objectives]
        return tuple(float(self._shares(rows) @ gains[rows]) for rows in rows_of)

    def violation(self, gains: npt.NDArray[np.float64]) -> float:
        """Return how much more than their tolerance the guards have lost.

        Args:
            gains: What `gains` gave of all examples, ``(n_examples,)``.

        Returns:
            The sum over the guards, 0 where all are kept.
        """
        changes = self.changes(gains)
        return sum((max(0.0, -changes[task] - limit) for task, limit in self._tolerances.items()), 0.0)

    def changes(self, gains: npt.NDArray[np.float64]) -> dict[str, float]:
        """Return the gain of each guard over the untouched model, in its units: the mean over its sets.

        Args:
            gains: What `gains` gave of all examples, ``(n_examples,)``.
        """
        found = {}
        for task in self._tolerances:
            rows = [row for row in self.guarding if self.tasks[row] == task]
            (found[task],) = aggregate(gains[rows], [self._groups[row] for row in rows])
        return found

    def is_worse(
        self, gains: npt.NDArray[np.float64], scored: npt.NDArray[np.int64], reference: Sequence[float]
    ) -> bool:
        """Return whether a candidate is worse than a parent that keeps all guards, by what was scored so far.

        The weighted differences are compared, so that every task has the same say as in the fitness. Guards take no
        part: a candidate that is worse in fitness loses to the parent whether it keeps them or not.

        Args:
            gains: What `gains` gave of the scored examples, ``(n_scored,)``.
            scored: Their numbers, ``(n_scored,)``.
            reference: Gains of the parent, ``(n_examples,)``.
        """
        place = np.full(len(self._groups), -1)
        place[self.searched] = np.arange(len(self.searched))
        counted = place[scored] >= 0

        weights = self._shares(self.searched) * len(self.searched) if self._is_mixed else None
        return is_worse(
            gains[counted],
            place[scored[counted]],
            np.asarray(reference)[self.searched],
            [self._labels[row] for row in self.searched],
            "groups" if self._how == "tasks" else self._how,
            self._level,
            weights,
        )

    def gradient_weights(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Return the weight of each score, in units of its task, in the fitness on a sample, ``(n_examples,)``.

        Args:
            numbers: The examples of the sample.
        """
        return self._shares(numbers) / self._unit[numbers]

    def _shares(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Return the share of each example in the mean over tasks of the mean over sets; the sum is 1."""
        sizes = Counter(self._groups[row] for row in numbers)
        sets_of: dict[str, set[str]] = {}
        for row in numbers:
            sets_of.setdefault(self.tasks[row], set()).add(self._groups[row])

        if len(sets_of) == 1:
            return np.array([1 / (len(sizes) * sizes[self._groups[row]]) for row in numbers])
        total = sum(self._weights[task] for task in sets_of)
        return np.array(
            [
                self._weights[task] / total / (len(sets_of[task]) * sizes[group])
                for task, group in ((self.tasks[row], self._groups[row]) for row in numbers)
            ]
        )

    def _objectives(self) -> list[str]:
        """Return the objectives: sets in the order of `aggregate`, tasks in the order in which they were named."""
        if self._how == "tasks":
            return list(self._weights)
        labels = {self._labels[row] for row in self.searched}
        return [name for name in SETS if name in labels] + sorted(labels - set(SETS))

    def _rows_of(self, objective: str | None) -> npt.NDArray[np.int64]:
        """Return the numbers of the searched examples of an objective, or of all for ``None``."""
        if objective is None:
            return self.searched
        return np.array([row for row in self.searched if self._labels[row] == objective], dtype=np.int64)
