"""MMLU, C-Eval and any other task of lm-evaluation-harness, on a model under scales; needs the extra ``[eval]``.

Names are loaded on first use, so that importing this package loads neither lm-eval nor torch nor transformers.
"""

from typing import TYPE_CHECKING

from lpes_evo._lazy import lazy_names

if TYPE_CHECKING:
    from lpes_evo.evals.harness._model import LpesLM
    from lpes_evo.evals.harness._names import HARNESS_TASKS, is_harness_task
    from lpes_evo.evals.harness._run import run_harness
    from lpes_evo.evals.harness._score import HarnessScore, SubjectScore

__all__ = ["HARNESS_TASKS", "HarnessScore", "LpesLM", "SubjectScore", "is_harness_task", "run_harness"]

_MODULES = {
    "HARNESS_TASKS": "_names",
    "HarnessScore": "_score",
    "LpesLM": "_model",
    "SubjectScore": "_score",
    "is_harness_task": "_names",
    "run_harness": "_run",
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
