"""Per-layer scaling of rotary positions on models of transformers.

`patch_rope` makes layer ``h`` of a model rotate position ``m`` as ``m / s_h``, without changing a weight.
"""

from lpes_evo.rope._dynamic import forget_lengths
from lpes_evo.rope._frequencies import check_frequencies, repair_frequencies
from lpes_evo.rope._patch import RopePatch, patch_rope, unpatch_rope
from lpes_evo.rope._probe import rotary_layers
from lpes_evo.rope._structure import (
    count_layers,
    decoder_layers,
    unwrapped_model,
)

__all__ = [
    "RopePatch",
    "check_frequencies",
    "count_layers",
    "decoder_layers",
    "forget_lengths",
    "patch_rope",
    "repair_frequencies",
    "rotary_layers",
    "unpatch_rope",
    "unwrapped_model",
]
