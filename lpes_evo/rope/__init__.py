"""Per-layer scaling of rotary positions on models of transformers.

`patch_rope` makes layer ``h`` of a model rotate position ``m`` as ``m / s_h``, without changing a weight.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
