"""The arms of an evaluation: what is done to a model while it answers."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lpes_evo.errors import ConfigError
from lpes_evo.methods import Method, make_method
from lpes_evo.runs import LPES, UNTOUCHED
from lpes_evo.scales import Scales

if TYPE_CHECKING:
    from lpes_evo.models import LoadedModel


class Arm(ABC):
    """One side of a comparison; it crosses to worker processes, so it holds values and no model.

    Attributes:
        name: What tables call it.
    """

    name: str

    @property
    def found(self) -> Scales | None:
        """Scales that the arm puts on the model, or ``None``."""
        return None

    @property
    def chooses_by_prompt(self) -> bool:
        """Whether it chooses something by the prompt of each row, see `lpes_evo.methods.Applied.prompts`."""
        return False

    @abstractmethod
    def apply(self, loaded: "LoadedModel") -> AbstractContextManager[Any]:
        """Return a context in which the model is under this arm; leaving it restores the model.

        Raises:
            LpesError: The arm does not go with the model.
        """

    def neutral_up_to(self, loaded: "LoadedModel") -> int | None:  # noqa: ARG002
        """Return how long prompts may be, in tokens, that run as on the untouched model; ``None`` for none."""
        return None

    @abstractmethod
    def record(self, n_layers: int, model: Any = None) -> dict[str, Any]:
        """Return what defines this arm on a model of ``n_layers`` layers, as values that `json` can write.

        Args:
            n_layers: Decoder layers of the model.
            model: The model, where what depends on it is to be told too.
        """


@dataclass(frozen=True)
class UntouchedArm(Arm):
    """The model as it is."""

    name: str = UNTOUCHED

    def apply(self, loaded: "LoadedModel") -> AbstractContextManager[Any]:  # noqa: ARG002
        """Return a context that does nothing."""
        return nullcontext()

    def record(self, n_layers: int, model: Any = None) -> dict[str, Any]:  # noqa: ARG002
        """Return nothing: there is nothing to tell."""
        return {}


@dataclass(frozen=True)
class LpesArm(Arm):
    """The model under found scales; those of a model of another depth are read off their curve anew.

    Attributes:
        scales: The scales as they were found.
    """

    scales: Scales
    name: str = LPES

    @property
    def found(self) -> Scales:
        """The scales as they were found."""
        return self.scales

    def apply(self, loaded: "LoadedModel") -> AbstractContextManager[Any]:
        """Return a context in which every layer has its scale."""
        from lpes_evo.rope import patch_rope

        return patch_rope(loaded.model, self.found.at_depth(loaded.n_layers).scales)

    def record(self, n_layers: int, model: Any = None) -> dict[str, Any]:  # noqa: ARG002
        """Return the scales in force, and where they were found."""
        return {
            "scales": list(self.found.at_depth(n_layers).scales),
            "found_on": self.found.model,
            "found_with_task": self.found.task,
            "found_at_depth": self.found.n_layers,
        }


@dataclass(frozen=True)
class MethodArm(Arm):
    """The model under a method, such as a rival of LPES.

    Attributes:
        method: The method.
        name: Its spec.
    """

    method: Method
    name: str

    @property
    def found(self) -> Scales | None:
        """Scales that the method has on top, or ``None``."""
        return getattr(self.method, "scales", None)

    @property
    def chooses_by_prompt(self) -> bool:
        """Whether the method chooses something by the prompt of each row."""
        return self.method.chooses_by_prompt

    def apply(self, loaded: "LoadedModel") -> AbstractContextManager[Any]:
        """Return a context in which the model runs under the method."""
        return self.method.apply(loaded.model)

    def neutral_up_to(self, loaded: "LoadedModel") -> int | None:
        """Return how long prompts may be that run as on the untouched model."""
        return self.method.neutral_up_to(loaded.model)

    def record(self, n_layers: int, model: Any = None) -> dict[str, Any]:
        """Return what defines the method, and what one step of it computes."""
        cost = {"streams": self.method.streams, "attention_passes": self.method.attention_passes}
        return {**self.method.record(n_layers, model), **cost}


def make_arms(found: Scales | None, methods: Sequence[str] | None = None) -> tuple[Arm, ...]:
    """Return the arms of an evaluation, the untouched model first.

    Args:
        found: Scales to judge; ``None`` for none.
        methods: Specs of `lpes_evo.methods.make_method`; the untouched model, called ``baseline`` there, takes part in
            any case. ``None`` for the scales alone.

    Returns:
        The arms.

    Raises:
        ConfigError: A spec is wrong or comes twice, or scales are given that no method uses.
        ScalesError: A file of scales cannot be used.
    """
    if methods is None:
        return (UntouchedArm(),) if found is None else (UntouchedArm(), LpesArm(found))
    made = [make_method(spec, scales=found) for spec in methods]
    twice = [spec for index, spec in enumerate(methods) if made[index] in made[:index]]
    if twice:
        raise ConfigError(f"Expected every method once, but got {', '.join(twice)} more than once.")
    arms: list[Arm] = [UntouchedArm()]
    for spec, method in zip(methods, made, strict=True):
        if method.name != "baseline":
            arms.append(LpesArm(found) if spec == LPES and found is not None else MethodArm(method, spec))
    if found is not None and not any(arm.found is found for arm in arms):
        raise ConfigError(
            f"Expected a method that uses the given scales, but got {', '.join(methods)}. Add lpes, or leave the "
            "scales out."
        )
    return tuple(arms)
