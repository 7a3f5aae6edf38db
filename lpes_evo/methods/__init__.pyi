from ._attention_buckets import AttentionBuckets as AttentionBuckets, base_ratios as base_ratios
from ._baseline import Baseline as Baseline
from ._bases import BASE_SETS as BASE_SETS, search_bases as search_bases
from ._dynamic_ntk import DynamicNtk as DynamicNtk
from ._lpes import Lpes as Lpes, ScaledMethod as ScaledMethod
from ._method import Method as Method
from ._ms_poe import MsPoe as MsPoe, head_numbers as head_numbers
from ._position_interpolation import PositionInterpolation as PositionInterpolation
from ._registry import make_method as make_method, method_names as method_names, scales_file as scales_file
from ._scoring import score_row_by_row as score_row_by_row
from ._yarn import Yarn as Yarn
from .moice import (
    Moice as Moice,
    RouterTraining as RouterTraining,
    TrainingSettings as TrainingSettings,
    train_routers as train_routers,
)
from .takeover import MethodHandle as MethodHandle
