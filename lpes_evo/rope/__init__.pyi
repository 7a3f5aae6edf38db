from ._caches import change_rotation as change_rotation
from ._compiled import sweep_code as sweep_code, without_compiled_code as without_compiled_code
from ._dynamic import forget_lengths as forget_lengths
from ._frequencies import (
    check_frequencies as check_frequencies,
    frequencies_in_use as frequencies_in_use,
    repair_frequencies as repair_frequencies,
)
from ._patch import (
    PATCH_ATTRIBUTE as PATCH_ATTRIBUTE,
    RopePatch as RopePatch,
    patch_rope as patch_rope,
    unpatch_rope as unpatch_rope,
)
from ._probe import rotary_layers as rotary_layers
from ._scales import CheckedScales as CheckedScales
from ._structure import (
    count_layers as count_layers,
    decoder_layers as decoder_layers,
    find_structure as find_structure,
    is_dynamic as is_dynamic,
    is_rotary as is_rotary,
    rope_types as rope_types,
    unwrapped_model as unwrapped_model,
)
from ._tables import (
    LayerTables as LayerTables,
    indexes_table as indexes_table,
    measures_length as measures_length,
    raw_forward as raw_forward,
    sincos_table as sincos_table,
)
