"""Contexts in which a method computes the attention or the rotation of a model of transformers."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
