"""BezierGenome: the control points of one curve, as an individual of DEAP."""

import copy
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

from lpes_evo.operators._checks import shown
from lpes_evo.operators._errors import CurveError
from lpes_evo.operators._fitness import CurveFitness

Point = tuple[float, float]


class BezierGenome(list[Point]):
    """A list of control points ``(x, y)`` with a DEAP fitness.

    A genome is of a plain module-level class, so spawned workers can unpickle it. It is a plain list of immutable
    tuples, so DEAP's hall of fame can compare it, and no two genomes share a mutable part. Two genomes are equal if
    their points are equal.

    Attributes:
        fitness: The fitness, invalid until its values are set.
    """

    fitness: CurveFitness

    def __init__(self, points: Iterable[Sequence[float]], weights: Sequence[float] = (1.0,)) -> None:
        """Create a genome with an invalid fitness.

        Args:
            points: Control points as (layer, value), ``(n_points, 2)``.
            weights: Weights of the fitness, ``(n_objectives,)``.

        Raises:
            CurveError: The points are not a sequence or fewer than two, a point is not a pair of finite numbers, or a
                weight is zero or not finite.
        """
        if not isinstance(points, Iterable):
            raise CurveError(
                f"Expected control points as (x, y) pairs, but got {shown(points)}. Give a list of pairs."
            )
        super().__init__(_point(gene, point) for gene, point in enumerate(points))
        if len(self) < 2:
            raise CurveError(f"Expected at least 2 control points, but got {len(self)}. Add one.")
        self.fitness = CurveFitness(weights)

    @property
    def key(self) -> str:
        """The content as text for caches and journals, which is equal for equal genomes in every process."""
        return ";".join(f"{float(x) + 0.0!r},{float(y) + 0.0!r}" for x, y in self)

    def to_json(self) -> str:
        """Return the control points as a JSON array of pairs, without the fitness."""
        return json.dumps([[float(x), float(y)] for x, y in self], allow_nan=False)

    @classmethod
    def from_json(cls, text: str, weights: Sequence[float] = (1.0,)) -> "BezierGenome":
        """Return the genome that `to_json` wrote.

        Args:
            text: JSON array of pairs.
            weights: Weights of the fitness, ``(n_objectives,)``.

        Returns:
            A genome equal to the one written. `CurveSpace.check` checks whether it fits a space.

        Raises:
            CurveError: The text is not JSON, not an array of at least two pairs of finite numbers, or a
                weight is zero or not finite.
        """
        try:
            points = json.loads(text)
        except (TypeError, ValueError) as error:
            raise CurveError(
                f"Expected a genome as JSON, but got {shown(text)}: {error}. Give what to_json wrote."
            ) from error
        if not isinstance(points, list):
            raise CurveError(
                f"Expected a JSON array of [x, y] pairs, but got {shown(text)}. Give what to_json wrote."
            )
        return cls(points, weights)

    def __copy__(self) -> "BezierGenome":
        """Return an independent genome; a shared fitness would tie the two together."""
        return copy.deepcopy(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> "BezierGenome":
        """Return an independent genome with all attributes, such as DEAP's ``history_index``.

        ``toolbox.clone`` calls this method for every offspring. The points are immutable and can be shared.
        """
        clone = self.__class__.__new__(self.__class__)
        memo[id(self)] = clone
        clone.extend(self)
        clone.__dict__.update({name: copy.deepcopy(value, memo) for name, value in self.__dict__.items()})
        return clone

    def __repr__(self) -> str:
        """Return the control points as text."""
        return f"{type(self).__name__}({super().__repr__()})"


def _point(gene: int, point: Sequence[float]) -> Point:
    """Return a control point as a pair of floats.

    Raises:
        CurveError: It is not a pair of finite numbers.
    """
    try:
        x, y = point
        # Adding zero turns -0.0 into 0.0, so that equal points have equal keys.
        pair = (float(x) + 0.0, float(y) + 0.0)
    except (OverflowError, TypeError, ValueError) as error:
        raise _point_error(gene, point) from error
    # float() also reads text and truth values, which only a damaged file would hold.
    if isinstance(x, (bool, str)) or isinstance(y, (bool, str)) or not all(map(math.isfinite, pair)):
        raise _point_error(gene, point)
    return pair


def _point_error(gene: int, point: object) -> CurveError:
    """Return the error for a control point that is not a pair of finite numbers."""
    return CurveError(
        f"Expected gene {gene} to be a pair (x, y) of finite numbers, but got {shown(point)}. Correct the point."
    )
