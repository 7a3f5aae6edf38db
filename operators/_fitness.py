"""CurveFitness: the fitness of a curve, which refuses values that are not finite."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from deap import base

from lpes_evo.operators._checks import shown
from lpes_evo.operators._errors import CurveError


class CurveFitness(base.Fitness):  # type: ignore[misc]
    """DEAP's fitness with separate weights for each instance, and without NaN.

    DEAP keeps the weights on the class, so two searches in one process would overwrite each other's direction. DEAP
    also orders NaN above every number, so one failed evaluation would win every selection. This class refuses NaN.

    Attributes:
        weights: One factor per objective: positive to maximise, negative to minimise, ``(n_objectives,)``.
    """

    def __init__(self, weights: Sequence[float] = (1.0,), values: Sequence[float] = ()) -> None:
        """Create a fitness, invalid unless values are given.

        Args:
            weights: One finite factor other than zero per objective, ``(n_objectives,)``.
            values: One finite number per objective, ``(n_objectives,)``, or nothing.

        Raises:
            CurveError: The weights are not a sequence of at least one finite number other than zero, or the
                values do not fit.
        """
        try:
            self.weights = tuple(float(weight) for weight in weights)
        except (OverflowError, TypeError, ValueError):
            self.weights = ()

        if not self.weights or not all(math.isfinite(weight) and weight for weight in self.weights):
            raise CurveError(
                f"Expected weights to be finite numbers other than zero, but got {shown(weights)}. "
                "Give a sequence, with 1.0 to maximise and -1.0 to minimise."
            )

        super().__init__(values)

    def _set_values(self, values: Sequence[float]) -> None:
        """Store the values, weighted.

        Raises:
            CurveError: The number of values is wrong, or one is not a finite real number.
        """
        if len(values) != len(self.weights):
            raise CurveError(
                f"Expected {len(self.weights)} fitness values, one per weight, but got {len(values)}. "
                "Give the weights of all objectives when the genome is made."
            )
        self.wvalues = tuple(
            _finite(value, weight) for value, weight in zip(values, self.weights, strict=True)
        )

    # DEAP binds its own setter into the property, so overriding the method alone would have no effect.
    values = property(
        base.Fitness.getValues, _set_values, base.Fitness.delValues, "The values, not weighted."
    )

    def __copy__(self) -> "CurveFitness":
        """Return an independent fitness; DEAP's own copy forgets the weights and the crowding distance."""
        clone = self.__class__.__new__(self.__class__)
        clone.__dict__.update(self.__dict__)
        return clone

    def __deepcopy__(self, memo: dict[int, Any]) -> "CurveFitness":
        """Return an independent fitness; every attribute is immutable, so a flat copy is a deep one."""
        memo[id(self)] = clone = self.__copy__()
        return clone


def _finite(value: Any, weight: float) -> float:
    """Return the weighted value as a finite float.

    Raises:
        CurveError: The value is complex, not a number, or not finite.
    """
    try:
        # NumPy would drop the imaginary part with only a warning, and float() would read text.
        weighted = math.nan if np.iscomplexobj(value) or isinstance(value, str) else float(value) * weight
    except (OverflowError, TypeError, ValueError):
        weighted = math.nan
    if not math.isfinite(weighted):
        raise CurveError(
            f"Expected every fitness value to be a finite real number, but got {shown(value)}. "
            "Leave the fitness of a failed evaluation invalid instead."
        )
    return weighted
