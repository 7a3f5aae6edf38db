"""MMLU, C-Eval and any other task of lm-evaluation-harness, on a model under scales; needs the extra ``[eval]``.

Names are loaded on first use, so that importing this package loads neither lm-eval nor torch nor transformers.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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


def __getattr__(name: str) -> Any:
    """Import a public name from its module when it is first used (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
