"""Confidence intervals, paired tests and corrections for several tests.

Imports nothing of the package but its errors.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
