from ._leval import LEVAL_TASKS as LEVAL_TASKS, LEvalTask as LEvalTask
from ._mdqa import MdqaTask as MdqaTask
from ._passkey import PasskeyTask as PasskeyTask
from ._perplexity import PerplexityTask as PerplexityTask
from ._retrieval import (
    KeyValueEvalTask as KeyValueEvalTask,
    NeedleEvalTask as NeedleEvalTask,
    RecallEvalTask as RecallEvalTask,
)
from ._zeroscrolls import ZEROSCROLLS_TASKS as ZEROSCROLLS_TASKS, ZeroScrollsTask as ZeroScrollsTask
