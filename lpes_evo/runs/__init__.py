"""One run in one folder: its configuration at work, the search, the measurement on held-out examples, pictures."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
