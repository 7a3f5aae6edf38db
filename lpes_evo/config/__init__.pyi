from ._run_config import (
    CurveSettings as CurveSettings,
    ModelSettings as ModelSettings,
    RunConfig as RunConfig,
    SearchSettings as SearchSettings,
    StartCurve as StartCurve,
    load_config as load_config,
    nested as nested,
    preset_names as preset_names,
)
from ._search_settings import ALGORITHM_NAMES as ALGORITHM_NAMES
from ._settings import (
    Settings as Settings,
    hash_values as hash_values,
    settings_from as settings_from,
    settings_hash as settings_hash,
)
