"""Runs: one search in one folder, from its configuration to the result, the held-out measurement and the pictures.

* `run_search` starts a run or resumes it; `estimate_run` predicts what it will cost; `show_run` prints its result.
* `RunFolder` names the files of a run.
* `JobSpec`, `JobFacts`: what the workers of a run hold, and what the process that drives the run knows of it.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
