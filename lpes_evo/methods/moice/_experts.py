# ruff: noqa: TID253
"""`mixed_experts`: a context in which layers mix their attention over several rotary bases by routers."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from lpes_evo.methods.moice._routers import Routers
from lpes_evo.methods.takeover import (
    AttentionCall,
    MethodHandle,
    RotaryCall,
    base_variants,
    check_describes,
    unrotated_attention,
)
from lpes_evo.rope import find_structure

__all__ = ["expert_weights", "mixed_experts"]


def expert_weights(probabilities: torch.Tensor, top_k: int) -> torch.Tensor:
    """Return the weights of the experts: the largest probabilities, scaled to sum to 1, and zeros for the rest.

    Args:
        probabilities: Probabilities of the experts, ``(..., n_experts)``.
        top_k: Number of experts that keep a weight.

    Returns:
        The weights, ``(..., n_experts)``.
    """
    kept, indices = probabilities.topk(top_k, dim=-1)
    return torch.zeros_like(probabilities).scatter(-1, indices, kept / kept.sum(dim=-1, keepdim=True))


@contextmanager
def mixed_experts(
    model: Any,
    routers: Routers,
    handle: MethodHandle,
    *,
    top_k: int,
    seen: dict[int, torch.Tensor] | None = None,
) -> Iterator[None]:
    """Let every layer of a model mix its attention over the bases of routers, for the length of a block.

    Args:
        model: The model.
        routers: The routers, which receive gradients if their weights require them.
        handle: The handle of the method, which knows where prompts end.
        top_k: Experts that count for a token.
        seen: Filled with the probabilities of the experts of each layer, ``(batch, heads, length, n_experts)``;
            ``None`` if they are not wanted.

    Yields:
        Nothing.

    Raises:
        UnsupportedModelError: The model's attention cannot be taken over, or its rotary modules cannot be built with
            another base.
        ModelError: Another method is in force.
    """
    check_describes(model, "moice", any_static_type=True)
    variants = {
        module: base_variants(module, routers.facts.bases) for module in find_structure(model).rotary_modules
    }

    def make_tables(call: RotaryCall) -> tuple[torch.Tensor, torch.Tensor]:
        tables = [call.tables(call.forward.key_positions, module) for module in variants[call.module]]
        return torch.stack([cosines for cosines, _ in tables]), torch.stack([sines for _, sines in tables])

    def attend(call: AttentionCall) -> torch.Tensor:
        cosines, sines = (table[:, :, None] for table in call.tables)
        router_query = call.rotate_query(cosines[0], sines[0])
        # The layers of a model that is spread over several devices have their routers beside them.
        probabilities = routers.of(call.layer).to(router_query.device)(router_query)
        if seen is not None:
            seen[call.layer] = probabilities

        # Routers see (batch, heads, length), and outputs of attention are (batch, length, heads).
        weights = expert_weights(probabilities, top_k).transpose(1, 2)

        def part(expert: int) -> torch.Tensor:
            query = router_query if expert == 0 else call.rotate_query(cosines[expert], sines[expert])
            output = call.run(query, call.rotate_key(cosines[expert], sines[expert]))
            return weights[..., expert, None].to(output.dtype) * output

        return functools.reduce(torch.add, map(part, range(len(cosines))))

    with unrotated_attention(model, handle, make_tables, attend):
        yield
