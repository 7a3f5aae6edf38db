"""A Llama of one layer, computed step by step without its own forward."""

from collections.abc import Callable
from typing import Any

import torch

Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def rotate(states: torch.Tensor, positions: torch.Tensor, base: float = 10000.0) -> torch.Tensor:
    """Rotate states ``(length, width)``: dimension j with j + width / 2, as complex numbers."""
    half = states.shape[-1] // 2
    frequencies = base ** (-torch.arange(half, dtype=torch.float64) / half)
    turns = torch.polar(torch.ones(len(positions), half).double(), positions.double()[:, None] * frequencies)
    turned = torch.complex(states[:, :half].double(), states[:, half:].double()) * turns
    return torch.cat((turned.real, turned.imag), dim=-1).to(states.dtype)


@torch.no_grad()
def reference_logits(model: Any, ids: torch.Tensor, attend: Attend) -> torch.Tensor:
    """Return the logits of each row, where ``attend`` maps ``(heads, length, width)`` states of one row."""
    (layer,) = model.model.layers
    attention = layer.self_attn
    rows = []
    for row in ids:
        states = model.model.embed_tokens(row)
        normed = layer.input_layernorm(states)
        parts = [
            projection(normed).unflatten(-1, (-1, attention.head_dim)).transpose(0, 1)
            for projection in (attention.q_proj, attention.k_proj, attention.v_proj)
        ]
        states = states + attention.o_proj(attend(*parts).transpose(0, 1).flatten(1))
        states = states + layer.mlp(layer.post_attention_layernorm(states))
        rows.append(model.lm_head(model.model.norm(states)))
    return torch.stack(rows)
