"""Arm: one side of a comparison, a method under a name."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lpes_evo.errors import ConfigError
from lpes_evo.methods import Baseline, Lpes, Method, MethodHandle, make_method
from lpes_evo.runs import LPES, UNTOUCHED
from lpes_evo.scales import Scales

if TYPE_CHECKING:
    from lpes_evo.models import LoadedModel


@dataclass(frozen=True)
class Arm:
    """One side of a comparison; it crosses to worker processes, since a method holds no model.

    Attributes:
        name: The label in tables, journals and files: ``untouched``, ``lpes``, or the text that names another method.
        method: The method that the model runs under.
    """

    name: str
    method: Method

    @property
    def found(self) -> Scales | None:
        """Scales that the method puts on the model, or ``None``."""
        return getattr(self.method, "scales", None)

    def apply(self, loaded: "LoadedModel") -> AbstractContextManager[MethodHandle]:
        """Return a context in which a model runs under the method; leaving it restores the model.

        Raises:
            LpesError: The method does not go with the model.
        """
        return self.method.apply(loaded.model)

    def record(self, n_layers: int, model: Any = None) -> dict[str, Any]:
        """Return what defines this arm on a model of ``n_layers`` layers, as values that `json` can write.

        Args:
            n_layers: Decoder layers of the model.
            model: The model, where what depends on it is to be told too.
        """
        record = self.method.record(n_layers, model)
        if self.name in (UNTOUCHED, LPES):
            # The name says what the method is, and journals of the first evaluations hold hashes of this form.
            return {key: value for key, value in record.items() if key != "method"}
        return {**record, "streams": self.method.streams, "attention_passes": self.method.attention_passes}


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
    untouched = Arm(UNTOUCHED, Baseline())
    if methods is None:
        return (untouched,) if found is None else (untouched, Arm(LPES, Lpes(scales=found)))

    made = [make_method(spec, scales=found) for spec in methods]
    twice = [spec for index, spec in enumerate(methods) if made[index] in made[:index]]
    if twice:
        raise ConfigError(f"Expected every method once, but got {', '.join(twice)} more than once.")

    arms = [untouched]
    arms += [
        Arm(spec, method)
        for spec, method in zip(methods, made, strict=True)
        if not isinstance(method, Baseline)
    ]
    if found is not None and not any(arm.found is found for arm in arms):
        raise ConfigError(
            f"Expected a method that uses the given scales, but got {', '.join(methods)}. Add lpes, or leave the "
            "scales out."
        )
    return tuple(arms)
