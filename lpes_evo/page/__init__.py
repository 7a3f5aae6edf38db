"""A run as one page that needs nothing else: HTML with its style and its pictures inside, for any browser, offline.

* `write_page`: reads a run folder, measures drift or reads it, and writes ``report.html``.
* `Page`: what was written, and what of the run is not there yet.
"""

from typing import TYPE_CHECKING

from lpes_evo._lazy import lazy_names

if TYPE_CHECKING:
    from lpes_evo.page._write import Page, write_page

__all__ = ["Page", "write_page"]

_MODULES = {"Page": "_write", "write_page": "_write"}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
