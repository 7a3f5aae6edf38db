"""The search as ask and tell: it knows curves and fitness values, but no model."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
