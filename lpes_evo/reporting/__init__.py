"""Reporting: consoles, the one table, numbers as text, progress, and the style of all pictures."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
