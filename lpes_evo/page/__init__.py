"""A run as one page that needs nothing else: HTML with its style and its pictures inside, for any browser, offline.

* `write_page`: reads a run folder, measures drift or reads it, and writes ``report.html``.
* `Page`: what was written, and what of the run is not there yet.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
