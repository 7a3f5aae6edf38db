"""`window`: the number of tokens that a model accepts, by the definition of its rotary type."""

import math
from typing import Any, TypeGuard

from lpes_evo.errors import ModelError

_FIELDS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "max_sequence_length")
_FINAL_FIELDS = ("max_sequence_length", "model_max_length", "max_seq_length", "seq_length", "max_seq_len")
_UNLIMITED = 10**9
"""Tokenizers without a limit state a larger number."""


def window(config: Any, tokenizer: Any = None) -> int:
    """Return the window of a model in tokens.

    The meaning of the stated window, ``max_position_embeddings``, differs between rotary types:

    - ``default``, ``llama3``, ``longrope`` and every type not named below: the stated window is the window after
      extension.
    - ``yarn``: the stated window may be the window before or after extension. The result is the larger one of the
      stated window and ``factor * original_max_position_embeddings``.
    - ``linear`` and ``dynamic``: the stated window is the window before extension, and the result is ``factor`` times
      as large. Some published configs nevertheless state the window after extension (DeepSeek Coder). Therefore another
      field of the config, or else the tokenizer's ``model_max_length``, bounds the product from above. The result is
      never below the stated window.
    - Separate parameters for each layer type (Gemma 3, OLMo 3): the stated window is the window after extension.

    A sliding window of attention is not a bound, since layers pass on information from before it.

    Args:
        config: A config of transformers, or of a multimodal model with a text config.
        tokenizer: The tokenizer, for its limit.

    Returns:
        The window in tokens.

    Raises:
        ModelError: The config states no window, or one that is not a positive whole number.
    """
    text = config.get_text_config()
    stated = next((value for name in _FIELDS if (value := getattr(text, name, None)) is not None), None)
    if not _is_length(stated):
        raise ModelError(
            f"Expected a config that states max_position_embeddings, the window in tokens, but got {stated!r:.80}. "
            "Add it to the model's config.json."
        )

    # transformers 4 keeps the type in a field with another name.
    rope = getattr(text, "rope_parameters", None) or getattr(text, "rope_scaling", None) or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    factor, original = rope.get("factor"), rope.get("original_max_position_embeddings")
    if kind not in ("linear", "dynamic", "yarn") or not _is_factor(factor):
        return stated

    if _is_length(original):
        return max(stated, int(original * factor))

    extended = int(stated * factor)
    final = next((value for name in _FINAL_FIELDS if _is_length(value := getattr(text, name, None))), None)
    if final is None:
        final = getattr(tokenizer, "model_max_length", None)

    # Without the bound, a config that states the window after extension would be extended a second time.
    bound = final if _is_length(final) and final < _UNLIMITED else extended
    return max(stated, min(extended, bound))


def _is_length(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_factor(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and math.isfinite(value) and value >= 1
