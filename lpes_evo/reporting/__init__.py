"""Reporting: everything that people see of the work, in a terminal, in a document and in a picture.

* `Table`: rows under headings, for a terminal, as Markdown, as CSV and as HTML.
* `interval_text`, `difference_text`, `p_text`, `p_equation` and `duration`: numbers as text, the same everywhere.
* `Reporter`: the events of searches and evaluations; `TerminalReporter` prints them, `SeveralReporters` passes them on.
* `console`, `error_console` and `say`: the consoles of the commands.
* `PALETTE`, `new_figure`, `new_panels`, `save_figure` and `save_pictures`: the style of all pictures.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
