from ._model import LpesLM as LpesLM
from ._names import HARNESS_TASKS as HARNESS_TASKS, is_harness_task as is_harness_task
from ._run import run_harness as run_harness
from ._score import (
    HarnessScore as HarnessScore,
    SubjectScore as SubjectScore,
    macro_average as macro_average,
    score_subject as score_subject,
)
