"""Names that task files written for version 0.1 import from here; `lpes_evo.problems` is their home.

`EvalTask` is `lpes_evo.problems.Task` and `EvalExample` is `lpes_evo.problems.Example`.
"""

from lpes_evo.problems import DataRequest, Example as EvalExample, Task as EvalTask, register_task

__all__ = ["DataRequest", "EvalExample", "EvalTask", "register_task"]
