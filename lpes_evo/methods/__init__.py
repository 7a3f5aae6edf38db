"""LPES and its rivals behind one interface, for models of current transformers.

* `Method`: what is done to a model; ``with method.apply(model):`` works with forward, ``generate`` and scoring.
* `make_method` and `method_names`: methods by name, such as ``pi:1.5`` or ``ms-poe``.
* `Baseline`, `Lpes`, `PositionInterpolation`, `DynamicNtk`, `Yarn`, `AttentionBuckets`, `MsPoe`, `Moice`: the methods.
* `BASE_SETS` and `search_bases`: rotary bases for Attention Buckets.
* `train_routers`: training of the routers of MoICE.

Names are loaded on first use, so that importing this package loads neither torch nor transformers.
"""

from typing import TYPE_CHECKING

from lpes_evo._lazy import lazy_names

if TYPE_CHECKING:
    from lpes_evo.methods._attention_buckets import AttentionBuckets
    from lpes_evo.methods._baseline import Baseline
    from lpes_evo.methods._bases import BASE_SETS, search_bases
    from lpes_evo.methods._dynamic_ntk import DynamicNtk
    from lpes_evo.methods._lpes import Lpes, ScaledMethod
    from lpes_evo.methods._method import Applied, Method
    from lpes_evo.methods._moice import Moice
    from lpes_evo.methods._moice_training import RouterTraining, TrainingSettings, train_routers
    from lpes_evo.methods._ms_poe import MsPoe
    from lpes_evo.methods._position_interpolation import PositionInterpolation
    from lpes_evo.methods._registry import make_method, method_names, scales_file
    from lpes_evo.methods._scoring import score_row_by_row
    from lpes_evo.methods._yarn import Yarn

__all__ = [
    "BASE_SETS",
    "Applied",
    "AttentionBuckets",
    "Baseline",
    "DynamicNtk",
    "Lpes",
    "Method",
    "Moice",
    "MsPoe",
    "PositionInterpolation",
    "RouterTraining",
    "ScaledMethod",
    "TrainingSettings",
    "Yarn",
    "make_method",
    "method_names",
    "scales_file",
    "score_row_by_row",
    "search_bases",
    "train_routers",
]

_MODULES = {
    "BASE_SETS": "_bases",
    "Applied": "_method",
    "AttentionBuckets": "_attention_buckets",
    "Baseline": "_baseline",
    "DynamicNtk": "_dynamic_ntk",
    "Lpes": "_lpes",
    "Method": "_method",
    "Moice": "_moice",
    "MsPoe": "_ms_poe",
    "PositionInterpolation": "_position_interpolation",
    "RouterTraining": "_moice_training",
    "ScaledMethod": "_lpes",
    "TrainingSettings": "_moice_training",
    "Yarn": "_yarn",
    "make_method": "_registry",
    "method_names": "_registry",
    "scales_file": "_registry",
    "score_row_by_row": "_scoring",
    "search_bases": "_bases",
    "train_routers": "_moice_training",
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
