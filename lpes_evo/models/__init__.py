"""Causal language models: loaded from the hub, a folder or a GGUF file, or embedded in this package."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
