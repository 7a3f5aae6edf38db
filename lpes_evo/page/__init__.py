"""Page: a run as one HTML file with its style and its pictures inside, for any browser, offline.

* `write_page`: reads a run folder, measures drift or reads it, and writes ``report.html``.
* `Page`: the file that was written, and what of the run it does not show yet.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
