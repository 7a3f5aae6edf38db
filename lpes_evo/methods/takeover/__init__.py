"""Taking over the attention and the rotation of a model of transformers, and giving them back."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
