"""Metrics of the benchmarks, each with the exact behaviour of the scorer that was released with it.

Names are loaded on first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
