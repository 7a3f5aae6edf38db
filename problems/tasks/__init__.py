"""The tasks of this package: retrieval tasks that draw their data, and benchmarks that read files.

Names are loaded on first use, so that importing this package loads neither torch nor transformers.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
