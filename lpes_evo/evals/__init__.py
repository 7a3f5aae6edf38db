"""Evaluation of a model under scales on the benchmarks of long-context work.

* `Task`, `Example`, `DataRequest`: what a task is; `make_task` and `register_task`: tasks by name.
* `EvalConfig`, `EvalFolder`, `run_evaluation`: one evaluation in one folder, as ``lpes-evo eval`` runs it.
* `Arm`: one side of a comparison, a method under a name; `make_arms` makes those of an evaluation.
* `EvalResults`, `load_results`: the result as a file.

Names are loaded on first use, so that importing this package loads neither torch nor transformers.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
