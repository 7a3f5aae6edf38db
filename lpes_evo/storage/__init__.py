"""Files that survive a kill of the process: atomic writes, the journal, locked folders, and the provenance of a run."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
