"""Sharing: the verdict on whether rows whose common beginning is computed once score as they do alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lpes_evo.accelerators import is_out_of_memory
from lpes_evo.errors import UnsupportedModelError
from lpes_evo.problems._encode import EncodedExample
from lpes_evo.problems._masks import masks_are_given, recorded_masks, visible_tokens
from lpes_evo.problems._pack import Pack, pack_rows
from lpes_evo.problems._score import Layout, score_answers

NOTHING_ALIKE = "no two examples have their first half in common"
"""The reason where there is nothing to share."""
_FOLLOWS_LENGTH = "the rope type gives questions of different lengths about one text different frequencies"


@dataclass(frozen=True)
class Sharing:
    """The verdict on whether the common beginning of rows is computed once; true where it is.

    Attributes:
        is_sound: Whether it is.
        reason: Why it is not; or, where it is, the number of tokens with and without sharing.
    """

    is_sound: bool
    reason: str

    def __bool__(self) -> bool:
        """Return whether prefixes are shared."""
        return self.is_sound

    def __str__(self) -> str:
        """Return the verdict and its reason in a line for people."""
        return (
            f"prefixes are shared, {self.reason}" if self else f"prefixes are not shared, since {self.reason}"
        )


def sharing_is_sound(
    model: Any, rows: Sequence[EncodedExample], *, batch_tokens: int | None = None
) -> Sharing:
    """Find out whether a model gives the same scores with and without shared prefixes.

    Recurrent layers carry tokens of one segment into the next, and some families keep to masks of their own. So the
    pack with the longest row, which goes farthest beyond a sliding window, is scored both ways. Scores alone would hide
    a window that is slightly off, so the tokens that each layer may see are compared as well.

    Args:
        model: The model.
        rows: Token ids of the examples that will be scored.
        batch_tokens: Tokens of one forward pass, see `score_answers`.

    Returns:
        The verdict and its reason.

    Raises:
        torch.OutOfMemoryError: The memory does not suffice, which is no verdict on the model.
    """
    from lpes_evo.rope import forget_lengths

    length_key = forget_lengths(model)
    packs = pack_rows(rows, share_prefixes=True, length_key=length_key)
    shared = [pack for pack in packs if len(pack.rows) > 1]
    if not shared:
        is_apart = length_key is not None and len(pack_rows(rows, share_prefixes=True)) < len(rows)
        return Sharing(False, _FOLLOWS_LENGTH if is_apart else NOTHING_ALIKE)

    reason = _reason_of_kind(model)
    if reason is None:
        longest = max(shared, key=lambda pack: max(row.n_tokens for row in pack.rows))
        reason = _reason_after_trial(model, longest, batch_tokens)
    if reason is not None:
        return Sharing(False, reason)

    together, apart = sum(pack.n_tokens for pack in packs), sum(row.n_tokens for row in rows)
    return Sharing(True, f"{together} tokens instead of {apart}")


def _reason_of_kind(model: Any) -> str | None:
    """Return the reason against sharing that is known before the model is tried, or ``None``."""
    import torch

    from lpes_evo.rope import decoder_layers

    try:
        layers = decoder_layers(model)
    except UnsupportedModelError as error:
        return str(error)

    # Mamba, gated delta nets and their kin mix neighbouring tokens by a short convolution. Weights close to their
    # beginning can hide that from a comparison of scores.
    if any(isinstance(module, torch.nn.Conv1d) for layer in layers for module in layer.modules()):
        return "the model has layers with a convolution, which mix neighbouring tokens of different questions"
    if not masks_are_given(model):
        return (
            f"the attention backend {model.config._attn_implementation} takes no mask for each two tokens, as sdpa and "
            "eager do"
        )
    return None


def _reason_after_trial(model: Any, pack: Pack, batch_tokens: int | None) -> str | None:
    """Compare a pack with its rows scored alone; return why the scores differ, or ``None``."""
    longest = max(range(len(pack.rows)), key=lambda number: pack.rows[number].n_tokens)
    plain = score_answers(model, pack.rows, batch_tokens=batch_tokens)
    with recorded_masks(model) as alone:
        score_answers(model, [pack.rows[longest]])

    try:
        with recorded_masks(model) as in_pack:
            packed = score_answers(model, pack.rows, batch_tokens=batch_tokens, share_prefixes=True)
    except (RuntimeError, ValueError, TypeError, IndexError, AttributeError) as error:
        if is_out_of_memory(error):
            raise
        # Families raise different errors for a mask that they do not know.
        message = next(iter(str(error).splitlines()), "")
        return f"the model refuses the masks of shared prefixes ({type(error).__name__}: {message:.300})"

    layer = _layer_that_sees_otherwise(pack, longest, alone, in_pack)
    if layer is not None:
        return f"layer {layer} sees other tokens with sharing than without"

    difference = float(np.abs(plain.log_probability - packed.log_probability).max())
    if not np.isfinite(difference):
        return "the scores are not finite"
    # Half precision rounds otherwise in a batch of another shape.
    if difference > (1e-3 if str(model.dtype) in ("torch.float32", "torch.float64") else 0.1):
        return f"the scores with and without sharing differ by {difference:.2g} nats"
    return None


def _layer_that_sees_otherwise(
    pack: Pack, number: int, alone: Sequence[Any], in_pack: Sequence[Any]
) -> int | None:
    """Return the first layer by whose masks a row of a pack sees other tokens than alone, or ``None``."""
    import torch

    # Segment 0 is the shared prefix, and segment k + 1 belongs to row k.
    segments = Layout([pack]).segments[0]
    places = torch.from_numpy(np.flatnonzero((segments == 0) | (segments == number + 1)))
    compared = set()

    for layer, (mask_alone, mask_packed) in enumerate(zip(alone, in_pack, strict=True)):
        # Layers of a kind share their masks.
        if (id(mask_alone), id(mask_packed)) in compared:
            continue
        compared.add((id(mask_alone), id(mask_packed)))

        # The sums differ where the row sees tokens of another row.
        wanted = visible_tokens(mask_alone, len(places))
        seen = visible_tokens(mask_packed, len(segments))[:, places]
        if not torch.equal(seen[:, :, places], wanted) or int(seen.sum()) != int(wanted.sum()):
            return layer
    return None
