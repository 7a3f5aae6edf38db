# ruff: noqa: TID253
"""Access to the inputs of decoders and models under the names that versions of transformers use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from lpes_evo.errors import ModelError, UnsupportedModelError

__all__ = ["cache_name", "input_positions", "input_tokens", "refuse_outputs"]


def cache_name(values: Mapping[str, Any]) -> str | None:
    """Return the name under which inputs or an output hold a cache, or ``None`` without a cache."""
    return next((name for name in ("cache", "past_key_values") if values.get(name) is not None), None)


def input_tokens(inputs: Mapping[str, Any]) -> torch.Tensor:
    """Return the embeddings or ids of the tokens, ``(batch, length, ...)``."""
    tokens: torch.Tensor = next(
        value for name in ("inputs_embeds", "input_ids") if (value := inputs.get(name)) is not None
    )
    return tokens


def input_positions(inputs: Mapping[str, Any], cache: Any, user: str) -> torch.Tensor:
    """Return the positions of the tokens, ``(1 or batch, length)``; by default they continue those of the cache.

    Args:
        inputs: The inputs.
        cache: The cache, or ``None``.
        user: The part of the program that needs the positions, for messages.

    Raises:
        UnsupportedModelError: The positions have several axes.
    """
    positions: torch.Tensor | None = inputs.get("position_ids")
    if positions is None:
        past = 0 if cache is None else int(cache.get_seq_length())
        tokens = input_tokens(inputs)
        positions = torch.arange(past, past + tokens.shape[1], device=tokens.device)[None]
    if positions.dim() != 2:
        raise UnsupportedModelError(
            f"Expected position ids of shape (batch, length), but got {tuple(positions.shape)}. Positions of several "
            f"axes, as of images, do not go with {user}."
        )
    return positions


def refuse_outputs(inputs: Mapping[str, Any], config: Any, names: Sequence[str], reason: str) -> None:
    """Refuse inputs that ask for outputs which a method cannot give.

    Args:
        inputs: The inputs.
        config: The config of the model, whose values hold for inputs that are not stated.
        names: Inputs that ask for such outputs, such as ``output_attentions``.
        reason: Why the method cannot give them, for the message.

    Raises:
        ModelError: Such an output is asked for.
    """
    asked = [
        name for name in names if (getattr(config, name, False) if inputs.get(name) is None else inputs[name])
    ]
    if asked:
        raise ModelError(
            f"Expected no {' or '.join(asked)} under this method: {reason}. Leave it out, or leave the with block of "
            "the method first."
        )
