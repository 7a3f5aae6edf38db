"""Ascent along gradients of the fitness: the steps of Adam, and the algorithm that takes them."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lpes_evo.config import SearchSettings
from lpes_evo.errors import ConfigError
from lpes_evo.operators import BezierGenome, CurveSpace
from lpes_evo.search._algorithm import Algorithm
from lpes_evo.search._curves import curve_keys, distinct
from lpes_evo.search._evaluation import Evaluation
from lpes_evo.search._progress import Progress
from lpes_evo.search._requests import Candidate, GradientProbe, Request

_DECAY = 0.9
_SQUARE_DECAY = 0.999
_LEAST = 1e-8
_SOFTNESS = 1e-3
_SHORTEN, _LENGTHEN = 0.25, 2.0
_SHORTEST = 0.01


class Ascent:
    """An ascent by Adam on the logarithm of y and on x as share of its axis.

    Adam is algorithm 1 of Kingma and Ba, "Adam: a method for stochastic optimization" (ICLR 2015), with the constants
    given there. After each step the points move to the nearest points within bounds, order and amplitude. Only
    `arrival` rounds to the grid.

    Args:
        space: The curves.
        settings: Length of a step, and penalty.
        start: Control points to start from, ``(n_points, 2)``.
    """

    def __init__(self, space: CurveSpace, settings: SearchSettings, start: Sequence[Sequence[float]]) -> None:
        self._space = space
        self._continuous = space.continuous()
        self._full_rate = self._rate = settings.learning_rate
        self._penalty = settings.total_variation
        self._begin_at(start)

    @property
    def scales(self) -> npt.NDArray[np.float64]:
        """The scales that are reached, ``(n_layers,)``."""
        scales: npt.NDArray[np.float64] = self._continuous.decode(self._points[None])[0]
        return scales

    @property
    def points(self) -> list[tuple[float, float]]:
        """The control points that are reached, not rounded to the grid, ``(n_points, 2)``."""
        return [(x, y) for x, y in self._points.tolist()]

    @property
    def length(self) -> float:
        """The length of a step, as share of ``learning_rate``."""
        return self._rate / self._full_rate

    def go_back(self, points: Sequence[Sequence[float]]) -> None:
        """Begin again at some points with steps of a quarter of the length.

        The moments of Adam are zero again: they belong to the way that led astray, and to the points along it. So do
        O'Donoghue and Candes, "Adaptive restart for accelerated gradient schemes" (Foundations of Computational
        Mathematics 15, 2015), with the momentum when the function gets worse.

        Args:
            points: Control points, ``(n_points, 2)``.
        """
        self._rate *= _SHORTEN
        self._begin_at(points)

    def lengthen(self) -> None:
        """Double the length of the steps, at most to ``learning_rate``."""
        self._rate = min(self._full_rate, self._rate * _LENGTHEN)

    def _begin_at(self, points: Sequence[Sequence[float]]) -> None:
        """Stand at the nearest feasible points, with no moments."""
        self._points = np.array(self._continuous.nearest(points))
        self._mean = np.zeros_like(self._points)
        self._square = np.zeros_like(self._points)
        self._n_steps = 0

    def arrival(self) -> BezierGenome:
        """Return the feasible genome nearest to the points that are reached."""
        return self._space.nearest(self._points.tolist())

    def step(self, gradient: npt.ArrayLike) -> None:
        """Take one step.

        Args:
            gradient: Derivative of the fitness with respect to each scale, ``(n_layers,)``.
        """
        slope = np.asarray(gradient, dtype=np.float64) - self._penalty * variation_slope(self.scales)

        # The chain rule, from the scales to x as share of its axis and to the logarithm of y.
        in_y, in_x = self._continuous.jacobian(self._points)
        length = max(1.0, self._continuous.x_axis.high)
        x, y = self._points.T
        slopes = np.column_stack([slope @ in_x * length, slope @ in_y * y])

        # The moments of Adam, without the bias of their start at zero.
        self._n_steps += 1
        self._mean += (1 - _DECAY) * (slopes - self._mean)
        self._square += (1 - _SQUARE_DECAY) * (slopes**2 - self._square)
        mean = self._mean / (1 - _DECAY**self._n_steps)
        square = self._square / (1 - _SQUARE_DECAY**self._n_steps)

        moves = self._rate * mean / (np.sqrt(square) + _LEAST)
        moved = np.column_stack([x + length * moves[:, 0], y * np.exp(moves[:, 1])])
        self._points = np.array(self._continuous.nearest(moved.tolist()))


class GradientAscent(Algorithm):
    """Climbs along gradients from one starting point and evaluates in full only where it arrives.

    The start is the first genome of the caller, or the untouched model. Every ``gradient_steps`` gradients, each on
    the next sample of the examples, make one generation of one candidate. A gradient that failed is passed over.

    A good arrival has a larger fitness than everything before. With ``gradient_backtracking``, the ascent goes on from
    a good arrival; after any other, also one that failed or was raced out, the next steps begin at the best so far and
    are a quarter as long. After a good arrival the length doubles again, at most to ``learning_rate``. So a search
    whose arrivals are all good takes the same steps with and without backtracking, and the best so far is never
    left for good. A quarter and a double are those of the trust region in Nocedal and Wright, "Numerical optimization"
    (2nd edition, 2006), algorithm 4.1. That algorithm compares the improvement with the one that a model expects, and
    the condition of Armijo (their section 3.1) with a share of it. Here the gradient is of a sample of the examples, so
    that its expectation holds for the sample alone; any improvement on all examples therefore counts as good.

    The search ends early when the steps are shorter than a hundredth of ``learning_rate``, or when shortened steps
    arrive at the curve where they began, so that the grid leaves no shorter ones. All of it follows from the
    evaluations in their order, so that a search that is resumed does the same.

    Args:
        space: The curves.
        settings: Length and number of the steps, and budget.
        **options: As for `Algorithm`.

    Raises:
        CurveError: A genome of ``initial`` is not feasible.
        ConfigError: The space has one layer, or values that are not positive.
    """

    takes_gradients = True
    tries_constants = False
    # There is one candidate at a time.
    shares_passes = False

    def __init__(self, space: CurveSpace, settings: SearchSettings, **options: Any) -> None:
        super().__init__(space, settings, **options)
        refuse_flat(space)
        given = [BezierGenome(genome, self.weights) for genome in options.get("initial", ())]
        start = given[0] if given else space.fit(np.ones(space.n_layers), self.weights)
        identity = self.starting_points[:1] if space.contains_identity else []
        self.starting_points = distinct(space, [*identity, start, *given])
        self._ascent = Ascent(space, settings, start)
        self._n_samples = 0
        self._n_steps = 0
        # The best so far: its standing, the key of its curve, and its points before they were rounded to the grid.
        self._best = (-np.inf, -np.inf)
        self._best_curve = b""
        self._best_points = self._ascent.points
        self._end: str | None = None

    def propose(self, progress: Progress) -> Iterable[Request]:
        """Yield the starting points, then the next gradient or the genome where the ascent has arrived."""
        if not progress.n_candidates:
            for genome in self.starting_points:
                yield Candidate(genome)
        elif self._n_steps < self.settings.gradient_steps:
            probe = GradientProbe(self._ascent.scales, self._n_samples)
            self._n_samples += 1
            yield probe
        else:
            self._n_steps = 0
            yield Candidate(self._ascent.arrival(), progress.reference)

    def observe(self, request: Request, evaluation: Evaluation) -> None:
        """Go one step along a gradient, or learn how good an arrival is."""
        if isinstance(request, GradientProbe):
            self._n_steps += 1
            if evaluation.status == "sampled":
                self._ascent.step(evaluation.gradient)
        elif self.settings.gradient_backtracking:
            self._judge(request, evaluation)

    def finished(self) -> str | None:
        """Return why shorter steps lead nowhere, or ``None``."""
        return self._end

    def _judge(self, request: Candidate, evaluation: Evaluation) -> None:
        """Go on from a good arrival with longer steps, and back from any other to take shorter ones."""
        (curve,) = curve_keys(self.space, [request.genome])
        has_climbed = self._n_samples > 0
        # An arrival that breaks a guard is no better than one that keeps them all.
        standing = evaluation.standing if evaluation.status == "ok" else (-np.inf, -np.inf)

        if standing > self._best:
            self._best, self._best_curve = standing, curve
            self._best_points = self._ascent.points if has_climbed else list(request.genome)
            if has_climbed:
                self._ascent.lengthen()
            return
        # The starting points are not arrivals.
        if not has_climbed:
            return

        # Full steps that the grid hides so far may leave it with the next ones.
        if curve == self._best_curve:
            if self._ascent.length < 1:
                self._end = "the shortened steps of the ascent move nothing on the grid"
            return
        self._ascent.go_back(self._best_points)
        if self._ascent.length < _SHORTEST:
            self._end = "the steps of the ascent are shorter than a hundredth of search.learning_rate"


def refuse_flat(space: CurveSpace) -> None:
    """Refuse a space without an ascent.

    Raises:
        ConfigError: The space has one layer, or values that are not positive.
    """
    if space.n_layers < 2:
        raise ConfigError("Expected a model of at least 2 layers to climb along gradients, but got 1.")
    if space.y_axis.low <= 0:
        raise ConfigError(
            f"Expected a space of positive values to climb along gradients, but y_min is {space.y_axis.low:g}. "
            "Raise y_min, or use an algorithm without gradients."
        )


def variation_slope(scales: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the derivative of the total variation of the logarithm of scales.

    The variation is the sum of ``sqrt(d**2 + 1e-6)`` over the differences d of neighbouring logarithms: the absolute
    difference, rounded off where it is below 0.001 so that it has a derivative.

    Args:
        scales: Position divisors, ``(n_layers,)``.

    Returns:
        The derivative with respect to each scale, ``(n_layers,)``.
    """
    steps = np.diff(np.log(scales))
    pull = steps / np.hypot(steps, _SOFTNESS)
    slope: npt.NDArray[np.float64] = -np.diff(pull, prepend=0.0, append=0.0) / scales
    return slope
