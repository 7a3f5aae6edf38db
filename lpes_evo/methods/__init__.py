"""LPES and its rivals behind one interface, for models of current transformers.

* `Method`: a change to a model; ``with method.apply(model):`` covers forward passes, ``generate`` and scoring.
* `make_method` and `method_names`: methods by name, such as ``pi:1.5`` or ``ms-poe``.
* `Baseline`, `Lpes`, `PositionInterpolation`, `DynamicNtk`, `Yarn`, `AttentionBuckets`, `MsPoe`, `Moice`: the methods.
* `BASE_SETS` and `search_bases`: rotary bases for Attention Buckets.
* `train_routers`: training of the routers of MoICE.

Names are loaded on first use, so that importing this package loads neither torch nor transformers.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
