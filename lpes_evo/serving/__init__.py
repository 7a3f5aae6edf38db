"""Serving: model folders that carry their scales, and what servers must be told to apply them."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
