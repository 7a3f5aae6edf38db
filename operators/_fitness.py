"""CurveFitness: the fitness of a curve, which refuses values that are not finite and knows of broken constraints."""

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

    A fitness may carry a violation of constraints. Comparisons, and with them every selection and hall of fame of
    DEAP, then follow the rule of Deb ("An efficient constraint handling method for genetic algorithms", Computer
    Methods in Applied Mechanics and Engineering 186, 2000): what violates nothing is better than what violates
    something, the smaller violation is better, and equal violations are told apart by the values. `dominates` is the
    constrained domination of NSGA-II in the same way (Deb et al., IEEE TEVC 6(2), 2002, definition 1).

    Attributes:
        weights: One factor per objective: positive to maximise, negative to minimise, ``(n_objectives,)``.
        violation: The amount by which constraints are violated, 0 where all are kept.
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

        self._violation = 0.0
        super().__init__(values)

    @property
    def violation(self) -> float:
        """The amount by which constraints are violated, 0 where all are kept.

        Raises:
            CurveError: The amount that is set is not a finite number of at least 0.
        """
        return self._violation

    @violation.setter
    def violation(self, amount: float) -> None:
        violation = _finite(amount, 1.0)
        if violation < 0:
            raise CurveError(f"Expected a violation of at least 0, but got {violation:g}. Give 0 for none.")
        self._violation = violation

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

    def _del_values(self) -> None:
        """Forget the values and the violation."""
        self.wvalues = ()
        self._violation = 0.0

    # DEAP binds its own setter into the property, so overriding the method alone would have no effect.
    values = property(base.Fitness.getValues, _set_values, _del_values, "The values, not weighted.")

    def dominates(self, other: "CurveFitness", obj: slice = slice(None)) -> bool:
        """Return whether it violates less than the other, or as much and is better in the sense of Pareto.

        Args:
            other: The fitness to compare with.
            obj: The objectives that are compared where both violate as much.
        """
        if self.violation != other.violation:
            return self.violation < other.violation
        return bool(super().dominates(other, obj))

    @property
    def _rank(self) -> tuple[float, tuple[float, ...]]:
        """What comparisons compare, the larger the better."""
        return -self.violation, self.wvalues

    def __lt__(self, other: "CurveFitness") -> bool:
        """Return whether it is worse."""
        return self._rank < other._rank

    def __le__(self, other: "CurveFitness") -> bool:
        """Return whether it is no better; DEAP derives ``>`` and ``>=`` from these two."""
        return self._rank <= other._rank

    def __eq__(self, other: object) -> bool:
        """Return whether it is neither better nor worse."""
        return isinstance(other, CurveFitness) and self._rank == other._rank

    def __hash__(self) -> int:
        """Return the hash of what comparisons compare."""
        return hash(self._rank)

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
