"""Which layers of a model rotate by position at all."""

from __future__ import annotations

import torch

from lpes_evo.rope._patch import patch_rope
from lpes_evo.rope._structure import count_layers, unwrapped_model

__all__ = ["rotary_layers"]


def rotary_layers(model: torch.nn.Module) -> tuple[int, ...]:
    """Return the layers whose scale has an effect.

    Hybrid models mix attention with recurrent layers, and some (SmolLM3, Llama 4, EXAONE 4) exempt attention
    layers from rotation. Configs say so in many ways, so the model itself is asked: it runs forward and
    backward over four tokens, and a layer without a gradient with respect to its scale does not rotate.

    Args:
        model: A causal language model of transformers with rotary position embeddings.

    Returns:
        The indices of the rotary layers, ascending; every other entry of a vector of scales has no effect.

    Raises:
        UnsupportedModelError: The architecture has no rotary embedding that can be scaled layer by layer.
        ModelError: The model's rotary frequencies are not sound.
    """
    model = unwrapped_model(model)
    scales = torch.ones(count_layers(model), requires_grad=True)
    device = next(model.parameters()).device
    ids = torch.arange(1, 5, device=device)[None]
    with torch.enable_grad(), patch_rope(model, scales):
        score = model(input_ids=ids, use_cache=False).logits.float().logsumexp(-1).sum()
    (gradient,) = torch.autograd.grad(score, scales)
    return tuple(int(layer) for layer in gradient.nonzero().flatten())
