"""Loading a causal language model: from the hub, a folder, a GGUF file, or the embedded one."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
