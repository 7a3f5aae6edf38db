# ruff: noqa: TID253
"""Rotary modules like those of a model, with another base or another rotary type of transformers."""

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
    """Check that the rotary modules of a model can be made anew with other values.

    Args:
        model: The model.
        method: Name of the method, for messages.
        any_static_type: Whether types beside the default one will do, as long as the length of the input does not
            change them.

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
    """Return what stands in for each rotary module of a model, of the type ``linear`` of transformers.

    Args:
        model: The model.
        factor: The divisor of positions.

    Returns:
        The new module of each; ``None`` where one is not of the default type, its config does not describe it, or its
        family does not have the type, so that positions must be divided in front of it.

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
    """Return whether a rotary module keeps frequencies that are made of a config alone."""
    return hasattr(module, "config") and not indexes_table(module) and bool(rotary_frequencies(module))


def _differing_frequencies(module: torch.nn.Module) -> str | None:
    """Return the name of frequencies that are not to the bit what the config gives, or ``None``."""
    fresh = rotary_variant(module)
    for name, buffer in rotary_frequencies(module).items():
        if not torch.equal(buffer.cpu(), fresh.get_buffer(name).cpu()):
            return name
    return None


def rotary_variant(
    module: Any, *, base_ratio: float = 1.0, parameters: Mapping[str, Any] | None = None
) -> torch.nn.Module:
    """Return a rotary module like another one, made by transformers of a changed config.

    Args:
        module: The rotary module.
        base_ratio: Factor of its base, or of each of its bases where layer types have their own.
        parameters: Rotary type and its settings, as transformers names them; ``None`` keeps those of the module.

    Returns:
        The new module, on the device of the other one.

    Raises:
        UnsupportedModelError: The family does not have the type, or has it with another number of frequencies.
    """
    kind = (parameters or {}).get("rope_type", "default")
    config = copy.deepcopy(module.config)
    original = (parameters or {}).get("original_max_position_embeddings")
    if original is not None and hasattr(config, "original_max_position_embeddings"):
        # transformers prefers this field to the one among the rotary parameters.
        config.original_max_position_embeddings = original

    if getattr(config, "head_dim", 0) is None:
        # Some rotary types take None for the size of a head.
        config.head_dim = config.hidden_size // config.num_attention_heads

    for settings in _rope_sets(config):
        # An untouched base stays the very same number, of the same type.
        if base_ratio != 1.0:
            settings["rope_theta"] = settings["rope_theta"] * base_ratio
        settings.update(parameters or {})

    if not isinstance(getattr(config, "rope_parameters", None), dict):
        # transformers 4 keeps the base and the type apart.
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
    """Return a rotary module under each factor of its base; under 1 it is the module itself.

    Raises:
        UnsupportedModelError: See `rotary_variant`.
    """
    return [module if ratio == 1 else rotary_variant(module, base_ratio=ratio) for ratio in ratios]


def rope_bases(model: torch.nn.Module) -> tuple[float, ...]:
    """Return the rotary bases of a model, ascending; several where layer types have their own."""
    found = set()
    for module in find_structure(model).rotary_modules:
        config: Any = module.config
        sets = _rope_sets(config)
        found |= {float(entry["rope_theta"]) for entry in sets} if sets else {float(config.rope_theta)}
    return tuple(sorted(found))


def relative_bases(model: torch.nn.Module, ratios: Sequence[float]) -> tuple[str, ...]:
    """Return the departure of bases that were published for models of base 10000 on a model of another base.

    Args:
        model: The model.
        ratios: Factors of its own base; none for bases that are taken as they are.

    Returns:
        One text, or none where the bases are the published ones.
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
    """Return the departure of a method on a model of another rotary type than the default one of the released codes.

    Args:
        model: The model.
        what: What the method does in front of the rotary modules.

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
    """Return the ``max_position_embeddings`` of a model's config, the window in tokens that it states."""
    config: Any = find_structure(model).rotary_modules[0].config
    return int(config.max_position_embeddings)


def original_length(model: torch.nn.Module, given: int | None) -> int:
    """Return the window in tokens that a model was trained with.

    Args:
        model: The model.
        given: The window as the user states it; it counts before the config.

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
    """Return the frequencies in use of a rotary module by name: one set, or one for each layer type."""
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
        make: Returns what stands in for a rotary module.

    Yields:
        The modules that stand in.
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
    """Stands in for a rotary module, and gives each row of the batch the tables of one of several variants.

    Attributes:
        variants: The rotary modules to choose from, at first the one in whose place this is; not registered, so that
            nothing else takes them for the model's.
        choice: Index of the variant of each row, ``(batch,)``; ``None`` for the first variant in every row.
    """

    def __init__(self, variants: list[Any]) -> None:
        super().__init__()
        self.variants = variants
        self.choice: torch.Tensor | None = None
        # In a tuple, it is not registered either.
        self._replaced = (variants[0],)

    def __getattr__(self, name: str) -> Any:
        """Return what a decoder reads off its rotary module, such as the config, as the one in this place has it."""
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

            # Positions may have axes in front, of text, height and width, that the tables do not have.
            tables = tables or [
                part.new_empty(*part.shape[:-3], len(choice), *part.shape[-2:]) for part in parts
            ]
            for table, part in zip(tables, parts, strict=True):
                table[..., rows, :, :] = part

        return tables[0] if single else tuple(tables)
