"""Surrogate: a Gaussian process of the fitness over curves, and the training set that it is fitted to."""

import copy
import itertools
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_factor, cho_solve
from scipy.special import ndtr

from lpes_evo.search._evaluation import Evaluation

_MOST_POINTS = 200
_MOST_EXPECTED = 64
_LENGTHS = np.geomspace(0.03, 1.0, 6)
_HEIGHTS = (0.3, 1.0, 3.0)
_NOISES = (1e-4, 3e-2)
_DIGITS = 6


class TrainingSet:
    """Curves with their fitness, to which a `Surrogate` is fitted.

    A raced-out curve takes part too: its fitness is taken to differ from that of its reference by the mean difference
    on the examples that were scored, each with its weight in the fitness. This holds for the aggregate ``mean`` alone.

    Args:
        how: The aggregate that makes the fitness.
    """

    def __init__(self, how: str) -> None:
        self._how = how
        self._known: set[bytes] = set()
        self._curves: list[npt.NDArray[np.float64]] = []
        self._fitness: list[float] = []
        self._variances: list[float] = []
        self._violations: list[float] = []
        self._surrogate: Surrogate | None = None

    def add(
        self,
        curve: bytes,
        evaluation: Evaluation,
        reference: tuple[float, ...] | None,
        weights: Sequence[float] | None = None,
    ) -> None:
        """Add the evaluation of a curve; each curve counts once.

        Args:
            curve: The bytes of its float64 values.
            evaluation: The evaluation.
            reference: Scores that it was raced against, ``(n_examples,)``.
            weights: Weight of the score of each example in the fitness, ``(n_examples,)``; ``None`` for equal weights.
        """
        if curve in self._known:
            return
        self._known.add(curve)

        if evaluation.status == "ok":
            fitness, variance = float(np.mean(evaluation.values)), 0.0
        elif len(evaluation.scored) > 1 and reference is not None and self._how == "mean":
            estimate = _estimated(evaluation, np.array(reference), weights)
            if estimate is None:
                return
            fitness, variance = estimate
        else:
            return

        self._curves.append(np.frombuffer(curve))
        self._fitness.append(fitness)
        self._variances.append(variance)
        # A raced-out curve was worse before its guards were scored, if they ever were.
        self._violations.append(evaluation.violation if evaluation.status == "ok" else math.nan)
        self._surrogate = None

    def surrogate(self) -> "Surrogate | None":
        """Return the surrogate that fits the set; ``None`` while the set is empty."""
        if self._surrogate is None and self._fitness:
            violations = np.array(self._violations)
            self._surrogate = Surrogate(
                np.array(self._curves),
                np.array(self._fitness),
                np.array(self._variances),
                violations if np.nansum(violations) > 0 else None,
            )
        return self._surrogate


class Surrogate:
    """A Gaussian process over curves (Rasmussen and Williams, *Gaussian Processes for Machine Learning*, 2006, ch. 2).

    Two curves are as far apart as the root mean square over layers of the difference of their logarithms. Length,
    height and noise are those of a small grid with the largest marginal likelihood.

    Where guards were broken, a second process models the violations. The expected improvement is then that over the
    best curve that broke none, times the probability that a curve breaks none (Gardner et al., "Bayesian optimization
    with inequality constraints", ICML 2014, eq. 6).

    Args:
        curves: Evaluated curves, ``(n, n_layers)``, positive.
        fitness: Their fitness, ``(n,)``.
        variances: How uncertain each fitness is, ``(n,)``: 0 for a full evaluation.
        violations: How much each curve breaks guards, ``(n,)``, NaN where it is not known; ``None`` where none does.
    """

    def __init__(
        self,
        curves: npt.NDArray[np.float64],
        fitness: npt.NDArray[np.float64],
        variances: npt.NDArray[np.float64],
        violations: npt.NDArray[np.float64] | None = None,
    ) -> None:
        self._guard: Surrogate | None = None
        keeping = np.ones(len(fitness), dtype=bool)
        if violations is not None:
            is_known = ~np.isnan(violations)
            losses = -violations[is_known]
            self._guard = Surrogate(curves[is_known], losses, np.zeros(len(losses)))
            keeping = violations == 0

        # The best points matter most, and the cost grows with the cube of their number.
        kept = np.sort(np.argsort(-fitness, kind="stable")[:_MOST_POINTS])
        values, self._uncertain = fitness[kept], variances[kept]
        self._points = np.log(curves[kept])
        self._centre = float(np.median(values))

        known = fitness[(variances == 0) & keeping]
        self._best = float(known.max() if len(known) else values.max())
        residual = values - self._centre
        spread = float(np.mean(residual**2))
        squared = _squared_distances(self._points, self._points)

        # Length, height and noise are those of the largest marginal likelihood.
        best_likelihood = -np.inf
        shapes = {length: np.exp(-squared / (2 * length**2)) for length in _LENGTHS}
        kernel = np.empty_like(squared)
        for length, height, noise in itertools.product(_LENGTHS, _HEIGHTS, _NOISES) if spread > 0 else ():
            np.multiply(height * spread, shapes[length], out=kernel)
            kernel[np.diag_indices_from(kernel)] += noise * spread + self._uncertain
            factor = cho_factor(kernel, lower=True)
            weights = cho_solve(factor, residual)
            likelihood = float(-0.5 * residual @ weights - np.log(np.diag(factor[0])).sum())
            if likelihood > best_likelihood:
                best_likelihood = likelihood
                self._length, self._height, self._noise = length, height * spread, noise * spread
                self._factor, self._weights = factor, weights
        self._is_flat = best_likelihood == -np.inf

    def expecting(self, curves: npt.NDArray[np.float64]) -> "Surrogate":
        """Return the surrogate as it would be if the fitness of some curves were what it predicts.

        So the next choice is not one beside curves that were chosen already and whose fitness is not known yet (the
        "kriging believer" of Ginsbourger et al., "Kriging is well-suited to parallelize optimization", 2010).

        Args:
            curves: Curves, ``(n, n_layers)``; of more than 64 curves, the last 64 count.

        Returns:
            Another surrogate; this one where it has nothing to predict.
        """
        if self._is_flat or not len(curves):
            return self

        there = copy.copy(self)
        curves = curves[-_MOST_EXPECTED:]
        points = np.log(curves)
        predicted = self._kernel(points, self._points) @ self._weights
        there._points = np.concatenate([self._points, points])
        there._best = max(self._best, self._centre + float(predicted.max()))

        kernel = self._kernel(there._points, there._points)
        kernel[np.diag_indices_from(kernel)] += self._noise + np.pad(self._uncertain, (0, len(points)))
        there._factor = cho_factor(kernel, lower=True)
        # A fitness that is as predicted leaves the mean as it is, and only makes the deviation smaller.
        there._weights = np.concatenate([self._weights, np.zeros(len(points))])
        return there

    def best_of(self, curves: npt.NDArray[np.float64]) -> int:
        """Return the number of the curve with the largest expected improvement (Jones et al., 1998, eq. 15).

        Args:
            curves: Curves, ``(n, n_layers)``.

        Returns:
            The number; the first of those that are equal to six digits, so that rounding decides nothing.
        """
        if self._is_flat:
            return 0

        mean, deviation = self._predicted(curves)
        gain = (mean - self._best) / deviation
        improvement = deviation * (gain * ndtr(gain) + np.exp(-(gain**2) / 2) / np.sqrt(2 * np.pi))
        if self._guard is not None and not self._guard._is_flat:
            loss, spread = self._guard._predicted(curves)
            improvement = improvement * ndtr(loss / spread)

        # Where rounding leaves no improvement anywhere, the largest mean wins.
        scale = improvement.max()
        return int(np.argmax(np.round(improvement / scale, _DIGITS))) if scale > 0 else int(np.argmax(mean))

    def _predicted(
        self, curves: npt.NDArray[np.float64]
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return mean and standard deviation of the prediction for each curve, each ``(n,)``."""
        kernel = self._kernel(np.log(curves), self._points)
        mean = self._centre + kernel @ self._weights
        explained = np.einsum("ij,ji->i", kernel, cho_solve(self._factor, kernel.T))
        return mean, np.sqrt(np.maximum(self._height - explained, 1e-12 * self._height))

    def _kernel(
        self, first: npt.NDArray[np.float64], second: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.float64]:
        covariances: npt.NDArray[np.float64] = self._height * np.exp(
            -_squared_distances(first, second) / (2 * self._length**2)
        )
        return covariances


def _estimated(
    evaluation: Evaluation, full: npt.NDArray[np.float64], weights: Sequence[float] | None
) -> tuple[float, float] | None:
    """Return the fitness of a raced-out curve, as its reference suggests it, and the variance of the guess.

    Args:
        evaluation: Scores of some examples.
        full: Scores of the reference on all examples, ``(n_examples,)``.
        weights: Weight of each example in the fitness, ``(n_examples,)``; ``None`` for equal weights.

    Returns:
        Fitness and variance; ``None`` where fewer than two examples with a weight were scored.
    """
    scored = list(evaluation.scored)
    differences = np.array(evaluation.scores) - full[scored]
    if weights is None:
        n = len(differences)
        variance = float(differences.var(ddof=1)) / n * (1 - n / len(full))
        return float(full.mean() + differences.mean()), variance

    # The ratio estimator of a weighted mean, and its variance by linearisation (Cochran, Sampling Techniques, 6.4).
    share = np.array(weights) / np.sum(weights)
    of_scored = share[scored]
    n, total = int((of_scored > 0).sum()), float(of_scored.sum())
    if n < 2:
        return None
    change = float(of_scored @ differences) / total
    variance = (
        float((of_scored**2) @ (differences - change) ** 2) / total**2 * n / (n - 1) * max(0.0, 1 - total)
    )
    return float(share @ full) + change, variance


def _squared_distances(
    first: npt.NDArray[np.float64], second: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return the mean over layers of squared differences, ``(n_first, n_second)``."""
    squares = (first**2).sum(axis=1)[:, None] + (second**2).sum(axis=1) - 2 * first @ second.T
    distances: npt.NDArray[np.float64] = np.maximum(squares / first.shape[1], 0.0)
    return distances
