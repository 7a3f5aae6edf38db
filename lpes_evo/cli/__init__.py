"""The command line ``lpes-evo``: one module for each group of commands, and options made from settings."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
