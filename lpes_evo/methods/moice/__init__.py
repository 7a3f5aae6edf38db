"""MoICE: attention under several rotary bases in each layer, mixed by trained routers."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
