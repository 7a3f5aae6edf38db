"""The command line ``lpes-evo``: one module a group of commands."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
