"""The arms of an evaluation: what is done to a model while it answers."""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lpes_evo.report import LPES, UNTOUCHED
from lpes_evo.scales import Scales

if TYPE_CHECKING:
    from lpes_evo.models import LoadedModel


class Arm(ABC):
    """One side of a comparison; it crosses to worker processes, so it holds values and no model.

    Attributes:
        name: What tables call it.
    """

    name: str

    @abstractmethod
    def apply(self, loaded: "LoadedModel") -> AbstractContextManager[Any]:
        """Return a context in which the model is under this arm; leaving it restores the model.

        Raises:
            LpesError: The arm does not go with the model.
        """

    @abstractmethod
    def record(self, n_layers: int) -> dict[str, Any]:
        """Return what defines this arm on a model of ``n_layers`` layers, as values that `json` can write."""


@dataclass(frozen=True)
class UntouchedArm(Arm):
    """The model as it is."""

    name: str = UNTOUCHED

    def apply(self, loaded: "LoadedModel") -> AbstractContextManager[Any]:  # noqa: ARG002
        """Return a context that does nothing."""
        return nullcontext()

    def record(self, n_layers: int) -> dict[str, Any]:  # noqa: ARG002
        """Return nothing: there is nothing to tell."""
        return {}


@dataclass(frozen=True)
class LpesArm(Arm):
    """The model under found scales; those of a model of another depth are read off their curve anew.

    Attributes:
        found: The scales as they were found.
    """

    found: Scales
    name: str = LPES

    def apply(self, loaded: "LoadedModel") -> AbstractContextManager[Any]:
        """Return a context in which every layer has its scale."""
        from lpes_evo.rope import patch_rope

        return patch_rope(loaded.model, self.found.at_depth(loaded.n_layers).scales)

    def record(self, n_layers: int) -> dict[str, Any]:
        """Return the scales in force, and where they were found."""
        return {
            "scales": list(self.found.at_depth(n_layers).scales),
            "found_on": self.found.model,
            "found_with_task": self.found.task,
            "found_at_depth": self.found.n_layers,
        }


def make_arms(found: Scales | None) -> tuple[Arm, ...]:
    """Return the arms of an evaluation, the untouched model first.

    Args:
        found: Scales to judge; ``None`` for the untouched model alone.

    Returns:
        The arms.
    """
    return (UntouchedArm(),) if found is None else (UntouchedArm(), LpesArm(found))
