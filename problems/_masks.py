"""Masks of packs: a layer sees of each row of a pack exactly what it would see of the row alone.

A model makes the masks of its layers for one text: causal masks, sliding windows, chunks. Whether a token of a pack may
see another is read off such a mask at the positions of the two tokens. So every family keeps its own windows and
chunks, counted by position and not by place in the pack; see `pack_masks`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from lpes_evo.accelerators import input_device
from lpes_evo.errors import UnsupportedModelError

if TYPE_CHECKING:
    import torch


@contextmanager
def pack_masks(
    model: Any, segments: npt.NDArray[np.int64], positions: npt.NDArray[np.int64], n_candidates: int = 1
) -> Iterator[None]:
    """Let the layers of a model see packs as if each of their rows were alone, for the length of a block.

    The model must be called with a two-dimensional attention mask of ones, so that it makes the masks of one text.

    Args:
        model: A causal language model of transformers.
        segments: Segment of each token, ``(n_packs, width)``: 0 for the shared prefix, -1 for padding. A token sees its
            own segment and the prefix.
        positions: Position of each token in its row, ``(n_packs, width)``.
        n_candidates: Number of times that the packs stand in the batch.

    Yields:
        Nothing.

    Raises:
        UnsupportedModelError: The model has no layers that could be found, or hands them no mask that can be read.
    """
    from lpes_evo.rope import decoder_layers

    layers = decoder_layers(model)
    reader = _MaskReader(layers[0], segments, positions, n_candidates, model.dtype, input_device(model))
    # These hooks run first, so that every other hook meets the mask that the layer gets.
    handles = [layer.register_forward_pre_hook(reader, with_kwargs=True, prepend=True) for layer in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
    if not reader.was_called:
        raise UnsupportedModelError(
            f"Expected {type(model).__name__} to call its decoder layers as modules, but it did not. Score its rows "
            "one by one, without shared prefixes."
        )


def masks_are_given(model: Any) -> bool:
    """Return whether the attention backend of a model takes a mask for each two tokens.

    The backends ``sdpa`` and ``eager`` do; flash attention knows nothing but padding, causality and windows.
    """
    from transformers import AttentionMaskInterface

    masks = AttentionMaskInterface()
    name = getattr(model.config, "_attn_implementation", None) or "eager"
    # Other names may stand for the same function, as where a method wraps the attention of the model.
    return name in masks and masks[name] in (masks["sdpa"], masks["eager"])


@contextmanager
def recorded_masks(model: Any) -> Iterator[list[Any]]:
    """Record the masks that the layers of a model get, one for each call of a layer, for the length of a block.

    Args:
        model: A causal language model of transformers.

    Yields:
        The masks in the order of the calls; ``None`` stands for causal attention.

    Raises:
        UnsupportedModelError: The model has no layers that could be found.
    """
    from lpes_evo.rope import decoder_layers

    found: list[Any] = []

    def record(_layer: Any, _args: Any, kwargs: dict[str, Any]) -> None:
        found.append(kwargs.get("attention_mask"))

    handles = [layer.register_forward_pre_hook(record, with_kwargs=True) for layer in decoder_layers(model)]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def visible_tokens(mask: "torch.Tensor | None", n_tokens: int) -> "torch.Tensor":
    """Return what the tokens of the first entry of a batch see by a mask.

    Args:
        mask: ``(batch, heads, n_tokens, n_tokens)`` of bool, or of numbers added to scores; ``None`` for causal
            attention.
        n_tokens: Tokens of the entry.

    Returns:
        ``(heads, n_tokens, n_tokens)`` of bool, on the CPU: which token, by row, sees which, by column.
    """
    import torch

    if mask is None:
        return torch.ones(1, n_tokens, n_tokens, dtype=torch.bool).tril()
    entry = mask[0] if mask.dtype == torch.bool else mask[0] > torch.finfo(mask.dtype).min / 2
    return entry.cpu()


def repeat_entries(values: "torch.Tensor", times: int) -> "torch.Tensor":
    """Return ``(n, ...)`` values repeated along the first axis, without a copy where ``n`` or ``times`` is 1."""
    return values.expand(times, *values.shape).flatten(0, 1)


class _MaskReader:
    """A hook of decoder layers that reads their masks at the positions of packs.

    Attributes:
        was_called: Whether a layer has been called.
    """

    def __init__(
        self,
        first: Any,
        segments: npt.NDArray[np.int64],
        positions: npt.NDArray[np.int64],
        n_candidates: int,
        dtype: "torch.dtype",
        device: "torch.device",
    ) -> None:
        import torch

        self.was_called = False
        self._first = first
        self._n_candidates = n_candidates
        self._dtype = dtype
        self._positions = torch.from_numpy(positions).to(device)

        segment = torch.from_numpy(segments).to(device)
        seen, sees = segment[:, None, None, :], segment[:, None, :, None]
        self._own = (seen == 0) | (seen == sees)
        # The key is the id of a mask of the model. The mask is kept beside its reading, since another could get its id.
        self._read: dict[int, tuple[Any, torch.Tensor]] = {}

    def __call__(self, layer: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Replace the mask of a layer."""
        if "attention_mask" not in kwargs:
            raise UnsupportedModelError(
                f"Expected a mask under the name attention_mask for every layer, but {type(layer).__name__} got none. "
                "Score the rows one by one, without shared prefixes."
            )
        if layer is self._first:
            # Layers of a kind share a mask within a forward pass, and no mask beyond it.
            self._read.clear()

        self.was_called = True
        mask = kwargs["attention_mask"]
        if id(mask) not in self._read:
            self._read[id(mask)] = mask, repeat_entries(self._of_packs(layer, mask), self._n_candidates)
        return args, {**kwargs, "attention_mask": self._read[id(mask)][1]}

    def _of_packs(self, layer: Any, mask: Any) -> "torch.Tensor":
        """Return the mask of the packs, ``(n_packs, heads, width, width)``, from that of one text."""
        import torch

        rows, columns = self._positions[:, :, None], self._positions[:, None, :]
        if mask is None:
            # Backends leave out the mask of causal attention.
            allowed = self._own & (columns <= rows)[:, None]
            given = torch.zeros(allowed.shape, dtype=self._dtype, device=allowed.device)
            return given.masked_fill_(~allowed, torch.finfo(self._dtype).min)

        width = self._own.shape[-1]
        if (
            not isinstance(mask, torch.Tensor)
            or mask.ndim != 4
            or mask.shape[-2:] != (width, width)
            or not (mask.dtype == torch.bool or mask.is_floating_point())
        ):
            shape = (
                f"{mask.dtype} {tuple(mask.shape)}" if isinstance(mask, torch.Tensor) else type(mask).__name__
            )
            raise UnsupportedModelError(
                f"Expected a mask of shape (batch, heads, {width}, {width}) for every layer, but "
                f"{type(layer).__name__} got {shape}. Score the rows one by one, without shared prefixes."
            )

        # To the model all entries of the batch are texts without padding, so the first stands for all.
        read = mask[0][:, rows.to(mask.device), columns.to(mask.device)].transpose(0, 1)
        own = self._own.to(mask.device)
        return read & own if mask.dtype == torch.bool else read.masked_fill(~own, torch.finfo(mask.dtype).min)
