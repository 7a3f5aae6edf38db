"""TargetCurveProblem and BrachistochroneProblem: analytic problems over curves, with known optima and no model."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq

from lpes_evo.errors import CurveError, TaskError
from lpes_evo.problems._problem import Problem, check_curve, check_weights

_GROUPS = ("begin", "middle", "end")


class TargetCurveProblem(Problem):
    """The search for a given curve: the score of layer h is ``-(scales[h] - target[h])**2``.

    Every layer is an example. The groups are the first, middle and last third of the layers, so that searches
    with one objective for each group can be tried on it. The optimum is 0 where the curve space can reach the
    target.

    Attributes:
        target: The curve to find, ``(n_layers,)``.
    """

    def __init__(self, target: npt.ArrayLike) -> None:
        """Create the problem.

        Args:
            target: One finite positive value per layer, ``(n_layers,)``.

        Raises:
            CurveError: The target is not a one-dimensional array of finite positive numbers.
        """
        self.target = np.array(target, dtype=np.float64)
        if self.target.ndim != 1 or not self.target.size:
            raise CurveError(f"Expected target of shape (n_layers,), but got {self.target.shape}.")
        if not (np.isfinite(self.target) & (self.target > 0)).all():
            raise CurveError(f"Expected target to be finite and positive, but got {self.target.tolist()}.")
        self.n_layers = self.target.size

        self.example_ids = tuple(f"layer-{layer}" for layer in range(self.n_layers))
        self.groups = tuple(_GROUPS[3 * layer // self.n_layers] for layer in range(self.n_layers))

    def score(
        self, scales: npt.NDArray[np.float64], example_ids: Sequence[str] | None = None
    ) -> npt.NDArray[np.float64]:
        """Score the layers under the given curve.

        Args:
            scales: Value of each layer, ``(n_layers,)``.
            example_ids: The layers to score, in this order; all of them when ``None``.

        Returns:
            Minus the squared error of each layer, ``(n_examples,)``.

        Raises:
            ScalesError: The scales have the wrong shape or a value that is not finite and positive.
            TaskError: An example id is unknown.
        """
        scores = -((check_curve(scales, self.n_layers) - self.target) ** 2)
        return scores[_rows(self.example_ids, example_ids)]

    def gradient(
        self,
        scales: npt.NDArray[np.float64],
        example_ids: Sequence[str] | None = None,
        weights: npt.NDArray[np.float64] | None = None,
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return scores and the gradient of their weighted sum, see `Problem.gradient`."""
        scores, rows = self.score(scales, example_ids), _rows(self.example_ids, example_ids)
        slope = np.zeros(self.n_layers)
        np.add.at(
            slope, rows, -2 * (np.asarray(scales) - self.target)[rows] * check_weights(weights, len(rows))
        )
        return scores, slope


class BrachistochroneProblem(Problem):
    """The slide of fastest descent: the score is minus the travel time of a frictionless bead, in seconds.

    The bead starts at rest at (0, 0), passes below x = ``width * (h + 1) / (n_layers + 1)`` at depth
    ``scales[h]``, and ends at (``width``, ``drop``). At depth d it has the speed ``sqrt(2 g d)``; on a
    straight piece of length l its acceleration is constant, so it takes exactly ``2 l / (v_start + v_end)``.

    The best of all slides is a cycloid ``x = r (a - sin a)``, ``d = r (1 - cos a)`` with the travel time
    ``a_end * sqrt(r / g)`` (Johann Bernoulli, Acta Eruditorum, 1697). Every slide of straight pieces is
    slower, so `optimum` is a strict bound. With more layers the best score comes closer to it.

    Attributes:
        width: Horizontal distance of the end, in metres.
        drop: Depth of the end, in metres.
        gravity: Acceleration of gravity, in metres per second squared.
        optimum: Travel time on the cycloid, in seconds; no score is above ``-optimum``.
    """

    example_ids = ("descent",)
    groups = ("descent",)

    def __init__(
        self, n_layers: int, *, width: float = 1.0, drop: float = 0.65, gravity: float = 9.80665
    ) -> None:
        """Create the problem.

        Args:
            n_layers: Number of inner points of the slide, at least 1.
            width: Horizontal distance of the end, in metres.
            drop: Depth of the end, in metres.
            gravity: Acceleration of gravity, in metres per second squared.

        Raises:
            CurveError: There is no layer, or a length or the gravity is not finite and positive.
        """
        if n_layers < 1:
            raise CurveError(f"Expected n_layers >= 1, but got {n_layers}.")
        for name, value in (("width", width), ("drop", drop), ("gravity", gravity)):
            if not (math.isfinite(value) and value > 0):
                raise CurveError(f"Expected {name} to be finite and positive, but got {value}.")
        self.n_layers, self.width, self.drop, self.gravity = n_layers, width, drop, gravity
        angle, radius = self._cycloid()
        self.optimum = angle * math.sqrt(radius / gravity)

    def score(
        self, scales: npt.NDArray[np.float64], example_ids: Sequence[str] | None = None
    ) -> npt.NDArray[np.float64]:
        """Score a slide.

        Args:
            scales: Depth of each inner point, in metres, ``(n_layers,)``.
            example_ids: ``("descent",)``, or nothing for the same.

        Returns:
            Minus the travel time in seconds, ``(n_examples,)``.

        Raises:
            ScalesError: The scales have the wrong shape or a value that is not finite and positive.
            TaskError: An example id is unknown.
        """
        depth = np.concatenate([[0.0], check_curve(scales, self.n_layers), [self.drop]])
        length = np.hypot(self.width / (self.n_layers + 1), np.diff(depth))
        speed = np.sqrt(2 * self.gravity * depth)
        time = float((2 * length / (speed[:-1] + speed[1:])).sum())
        return np.full(1, -time)[_rows(self.example_ids, example_ids)]

    def gradient(
        self,
        scales: npt.NDArray[np.float64],
        example_ids: Sequence[str] | None = None,
        weights: npt.NDArray[np.float64] | None = None,
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return the score and its weighted gradient in seconds per metre, see `Problem.gradient`."""
        scores = self.score(scales, example_ids)

        depth = np.concatenate([[0.0], scales, [self.drop]])
        steps = np.diff(depth)
        length = np.hypot(self.width / (self.n_layers + 1), steps)
        speed = np.sqrt(2 * self.gravity * depth)
        sums = speed[:-1] + speed[1:]

        # 2 l / (v + w) of the pieces above and below a point: l changes by its slope, v by gravity / v.
        pull = -2 * length / sums**2
        slope = 2 * (steps / (length * sums))
        per_point = slope[:-1] - slope[1:] + (pull[:-1] + pull[1:]) * self.gravity / speed[1:-1]
        return scores, -per_point * check_weights(weights, len(scores)).sum()

    def cycloid_depths(self) -> npt.NDArray[np.float64]:
        """Return the depths of the fastest of all slides at the inner points, in metres, ``(n_layers,)``."""
        end, radius = self._cycloid()
        places = self.width * np.arange(1, self.n_layers + 1) / (self.n_layers + 1) / radius
        angles = [brentq(lambda a, place=place: a - math.sin(a) - place, 0.0, end) for place in places]
        return radius * (1 - np.cos(angles))

    def _cycloid(self) -> tuple[float, float]:
        """Return the end angle and the radius of the cycloid through both ends."""
        # width / drop = (a - sin a) / (1 - cos a) grows from 0 at a = 0 without bound towards a = 2 pi.
        angle = float(
            brentq(
                lambda a: (a - math.sin(a)) * self.drop - (1 - math.cos(a)) * self.width,
                1e-6 * min(1.0, self.width / self.drop),
                2 * math.pi,
            )
        )
        return angle, self.width / (angle - math.sin(angle))


def _rows(known: tuple[str, ...], example_ids: Sequence[str] | None) -> list[int]:
    """Return the row of each example.

    Raises:
        TaskError: An example id is unknown.
    """
    if example_ids is None:
        return list(range(len(known)))
    row_of = {name: row for row, name in enumerate(known)}
    unknown = [name for name in example_ids if name not in row_of]
    if unknown:
        raise TaskError(f"Expected example ids among {known[0]!r} to {known[-1]!r}, but got {unknown[0]!r}.")
    return [row_of[name] for name in example_ids]
