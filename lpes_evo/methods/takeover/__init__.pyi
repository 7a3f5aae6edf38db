from ._attention import (
    AttentionCall as AttentionCall,
    RotaryCall as RotaryCall,
    unrotated_attention as unrotated_attention,
)
from ._attention_interface import (
    attention_function as attention_function,
    intercepted_attention as intercepted_attention,
)
from ._attention_probe import find_rotations as find_rotations
from ._in_force import scales_untouched as scales_untouched, sole_method as sole_method
from ._method_handle import MethodHandle as MethodHandle
from ._requests import (
    Forward as Forward,
    RequestTracker as RequestTracker,
    prompts_of_generate as prompts_of_generate,
)
from ._rotation import (
    Rotation as Rotation,
    find_rotation as find_rotation,
    n_probes as n_probes,
    probe_tables as probe_tables,
)
from ._streams import combine_streams as combine_streams, streams_of as streams_of
from ._variants import (
    RowwiseRotaryEmbedding as RowwiseRotaryEmbedding,
    base_variants as base_variants,
    check_describes as check_describes,
    interpolated_rotary as interpolated_rotary,
    original_length as original_length,
    relative_bases as relative_bases,
    replaced_rotary as replaced_rotary,
    rope_bases as rope_bases,
    rotary_frequencies as rotary_frequencies,
    rotary_variant as rotary_variant,
    stated_window as stated_window,
    under_other_type as under_other_type,
)
