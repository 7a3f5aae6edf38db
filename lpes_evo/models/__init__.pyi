from ._adapters import find_adapter as find_adapter
from ._gguf import check_rope as check_rope, read_rope as read_rope, take_rope as take_rope
from ._model import (
    DTYPES as DTYPES,
    LoadedModel as LoadedModel,
    device_name as device_name,
    load_model as load_model,
    outline as outline,
    resolve_device as resolve_device,
    resolve_dtype as resolve_dtype,
    smollm2_file as smollm2_file,
    weights_hash as weights_hash,
)
from ._spread import place_model as place_model, refuse_group as refuse_group, spread as spread
from ._window import window as window
