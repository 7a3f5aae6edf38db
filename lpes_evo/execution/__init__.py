"""From genomes to evaluations: blocks of examples on workers, races, and the loop that keeps a journal."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
