# ruff: noqa: TID253
"""Routers: the routers of MoICE, and the safetensors file that holds them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, cast

import torch
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from lpes_evo.errors import ConfigError, LpesError, ModelError
from lpes_evo.methods.takeover import find_rotations
from lpes_evo.models import weights_hash
from lpes_evo.rope import find_structure
from lpes_evo.storage import Record, parse_json, to_json, write_atomic

__all__ = ["Router", "RouterFacts", "Routers", "load_routers", "new_routers", "save_routers"]


@dataclass(frozen=True)
class RouterFacts:
    """The model that routers were trained for, and their training.

    Attributes:
        weights: Hash of the weights of the model, see `lpes_evo.models.weights_hash`.
        model: Name of the model.
        layers: Layers with a router.
        head_dim: Size of a head.
        bases: Rotary base of each expert, relative to that of the model.
        top_k: Experts that count for a token.
        activation: Activation inside a router, as transformers names it.
        trained: The settings of their training.
    """

    weights: str
    model: str
    layers: tuple[int, ...]
    head_dim: int
    bases: tuple[float, ...]
    top_k: int
    activation: str
    trained: dict[str, Any]


class RoutersHeader(Record):
    """The header of a file of routers, which holds the fields of `RouterFacts` as JSON under ``lpes_evo``."""

    WHAT: ClassVar[str] = "routers of MoICE"
    ERROR: ClassVar[type[LpesError]] = ConfigError
    REMEDY: ClassVar[str] = "Make them anew with 'lpes-evo train-moice'."

    format: Literal["lpes-evo/moice-routers"] = "lpes-evo/moice-routers"
    version: Literal[1] = 1
    weights: str
    model: str
    layers: Annotated[tuple[NonNegativeInt, ...], Field(min_length=1)]
    head_dim: Annotated[int, Field(ge=1, le=1 << 20)]
    bases: Annotated[tuple[PositiveFloat, ...], Field(min_length=1)]
    top_k: PositiveInt
    activation: str
    trained: dict[str, Any]

    @model_validator(mode="after")
    def _experts_suffice(self) -> RoutersHeader:
        if self.top_k > len(self.bases):
            raise ValueError(f"top_k is {self.top_k} and there are {len(self.bases)} bases")
        return self


class Router(torch.nn.Module):
    """A network that weighs experts by a query: ``gate_2(act(gate_1(q)) * gate_3(q))``, without biases.

    As in the released code (arXiv 2406.19598), all heads of a layer share one router.
    """

    def __init__(self, head_dim: int, n_experts: int, activation: str) -> None:
        from transformers.activations import ACT2FN

        super().__init__()
        self.gate_1 = torch.nn.Linear(head_dim, n_experts, bias=False)
        self.gate_2 = torch.nn.Linear(n_experts, n_experts, bias=False)
        self.gate_3 = torch.nn.Linear(head_dim, n_experts, bias=False)
        self.activation = ACT2FN[activation]

    def forward(self, queries: torch.Tensor) -> torch.Tensor:
        """Return the probability of each expert.

        Args:
            queries: Queries rotated with the first base, ``(batch, heads, length, head_dim)``.

        Returns:
            The probabilities, ``(batch, heads, length, n_experts)`` in float32.
        """
        queries = queries.to(self.gate_1.weight.dtype)
        mixed: torch.Tensor = self.gate_2(self.activation(self.gate_1(queries)) * self.gate_3(queries))
        return mixed.float().softmax(dim=-1)


class Routers(torch.nn.Module):
    """The routers of a model, by layer; they are not part of the model.

    Attributes:
        facts: The model that they were made for, and their training.
    """

    def __init__(self, facts: RouterFacts) -> None:
        super().__init__()
        self.facts = facts
        self.by_layer = torch.nn.ModuleDict(
            {str(layer): Router(facts.head_dim, len(facts.bases), facts.activation) for layer in facts.layers}
        )

    def of(self, layer: int) -> Router:
        """Return the router of a layer."""
        return cast("Router", self.by_layer[str(layer)])


def new_routers(
    model: Any, name: str, bases: tuple[float, ...], top_k: int, *, seed: int, trained: dict[str, Any]
) -> Routers:
    """Return routers of random weights for a model.

    Args:
        model: The model.
        name: Name of the model.
        bases: Rotary base of each expert, relative to that of the model.
        top_k: Experts that count for a token.
        seed: Seed of the weights.
        trained: The settings of the coming training.

    Returns:
        The routers, on the device of the model and in float32.

    Raises:
        ConfigError: ``top_k`` is not between 1 and the number of bases.
        UnsupportedModelError: The attention of the model cannot be taken over.
    """
    if not 1 <= top_k <= len(bases):
        raise ConfigError(f"Expected top_k between 1 and the {len(bases)} bases, but got {top_k}.")

    layers, head_dim = _shape(model)
    facts = RouterFacts(
        weights=weights_hash(model),
        model=name,
        layers=layers,
        head_dim=head_dim,
        bases=bases,
        top_k=top_k,
        activation=_activation(model),
        trained=trained,
    )

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        routers = Routers(facts)

    return routers.to(next(model.parameters()).device)


def _shape(model: Any) -> tuple[tuple[int, ...], int]:
    rotations = find_rotations(model).values()
    sizes = {rotation.head_dim for _, rotation in rotations}
    if len(sizes) != 1:
        raise ConfigError(
            f"Expected layers whose heads are of one size for moice, but got {', '.join(map(str, sorted(sizes)))}."
        )
    return tuple(sorted({layer for layer, _ in rotations})), sizes.pop()


def _activation(model: Any) -> str:
    config: Any = find_structure(model).decoder.config
    found = getattr(config, "hidden_act", None) or getattr(config, "hidden_activation", None)
    return str(found or "silu")


def save_routers(routers: Routers, path: Path) -> None:
    """Write routers as a safetensors file.

    Args:
        routers: The routers.
        path: The file.

    Raises:
        StorageError: The file cannot be written.
    """
    header = RoutersHeader.of(
        {"format": "lpes-evo/moice-routers", "version": 1, **asdict(routers.facts)}, str(path)
    )
    tensors = {
        name: tensor.detach().cpu().contiguous() for name, tensor in routers.by_layer.state_dict().items()
    }
    write_atomic(path, save(tensors, metadata={"lpes_evo": to_json(header.to_json())}))


def load_routers(path: str | Path, model: Any = None) -> Routers:
    """Read routers from a file.

    Args:
        path: The file.
        model: The model that the routers will be used on; ``None`` to skip the comparison with it.

    Returns:
        The routers, on the device of the model.

    Raises:
        ConfigError: The file is missing, damaged or not a file of routers.
        ModelError: The routers were trained for another model.
    """
    try:
        with safe_open(str(path), framework="pt") as file:
            metadata = (file.metadata() or {}).get("lpes_evo")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, ValueError) as error:
        raise ConfigError(
            f"Expected routers of MoICE in {path}, but it cannot be read: {error}. Make them with lpes-evo train-moice."
        ) from error

    routers = _checked(path, metadata, tensors)
    if model is not None:
        facts = routers.facts
        if (facts.layers, facts.head_dim) != _shape(model) or facts.weights != weights_hash(model):
            raise ModelError(
                f"Expected routers that were trained for this model, but those of {path} were trained for "
                f"{facts.model}: {len(facts.layers)} layers, heads of {facts.head_dim}, other weights or "
                "the same in another dtype. Train routers for this model in this dtype with lpes-evo train-moice."
            )
        routers.to(next(model.parameters()).device)

    return routers


def _checked(path: str | Path, metadata: str | None, tensors: dict[str, torch.Tensor]) -> Routers:
    expected = f"Expected routers of MoICE in {path}"
    if metadata is None:
        raise ConfigError(f"{expected}, but it is another file. Make them with lpes-evo train-moice.")

    values = parse_json(metadata, f"the header of {path}", ConfigError, RoutersHeader.REMEDY)
    header = RoutersHeader.of(values, f"the header of {path}")
    facts = RouterFacts(**{field.name: getattr(header, field.name) for field in fields(RouterFacts)})
    try:
        routers = Routers(facts)
        routers.by_layer.load_state_dict(tensors)
    except (KeyError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"{expected}, but its parts do not fit each other: {reason}. Make them anew."
        ) from error

    if not all(torch.isfinite(tensor).all() for tensor in tensors.values()):
        raise ConfigError(f"{expected}, but a weight is not finite. Make them anew.")
    return routers.requires_grad_(False)
