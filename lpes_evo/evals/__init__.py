"""Evaluation of a model under scales on the benchmarks of long-context work.

* `EvalTask`, `EvalExample`, `DataRequest`: what a task is; `make_eval_task` and `register_task`: tasks by name.
* `EvalConfig`, `EvalFolder`, `run_evaluation`: one evaluation in one folder, as ``lpes-evo eval`` runs it.
* `Arm`: one side of a comparison, a name and what is done to a loaded model.
* `EvalResults`, `load_results`: the result as a file.

Names are loaded on first use, so that importing this package loads neither torch nor transformers.
"""

from typing import TYPE_CHECKING

from lpes_evo._lazy import lazy_names

if TYPE_CHECKING:
    from lpes_evo.evals._arms import Arm, LpesArm, UntouchedArm, make_arms
    from lpes_evo.evals._compare import compare_evaluations
    from lpes_evo.evals._config import EvalConfig
    from lpes_evo.evals._folder import EvalFolder
    from lpes_evo.evals._registry import eval_task_names, make_eval_task, register_task
    from lpes_evo.evals._results import EvalResults, load_results
    from lpes_evo.evals._run import run_evaluation
    from lpes_evo.evals._table import csv_table, markdown_table, print_results
    from lpes_evo.evals._task import DataRequest, EvalExample, EvalTask

__all__ = [
    "Arm",
    "DataRequest",
    "EvalConfig",
    "EvalExample",
    "EvalFolder",
    "EvalResults",
    "EvalTask",
    "LpesArm",
    "UntouchedArm",
    "compare_evaluations",
    "csv_table",
    "eval_task_names",
    "load_results",
    "make_arms",
    "make_eval_task",
    "markdown_table",
    "print_results",
    "register_task",
    "run_evaluation",
]

_MODULES = {
    "Arm": "_arms",
    "DataRequest": "_task",
    "EvalConfig": "_config",
    "EvalExample": "_task",
    "EvalFolder": "_folder",
    "EvalResults": "_results",
    "EvalTask": "_task",
    "LpesArm": "_arms",
    "UntouchedArm": "_arms",
    "compare_evaluations": "_compare",
    "csv_table": "_table",
    "eval_task_names": "_registry",
    "load_results": "_results",
    "make_arms": "_arms",
    "make_eval_task": "_registry",
    "markdown_table": "_table",
    "print_results": "_table",
    "register_task": "_registry",
    "run_evaluation": "_run",
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
