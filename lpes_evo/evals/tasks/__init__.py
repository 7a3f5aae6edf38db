"""The evaluation tasks that come with lpes-evo.

Names are loaded on first use, so that importing this package loads neither torch nor transformers.
"""

from typing import TYPE_CHECKING

from lpes_evo._lazy import lazy_names

if TYPE_CHECKING:
    from lpes_evo.evals.tasks._leval import LEVAL_TASKS, LEvalTask
    from lpes_evo.evals.tasks._mdqa import MdqaTask
    from lpes_evo.evals.tasks._passkey import PasskeyTask
    from lpes_evo.evals.tasks._perplexity import PerplexityTask
    from lpes_evo.evals.tasks._retrieval import KeyValueEvalTask, NeedleEvalTask, RecallEvalTask
    from lpes_evo.evals.tasks._zeroscrolls import ZEROSCROLLS_TASKS, ZeroScrollsTask

__all__ = [
    "LEVAL_TASKS",
    "ZEROSCROLLS_TASKS",
    "KeyValueEvalTask",
    "LEvalTask",
    "MdqaTask",
    "NeedleEvalTask",
    "PasskeyTask",
    "PerplexityTask",
    "RecallEvalTask",
    "ZeroScrollsTask",
]

_MODULES = {
    "LEVAL_TASKS": "_leval",
    "ZEROSCROLLS_TASKS": "_zeroscrolls",
    "KeyValueEvalTask": "_retrieval",
    "LEvalTask": "_leval",
    "MdqaTask": "_mdqa",
    "NeedleEvalTask": "_retrieval",
    "PasskeyTask": "_passkey",
    "PerplexityTask": "_perplexity",
    "RecallEvalTask": "_retrieval",
    "ZeroScrollsTask": "_zeroscrolls",
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
