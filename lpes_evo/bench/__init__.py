"""Bench: the cost of methods in time, memory and forward passes, measured side by side with the untouched model."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
