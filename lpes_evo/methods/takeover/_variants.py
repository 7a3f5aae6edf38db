# ruff: noqa: TID253
"""Variants of a model's rotary modules, with another base or another rotary type of transformers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from lpes_evo.errors import UnsupportedModelError
from lpes_evo.rope import (
    check_frequencies,
    find_structure,
    indexes_table,
    is_dynamic,
    measures_length,
    raw_forward,
    rope_types,
)

__all__ = [
    "RowwiseRotaryEmbedding",
    "base_variants",
    "check_describes",
    "interpolated_rotary",
    "original_length",
    "relative_bases",
    "replaced_rotary",
    "rope_bases",
    "rotary_frequencies",
    "rotary_variant",
    "stated_window",
    "under_other_type",
]


def check_describes(model: torch.nn.Module, method: str, *, any_static_type: bool = False) -> None:
    """Check that the rotary modules of a model can be built from its config with other values.

    Args:
        model: The model.
        method: Name of the method, for messages.
        any_static_type: Whether other types than the default are accepted, if their frequencies do not depend on the
            length of the input.

    Raises:
        UnsupportedModelError: A rotary module is not of the default type, or its config does not describe it.
        ModelError: The model's rotary frequencies are not sound.
    """
    for module in find_structure(model).rotary_modules:
        kinds = ", ".join(sorted(rope_types(module)))
        if is_dynamic(module) or not (any_static_type or rope_types(module) == {"default"}):
            wanted = "a rotary type that is fixed" if any_static_type else "the default rotary type"
            raise UnsupportedModelError(
                f"Expected a model with {wanted} for the method {method}, but {type(module).__name__} is of type "
                f"{kinds}. Its positions are extended already; use another method."
            )

        if not _is_of_config(module):
            raise UnsupportedModelError(
                f"Expected rotary modules that keep frequencies made of a config for the method {method}, but "
                f"{type(module).__name__} {'keeps a fixed table' if indexes_table(module) else 'does not'}. Use lpes "
                "or pi with this architecture."
            )

    check_frequencies(model)
    for module in find_structure(model).rotary_modules:
        differing = _differing_frequencies(module)
        if differing is not None:
            raise UnsupportedModelError(
                f"Expected {type(module).__name__}.{differing} to be what the model's config gives, but it differs, so "
                f"the method {method} cannot make it anew. Load the model with from_pretrained(dtype=...)."
            )


def interpolated_rotary(
    model: torch.nn.Module, factor: float
) -> dict[torch.nn.Module, torch.nn.Module] | None:
    """Return a stand-in of the type ``linear`` of transformers for each rotary module of a model.

    Args:
        model: The model.
        factor: The divisor of positions.

    Returns:
        The new module for each rotary module. ``None`` if a rotary module is not of the default type, its config does
        not describe it, or its family does not support ``linear``; then positions must be divided before they reach the
        module.

    Raises:
        ModelError: The model's rotary frequencies are not sound.
    """
    check_frequencies(model)
    modules = find_structure(model).rotary_modules
    if any(
        rope_types(module) != {"default"}
        or not _is_of_config(module)
        or _differing_frequencies(module) is not None
        for module in modules
    ):
        return None

    parameters = {"rope_type": "linear", "factor": factor}
    try:
        return {module: rotary_variant(module, parameters=parameters) for module in modules}
    except UnsupportedModelError:
        return None


def _is_of_config(module: torch.nn.Module) -> bool:
    """Return whether a rotary module keeps frequencies that follow from a config alone."""
    return hasattr(module, "config") and not indexes_table(module) and bool(rotary_frequencies(module))


def _differing_frequencies(module: torch.nn.Module) -> str | None:
    """Return the name of frequencies that are not bit-equal to those that the config gives, or ``None``."""
    fresh = rotary_variant(module)
    for name, buffer in rotary_frequencies(module).items():
        if not torch.equal(buffer.cpu(), fresh.get_buffer(name).cpu()):
            return name
    return None


def rotary_variant(
    module: Any, *, base_ratio: float = 1.0, parameters: Mapping[str, Any] | None = None
) -> torch.nn.Module:
    """Return a variant of a rotary module, which transformers builds from a changed config.

    Args:
        module: The rotary module.
        base_ratio: Factor of its base, or of each of its bases if layer types have their own.
        parameters: Rotary type and settings, as transformers names them; ``None`` to keep those of the module.

    Returns:
        The new module, on the device of the original.

    Raises:
        UnsupportedModelError: The family does not support the type, or supports it with another number of frequencies.
    """
    kind = (parameters or {}).get("rope_type", "default")
    config = copy.deepcopy(module.config)
    original = (parameters or {}).get("original_max_position_embeddings")
    if original is not None and hasattr(config, "original_max_position_embeddings"):
        # transformers prefers this field to the one in the rotary parameters.
        config.original_max_position_embeddings = original

    if getattr(config, "head_dim", 0) is None:
        # Some rotary types would take None for the size of a head.
        config.head_dim = config.hidden_size // config.num_attention_heads

    for settings in _rope_sets(config):
        # A product with 1.0 could turn an integer base into a float.
        if base_ratio != 1.0:
            settings["rope_theta"] = settings["rope_theta"] * base_ratio
        settings.update(parameters or {})

    if not isinstance(getattr(config, "rope_parameters", None), dict):
        # transformers 4 keeps the base and the type in separate fields.
        if base_ratio != 1.0:
            config.rope_theta = config.rope_theta * base_ratio
        if parameters:
            config.rope_scaling = dict(parameters)

    no_such_type = UnsupportedModelError(
        f"Expected rotary modules that can be of the type {kind}, but transformers does not have "
        f"{type(module).__name__} in that type. Use lpes or pi with this architecture."
    )
    try:
        with torch.device("cpu"):
            fresh: torch.nn.Module = type(module)(config)
    except (ValueError, KeyError) as error:
        raise no_such_type from error

    if parameters and (rope_types(fresh) != {kind} or measures_length(module)):
        raise no_such_type

    for name, buffer in rotary_frequencies(module).items():
        if fresh.get_buffer(name).shape != buffer.shape:
            raise UnsupportedModelError(
                f"Expected {len(buffer)} rotary frequencies of {type(module).__name__} under the rotary type {kind}, "
                f"but transformers gives {len(fresh.get_buffer(name))}. This family does not have the type; use lpes "
                "or pi."
            )

    return fresh.to(next(iter(module.buffers())).device)


def base_variants(module: Any, ratios: Sequence[float]) -> list[torch.nn.Module]:
    """Return a variant of a rotary module for each factor of its base; for the factor 1 the module itself.

    Args:
        module: The rotary module.
        ratios: Factors of its base.

    Raises:
        UnsupportedModelError: A variant cannot be built, see `rotary_variant`.
    """
    return [module if ratio == 1 else rotary_variant(module, base_ratio=ratio) for ratio in ratios]


def rope_bases(model: torch.nn.Module) -> tuple[float, ...]:
    """Return the rotary bases of a model in ascending order; several if layer types have their own."""
    found = set()
    for module in find_structure(model).rotary_modules:
        config: Any = module.config
        sets = _rope_sets(config)
        found |= {float(entry["rope_theta"]) for entry in sets} if sets else {float(config.rope_theta)}
    return tuple(sorted(found))


def relative_bases(model: torch.nn.Module, ratios: Sequence[float]) -> tuple[str, ...]:
    """Return the departure that results from published bases, meant for base 10000, on a model of another base.

    Args:
        model: The model.
        ratios: Factors of the model's own base; empty for absolute bases.

    Returns:
        One text, or none if the bases are the published ones.
    """
    own = rope_bases(model)
    if not ratios or own == (10000.0,):
        return ()
    came = ", ".join(f"{base:g}" for base in own)
    return (
        f"bases are multiplied by the model's own over 10000, for which the released ones are meant, since its own is "
        f"{came}",
    )


def under_other_type(model: torch.nn.Module, what: str) -> tuple[str, ...]:
    """Return the departure that results from a rotary type other than the default, which released codes assume.

    Args:
        model: The model.
        what: The action of the method before the rotary modules, such as ``positions are divided``.

    Returns:
        One text, or none on a model of the default type.
    """
    kinds = {kind for module in find_structure(model).rotary_modules for kind in rope_types(module)} - {
        "default"
    }
    if not kinds:
        return ()
    return (
        f"{what} in front of the model's rotary type {', '.join(sorted(kinds))}, where the released code knows the "
        "default type alone",
    )


def stated_window(model: torch.nn.Module) -> int:
    """Return the ``max_position_embeddings`` of a model's config, in tokens."""
    config: Any = find_structure(model).rotary_modules[0].config
    return int(config.max_position_embeddings)


def original_length(model: torch.nn.Module, given: int | None) -> int:
    """Return the window in tokens that a model was trained with.

    Args:
        model: The model.
        given: The window that the user states, which takes precedence over the config.

    Returns:
        The window that the config calls original, else its ``max_position_embeddings``.
    """
    if given is not None:
        return given

    config: Any = find_structure(model).rotary_modules[0].config
    stated = [entry.get("original_max_position_embeddings") for entry in _rope_sets(config)]
    own = getattr(config, "original_max_position_embeddings", None)
    return int(next((length for length in (*stated, own) if length), config.max_position_embeddings))


def _rope_sets(config: Any) -> list[dict[str, Any]]:
    """Return the rotary parameters of a config of transformers 5: one set, or one for each layer type."""
    parameters = getattr(config, "rope_parameters", None)
    if not isinstance(parameters, dict):
        return []
    nested = [entry for entry in parameters.values() if isinstance(entry, dict)]
    return nested or [parameters]


def rotary_frequencies(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the frequencies in use of a rotary module by buffer name: one set, or one for each layer type."""
    return {
        name: buffer
        for name, buffer in module.named_buffers(recurse=False)
        if name.endswith("inv_freq") and "original" not in name
    }


@contextmanager
def replaced_rotary(
    model: torch.nn.Module, make: Callable[[torch.nn.Module], torch.nn.Module]
) -> Iterator[list[torch.nn.Module]]:
    """Put other modules in the place of the rotary modules of a model for the length of a block.

    Args:
        model: The model.
        make: Returns the stand-in for a rotary module.

    Yields:
        The stand-ins.
    """
    stand_ins = {module: make(module) for module in find_structure(model).rotary_modules}
    places = [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent.named_children()
        if child in stand_ins
    ]

    try:
        for parent, name, child in places:
            setattr(parent, name, stand_ins[child])
        yield list(stand_ins.values())
    finally:
        for parent, name, child in places:
            setattr(parent, name, child)


class RowwiseRotaryEmbedding(torch.nn.Module):
    """A stand-in for a rotary module, which gives each row of the batch the tables of one of several variants.

    Attributes:
        variants: The rotary modules to choose from, at first the replaced module. They are not registered as
            submodules, so that other code does not take them for modules of the model.
        choice: Index of the variant of each row, ``(batch,)``; ``None`` for the first variant in every row.
    """

    def __init__(self, variants: list[Any]) -> None:
        super().__init__()
        self.variants = variants
        self.choice: torch.Tensor | None = None
        # Inside a tuple the module is not registered as a submodule.
        self._replaced = (variants[0],)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the replaced module, such as its config, which decoders read."""
        if name.startswith("_"):
            return super().__getattr__(name)
        return getattr(self._replaced[0], name)

    def forward(self, x: torch.Tensor, position_ids: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        """Return the tables for positions ``(rows, length)``; rows that repeat the batch repeat its choice."""
        if self.choice is None:
            return raw_forward(self.variants[0])(self.variants[0], x, position_ids, *args, **kwargs)

        batch = len(self.choice)
        if position_ids.shape[-2] % batch:
            raise UnsupportedModelError(
                f"Expected positions of {batch} rows, one for each row of the batch, but the model passes "
                f"{position_ids.shape[-2]} to its rotary module. This architecture cannot rotate row by row."
            )

        choice = self.choice.repeat(position_ids.shape[-2] // batch)
        tables: list[torch.Tensor] = []
        for number, variant in enumerate(self.variants):
            rows = (choice == number).nonzero().flatten().to(position_ids.device)
            found = raw_forward(variant)(variant, x, position_ids[..., rows, :], *args, **kwargs)
            single = isinstance(found, torch.Tensor)
            parts = (found,) if single else found

            # Positions may have leading axes, of text, height and width, that the tables do not have.
            tables = tables or [
                part.new_empty(*part.shape[:-3], len(choice), *part.shape[-2:]) for part in parts
            ]
            for table, part in zip(tables, parts, strict=True):
                table[..., rows, :, :] = part

        return tables[0] if single else tuple(tables)
