"""AttentionBuckets: several streams, each with its own rotary base, and one distribution of the next token."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, field_validator

from lpes_evo.errors import ConfigError
from lpes_evo.methods._bases import BASE_SETS
from lpes_evo.methods._method import Method
from lpes_evo.methods.takeover import MethodHandle

if TYPE_CHECKING:
    import torch

_SETS = ("tool", "rag")


class AttentionBuckets(Method):
    """One full forward pass for each base; logits are weighted by the confidence of each stream (arXiv 2312.04455).

    The weight of a stream is the softmax over streams of its largest logit. ``combine="logits"`` sums raw logits, as
    the released code does, and ``"probs"`` sums distributions, as the paper states. The published sets are for models
    of base 10000. On another model they are multiplied by the model's base divided by 10000. With the model's base as
    the only base the method is the untouched model.

    Attributes:
        bases: A published set, ``tool`` or ``rag``; or absolute bases, as numbers or as a text with slashes, such as
            ``10000/17500``.
        combine: The values that are summed, ``logits`` or ``probs``.
        group: Streams in one forward pass; ``None`` for all. A smaller group needs less memory and gives the same
            result.
    """

    name: ClassVar[str] = "attention-buckets"
    leading: ClassVar[str | None] = "bases"

    bases: str = "tool"
    combine: Literal["logits", "probs"] = "logits"
    group: int | None = Field(default=None, ge=1)

    @field_validator("bases", mode="before")
    @classmethod
    def _bases_are_sound(cls, value: Any) -> Any:
        parts = value.split("/") if isinstance(value, str) else value
        if value in _SETS or not isinstance(parts, (list, tuple)):
            return value

        try:
            numbers = [float(part) for part in parts]
        except (TypeError, ValueError):
            numbers = []

        if not numbers or not all(1 < number < math.inf for number in numbers):
            raise ValueError(f"expected {' or '.join(_SETS)}, or numbers above 1, but got {value!r:.60}")
        return "/".join(f"{number:.12g}" for number in numbers)

    @property
    def given(self) -> tuple[float, ...] | None:
        """The absolute bases that were given, or ``None`` for a published set."""
        return None if self.bases in _SETS else tuple(map(float, self.bases.split("/")))

    @property
    def streams(self) -> int:
        """The number of full forward passes in one step, one for each base."""
        return len(self.given or BASE_SETS[self.bases])

    @contextmanager
    def _apply(self, model: "torch.nn.Module") -> Iterator[MethodHandle]:
        """Return a context in which the model runs once for each base.

        Raises:
            UnsupportedModelError: The rotary modules cannot be built with another base.
            ConfigError: Absolute bases are given for a model whose layer types have different bases.
        """
        from lpes_evo.methods.takeover import check_describes, streams_of

        check_describes(model, self.name, any_static_type=True)
        ratios = base_ratios(model, self.given, BASE_SETS.get(self.bases, ()))
        with streams_of(model, ratios, self.combine, self.group or len(ratios)):
            yield MethodHandle()

    def departures(self, model: "torch.nn.Module") -> tuple[str, ...]:
        """Return where the computation departs from the released code on a model."""
        from lpes_evo.methods.takeover import relative_bases, under_other_type

        published = tuple(base / 10000 for base in BASE_SETS.get(self.bases, ()))
        return (*relative_bases(model, published), *under_other_type(model, "the bases are changed"))

    def _settings(self, n_layers: int) -> dict[str, Any]:
        """Return the settings, the meaning of the bases, and the source of the combination."""
        source = "released code" if self.combine == "logits" else "paper"
        taken = "relative to 10000" if self.given is None else "as they are"
        return {
            **super()._settings(n_layers),
            "combine_follows": source,
            "bases_taken": taken,
            "streams": self.streams,
        }


def base_ratios(
    model: "torch.nn.Module", bases: tuple[float, ...] | None, published: tuple[float, ...]
) -> tuple[float, ...]:
    """Return bases as factors of the model's own base.

    Args:
        model: The model.
        bases: Absolute bases, or ``None``.
        published: The published set for models of base 10000, which is used without absolute bases.

    Returns:
        One factor for each base.

    Raises:
        ConfigError: Absolute bases are given for a model whose layer types have different bases.
    """
    from lpes_evo.methods.takeover import rope_bases

    if bases is None:
        return tuple(base / 10000 for base in published)
    own = rope_bases(model)
    if len(own) > 1:
        raise ConfigError(
            f"Expected a model of one rotary base for given bases, but this one has "
            f"{', '.join(f'{b:g}' for b in own)}. Leave the bases out; the published set is then relative to each."
        )
    return tuple(base / own[0] for base in bases)
