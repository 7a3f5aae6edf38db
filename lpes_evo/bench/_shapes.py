"""Shape: models of random weights in the sizes of published ones, whose cost can be measured without a download."""

import re
from dataclasses import dataclass
from typing import Any

from lpes_evo.accelerators import device_kind, devices_of, free_memory
from lpes_evo.errors import ModelError

PREFIX = "shape:"

_SHAPES: dict[str, dict[str, Any]] = {
    "qwen2.5-7b": {
        "model_type": "qwen2",
        "num_hidden_layers": 28,
        "hidden_size": 3584,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "intermediate_size": 18944,
        "vocab_size": 152064,
        "max_position_embeddings": 32768,
        "rope_theta": 1e6,
        "rms_norm_eps": 1e-6,
    },
    "vicuna-7b": {
        "model_type": "llama",
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "intermediate_size": 11008,
        "vocab_size": 32000,
        "max_position_embeddings": 4096,
        "rope_theta": 1e4,
        "rms_norm_eps": 1e-5,
    },
    "tiny": {
        "model_type": "llama",
        "num_hidden_layers": 3,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 128,
        "vocab_size": 512,
        "max_position_embeddings": 1024,
        "rope_theta": 1e4,
        "rms_norm_eps": 1e-6,
    },
}
"""Fields of the config.json of Qwen/Qwen2.5-7B-Instruct and lmsys/vicuna-7b-v1.5, and of a small model for tests."""


@dataclass(frozen=True)
class Shape:
    """The sizes of a published model, or of a part of it.

    A part has the first layers and the same share of the vocabulary. The embedding and the output layer then have the
    same share of the time as in the whole model, so that they do not hide the ratio of the times of two methods.

    Attributes:
        name: The text that names the shape, such as ``shape:vicuna-7b:layers=2``.
        config: Fields of the config.json of the model.
        n_layers: Number of decoder layers.
        of_layers: Number of decoder layers of the whole model.
    """

    name: str
    config: dict[str, Any]
    n_layers: int
    of_layers: int

    @classmethod
    def of(cls, name: str) -> "Shape":
        """Return the shape of a name.

        Args:
            name: One of `shape_names`, followed by ``:layers=N`` for the first ``N`` layers alone.

        Returns:
            The shape.

        Raises:
            ModelError: The shape is unknown, or it has no such number of layers.
        """
        whole, colon, part = name.removeprefix(PREFIX).partition(":")
        if whole not in _SHAPES:
            raise ModelError(f"Expected one of the shapes {', '.join(shape_names())}, but got {name!r:.80}.")

        config = _SHAPES[whole]
        of_layers = n_layers = config["num_hidden_layers"]
        if colon:
            # A longer number would be refused by int().
            given = re.fullmatch(r"layers=([0-9]{1,9})", part)
            n_layers = int(given[1]) if given else 0
            if not 1 <= n_layers <= of_layers:
                raise ModelError(
                    f"Expected {PREFIX}{whole}, or {PREFIX}{whole}:layers=N with N from 1 to {of_layers}, but got "
                    f"{name!r:.80}."
                )

        vocabulary = round(config["vocab_size"] * n_layers / of_layers)
        return cls(
            name, {**config, "num_hidden_layers": n_layers, "vocab_size": vocabulary}, n_layers, of_layers
        )


def shape_names() -> tuple[str, ...]:
    """Return the names of the shapes, such as ``shape:vicuna-7b``."""
    return tuple(PREFIX + name for name in _SHAPES)


def random_model(shape: Shape, dtype: str, device: str) -> Any:
    """Return a model of random weights, which are the same every time on one kind of device.

    Args:
        shape: The sizes of the model.
        dtype: ``float32``, ``bfloat16`` or ``float16``.
        device: ``cpu``, ``cuda:N``, ``mps``, or a group, whose first device must have room for all weights.

    Returns:
        The model, in evaluation mode and with frozen weights.

    Raises:
        ModelError: The device has no room for its weights.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from lpes_evo.models import place_model
    from lpes_evo.rope import check_frequencies, repair_frequencies

    config = AutoConfig.for_model(**shape.config, tie_word_embeddings=False)
    kind = getattr(torch, dtype)

    # The meta device gives the sizes of all weights without memory for them.
    with torch.device("meta"):
        n_bytes = kind.itemsize * sum(
            weight.numel() for weight in AutoModelForCausalLM.from_config(config).parameters()
        )
    first = devices_of(device)[0]
    room = free_memory(first)
    if n_bytes > room:
        raise ModelError(
            f"Expected room for the weights of {shape.name} in {dtype}, {n_bytes / 2**30:.1f} GiB, but {first} has "
            f"{room / 2**30:.1f} GiB. Take fewer layers with :layers=N after the name, or another device."
        )

    # The random state of Apple's GPU cannot be restored, so that weights for it are drawn on the CPU.
    drawn_on = "cpu" if device_kind(device) == "mps" else first
    on_gpu = [torch.device(first)] if device_kind(drawn_on) == "cuda" else []
    with torch.random.fork_rng(devices=on_gpu), torch.device(drawn_on):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config, dtype=kind)

    model.eval().requires_grad_(False)
    place_model(model, device)
    repair_frequencies(model)
    check_frequencies(model)
    return model
