"""AttentionMass: the attention of the last token of an input, layer by layer, untouched and under scales."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from lpes_evo.accelerators import input_device
from lpes_evo.analysis._inputs import AnalysisInput, check_inputs
from lpes_evo.errors import EvaluationError, UnsupportedModelError

if TYPE_CHECKING:
    import torch

PARTS = ("beginning", "middle", "end", "first token", "gold span")
"""Parts of an input. The first three are its thirds. The first token also belongs to the beginning, and the gold span
to the third that it stands in."""


@dataclass(frozen=True)
class AttentionMass:
    """Shares of the attention of the last token, means over heads.

    Attributes:
        untouched: Share of each part for each input and layer, ``(n_inputs, n_layers, n_parts)``; the order of the
            parts is that of `PARTS`. NaN in layers that do not attend, and for a gold span that is not known.
        scaled: The same under the scales.
        input_ids: Names of the inputs, ``(n_inputs,)``.
        sources: Source that each input is made of, ``(n_inputs,)``.
        positions: Place of the gold fact of each input, ``(n_inputs,)``; ``None`` where there is none.
        gold_tokens: Number of tokens of the gold span of each input, ``(n_inputs,)``; 0 where it is not known.
        n_tokens: Number of tokens of each input, ``(n_inputs,)``.
        note: Note on how the weights were computed.
        attending_layers: Indices of the layers that attend, ascending, as recorded while the model ran.
    """

    untouched: npt.NDArray[np.float64]
    scaled: npt.NDArray[np.float64]
    input_ids: tuple[str, ...]
    sources: tuple[str, ...]
    positions: tuple[float | None, ...]
    gold_tokens: tuple[int, ...]
    n_tokens: tuple[int, ...]
    note: str
    attending_layers: tuple[int, ...]


def measure_attention(
    model: Any,
    inputs: Sequence[AnalysisInput],
    scales: npt.ArrayLike,
    *,
    on_input: Callable[[int], None] | None = None,
) -> AttentionMass:
    """Measure the attention of the last token, on the untouched model and under scales.

    The layers compute their output with the attention backend of the model. In addition, the eager attention function
    of the family of the model computes the weights of the last token alone, ``(heads, n_tokens)``, which are reduced at
    once. A table of all weights is never made. A backend with masks of its own (flash or flex attention) is replaced by
    sdpa during the measurement, or by eager where the model has no sdpa; `AttentionMass.note` says so.

    Args:
        model: A causal language model of transformers, in evaluation mode and without a patch.
        inputs: The inputs.
        scales: Position divisors, ``(n_layers,)``.
        on_input: Called with the number of inputs that are done, both passes counted.

    Returns:
        The attention. The shares of the thirds sum to 1, except in models that let a head attend to nothing.

    Raises:
        ScalesError: The scales have a wrong shape, or one is not finite or outside 1e-6 to 1e6.
        TaskError: There is no input, or one is too short.
        UnsupportedModelError: The model cannot be scaled layer by layer, its layers do not call the attention
            interface of transformers, or not the same layers attend to every input.
        EvaluationError: An attention weight is not finite.
    """
    import torch

    from lpes_evo.rope import count_layers, find_structure, forget_lengths, patch_rope

    inputs = check_inputs(inputs)
    n_layers = count_layers(model)
    forget_lengths(model)
    decoder: Any = find_structure(model).decoder

    shape = (len(inputs), n_layers, len(PARTS))
    found = {"untouched": np.full(shape, np.nan), "scaled": np.full(shape, np.nan)}
    attending: tuple[int, ...] | None = None

    with torch.inference_mode(), _readable_backend(model) as note:
        for name, values in found.items():
            with ExitStack() as stack:
                if name == "scaled":
                    stack.enter_context(patch_rope(model, scales))
                for number, entry in enumerate(inputs):
                    ids = torch.tensor([entry.token_ids], device=input_device(model))
                    with watch_last_token(model) as weights_of:
                        decoder(input_ids=ids, use_cache=False)

                    # A layer attends if it called the attention function, whatever the weights are.
                    layers = tuple(sorted(weights_of))
                    attending = layers if attending is None else attending
                    if layers != attending:
                        raise UnsupportedModelError(
                            f"Expected the same layers to attend to every input, but {type(decoder).__name__} attends "
                            f"to input {entry.id!r} in layers {layers}, and to the first input in layers {attending}. "
                            "The attention of this architecture cannot be compared between inputs."
                        )
                    for layer, shares in weights_of.items():
                        _check(shares, layer, entry, name)
                        values[number, layer] = _parts(shares, entry)

                    if on_input is not None:
                        on_input(number + 1 + (len(inputs) if name == "scaled" else 0))

    return AttentionMass(
        **found,
        input_ids=tuple(entry.id for entry in inputs),
        sources=tuple(entry.source for entry in inputs),
        positions=tuple(entry.position for entry in inputs),
        gold_tokens=tuple(0 if entry.gold is None else entry.gold[1] - entry.gold[0] for entry in inputs),
        n_tokens=tuple(entry.n_tokens for entry in inputs),
        note=note,
        attending_layers=attending or (),
    )


@contextmanager
def watch_last_token(model: Any) -> "Iterator[dict[int, npt.NDArray[np.float64]]]":
    """Record the attention of the last token of one input in every layer for the length of a block.

    Args:
        model: The model; its backend must be sdpa or eager.

    Yields:
        The weights of each layer that attends, mean over heads, ``(n_tokens,)``; the mean of all times where a layer
        attends several times. They are filled by a forward pass over one row without a cache.
    """
    from lpes_evo.methods.takeover import attention_function, intercepted_attention
    from lpes_evo.rope import find_structure

    structure = find_structure(model)
    found: dict[int, list[npt.NDArray[np.float64]]] = {}
    means: dict[int, npt.NDArray[np.float64]] = {}
    current = [0]

    def enter(layer: int) -> Callable[..., None]:
        def hook(_module: Any, _args: Any) -> None:
            current[0] = layer

        return hook

    def handler(
        module: Any, underlying: Any, query: Any, key: Any, value: Any, mask: Any, **kwargs: Any
    ) -> Any:
        eager = attention_function("eager", module)

        last = None if mask is None else _additive(mask[:1, :, -1:, : key.shape[-2]], query.dtype)
        weights = eager(module, query[:1, :, -1:], key[:1], value[:1], last, **kwargs)[1]

        mean = weights[0, :, 0].cpu().double().mean(dim=0).numpy()
        found.setdefault(current[0], []).append(mean)
        means[current[0]] = np.mean(found[current[0]], axis=0)

        return underlying(module, query, key, value, mask, **kwargs)

    # One attention module can serve several layers, so the layer is known by what runs and not by the module.
    handles = [
        module.register_forward_pre_hook(enter(index)) for index, module in enumerate(structure.layers)
    ]
    taken = [module for layer in structure.layers for module in layer.modules()]

    try:
        with intercepted_attention(structure.decoder, dict.fromkeys(taken, handler)):
            yield means
    finally:
        for handle in handles:
            handle.remove()

    if not means:
        raise UnsupportedModelError(
            f"Expected layers that call the attention interface of transformers, but those of "
            f"{type(structure.decoder).__name__} compute attention themselves. Its attention cannot be measured."
        )


@contextmanager
def _readable_backend(model: Any) -> Iterator[str]:
    """Give a model a backend whose masks can be read for the length of a block, and yield a note on it."""
    from lpes_evo.rope import find_structure

    decoder = find_structure(model).decoder
    name = getattr(getattr(decoder, "config", None), "_attn_implementation", None) or "eager"
    how = "weights of the last token by the eager attention function of the family"
    if name in ("sdpa", "eager"):
        yield f"{how}; layers run {name} as before"
        return

    # Several modules can share one config.
    configs: dict[int, Any] = {}
    for module in decoder.modules():
        config = getattr(module, "config", None)
        if hasattr(config, "_attn_implementation_internal"):
            configs[id(config)] = config
    before = {key: config._attn_implementation_internal for key, config in configs.items()}

    readable = "sdpa" if getattr(decoder, "_supports_sdpa", False) else "eager"
    try:
        for config in configs.values():
            config._attn_implementation_internal = readable
        yield f"{how}; layers switched from {name} to {readable} for the measurement"
    finally:
        for key, config in configs.items():
            config._attn_implementation_internal = before[key]


def _additive(mask: "torch.Tensor", dtype: "torch.dtype") -> "torch.Tensor":
    """Return a mask in the form that eager attention adds to scores."""
    import torch

    if mask.dtype != torch.bool:
        return mask
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(
        ~mask, torch.finfo(dtype).min
    )


def _parts(shares: npt.NDArray[np.float64], entry: AnalysisInput) -> list[float]:
    """Return the share of each part, from the share of each token ``(n_tokens,)``."""
    third, two_thirds = len(shares) // 3, 2 * len(shares) // 3
    gold = float("nan") if entry.gold is None else float(shares[slice(*entry.gold)].sum())
    begin, middle, end = np.split(shares, [third, two_thirds])
    return [float(begin.sum()), float(middle.sum()), float(end.sum()), float(shares[0]), gold]


def _check(shares: npt.NDArray[np.float64], layer: int, entry: AnalysisInput, name: str) -> None:
    """Refuse weights of a layer, ``(n_tokens,)``, that are not all finite."""
    n_wrong = int((~np.isfinite(shares)).sum())
    if n_wrong:
        raise EvaluationError(
            f"Expected finite attention weights, but on the {name} model layer {layer} of input {entry.id!r} has "
            f"others: those of {n_wrong} of {len(shares)} tokens. Check the weights of the model; with float16, try "
            "bfloat16 or float32."
        )
