"""Drift: how far scales move the hidden states of a model, layer by layer, measured without keeping the states."""

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from lpes_evo.accelerators import input_device
from lpes_evo.analysis._inputs import AnalysisInput, check_inputs
from lpes_evo.analysis._similarity import cka_distance, cosine_distance, relative_l2
from lpes_evo.errors import EvaluationError, UnsupportedModelError
from lpes_evo.problems import check_count, default_batch_tokens

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

MEASURES = ("relative_l2", "cosine", "cka")
"""The measures: the mean over tokens of ``||y - x|| / ||x||``, that of one minus cosine, and one minus linear CKA."""

MEASURE_NAMES = {"relative_l2": "relative L2", "cosine": "1 - cosine", "cka": "1 - CKA"}
"""Name of each measure in tables and pictures."""


@dataclass(frozen=True)
class Drift:
    """The distance of hidden states under scales from those of the untouched model.

    Attributes:
        values: One number for each measure, vector of scales, input and layer,
            ``(n_measures, n_vectors, n_inputs, n_layers)``; the order of the measures is that of `MEASURES`. The number
            of a layer belongs to its output, so that it contains the drift of earlier layers.
        input_ids: Names of the inputs, ``(n_inputs,)``.
        sources: Source that each input is made of, ``(n_inputs,)``.
        n_tokens: Number of tokens that were compared.
    """

    values: npt.NDArray[np.float64]
    input_ids: tuple[str, ...]
    sources: tuple[str, ...]
    n_tokens: int


def measure_drift(
    model: Any,
    inputs: Sequence[AnalysisInput],
    scales: npt.ArrayLike,
    *,
    batch_tokens: int | None = None,
    on_input: Callable[[int], None] | None = None,
) -> Drift:
    """Compare hidden states under scales with those of the untouched model on the same tokens.

    One forward pass holds an input once untouched and once under each of several vectors of scales. As soon as a layer
    has computed its output, the copies are compared and dropped. So the memory is that of a forward pass of the batch.

    CKA is taken over the tokens of one input. It is biased towards a drift of 0 where the hidden states are much wider
    than the input is long; the bias does not change the order of vectors on one input. The first token is left out:
    it attends to itself alone, so that no rotation moves it.

    Args:
        model: A causal language model of transformers, in evaluation mode and without a patch.
        inputs: The inputs.
        scales: Vectors of scales, ``(n_vectors, n_layers)``.
        batch_tokens: Number of tokens of one forward pass, which holds at least two copies of an input. With ``None``
            the kind of device decides.
        on_input: Called with the number of inputs that are done.

    Returns:
        The drift.

    Raises:
        ScalesError: The scales have a wrong shape, or one is not finite or outside 1e-6 to 1e6.
        TaskError: There is no input, one is too short, or ``batch_tokens`` is not a positive integer.
        UnsupportedModelError: The model cannot be scaled layer by layer, or its layers do not give one hidden state
            for each token.
        EvaluationError: A hidden state is not finite.
    """
    import torch

    from lpes_evo.rope import count_layers, forget_lengths, patch_rope
    from lpes_evo.scales import check_scales

    inputs = check_inputs(inputs)
    n_layers = count_layers(model)
    vectors = np.atleast_2d(check_scales(scales, n_layers))
    device = input_device(model)
    if batch_tokens is None:
        batch_tokens = default_batch_tokens(device.type)
    check_count("batch_tokens", batch_tokens)

    # An input must be rotated as on a fresh model, whatever the model has seen before.
    forget_lengths(model)
    values = np.empty((len(MEASURES), len(vectors), len(inputs), n_layers))
    with torch.inference_mode(), patch_rope(model, np.ones(n_layers)) as patch:
        for number, entry in enumerate(inputs):
            ids = torch.tensor([entry.token_ids], device=device)
            n_together = max(1, batch_tokens // entry.n_tokens - 1)
            for first in range(0, len(vectors), n_together):
                group = vectors[first : first + n_together]
                patch.set(np.concatenate([np.ones((1, n_layers)), group]))
                found = _compare(model, ids.expand(1 + len(group), -1), n_layers)
                values[:, first : first + len(group), number] = found.cpu().numpy()
            if on_input is not None:
                on_input(number + 1)

    wrong = np.argwhere(~np.isfinite(values))
    if wrong.size:
        _, vector, number, layer = wrong[0]
        raise EvaluationError(
            f"Expected finite hidden states, but those of layer {layer} are not for input {inputs[number].id!r} under "
            f"vector {vector}. With float16, try bfloat16 or float32."
        )

    return Drift(
        values=values,
        input_ids=tuple(entry.id for entry in inputs),
        sources=tuple(entry.source for entry in inputs),
        n_tokens=sum(entry.n_tokens - 1 for entry in inputs),
    )


def _compare(model: Any, ids: "torch.Tensor", n_layers: int) -> "torch.Tensor":
    """Return the drift of every later row from the first row, ``(n_measures, n_rows - 1, n_layers)``."""
    import torch

    from lpes_evo.rope import find_structure

    # Apple's GPU has no float64.
    device = torch.device("cpu") if ids.device.type == "mps" else ids.device
    drift = torch.full((len(MEASURES), len(ids) - 1, n_layers), torch.nan, dtype=torch.float64, device=device)

    def look(layer: int, states: "torch.Tensor") -> None:
        if states.dim() != 3 or states.shape[:2] != ids.shape:
            raise UnsupportedModelError(
                f"Expected layer {layer} to give one hidden state for each token, (rows, tokens) = {tuple(ids.shape)}, "
                f"but got {tuple(states.shape)}. The drift of this architecture cannot be measured."
            )

        untouched, moved = states[0, 1:].float(), states[1:, 1:].float()
        drift[0, :, layer] = relative_l2(untouched, moved).mean(dim=-1).to(drift.device)
        drift[1, :, layer] = cosine_distance(untouched, moved).mean(dim=-1).to(drift.device)
        drift[2, :, layer] = cka_distance(untouched, moved).to(drift.device)

    decoder = find_structure(model).decoder
    with watch_layers(model, look):
        decoder(input_ids=ids, use_cache=False)
    return drift


@contextmanager
def watch_layers(model: Any, look: "Callable[[int, torch.Tensor], None]") -> "Iterator[None]":
    """Call ``look(layer, hidden_states)`` with the output of every decoder layer for the length of a block.

    Args:
        model: The model.
        look: Called as soon as a layer has computed its output.

    Yields:
        Nothing.
    """
    from lpes_evo.rope import find_structure

    def hook(layer: int) -> Callable[..., None]:
        return lambda _module, _args, output: look(layer, output[0] if isinstance(output, tuple) else output)

    handles = [
        module.register_forward_hook(hook(index)) for index, module in enumerate(find_structure(model).layers)
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
