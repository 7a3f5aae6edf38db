from ._key_value import KeyValueTask as KeyValueTask
from ._leval import LEVAL_TASKS as LEVAL_TASKS, LEvalTask as LEvalTask
from ._mdqa import MdqaTask as MdqaTask
from ._needle import MAX_FILLER as MAX_FILLER, NeedleTask as NeedleTask
from ._needle_wordings import FILLER as FILLER
from ._passkey import PasskeyTask as PasskeyTask
from ._perplexity import PerplexityTask as PerplexityTask
from ._qa import QaTask as QaTask
from ._recall import QUESTION as QUESTION, WORDS as WORDS, RecallTask as RecallTask
from ._retrieval import RetrievalTask as RetrievalTask
from ._zeroscrolls import ZEROSCROLLS_TASKS as ZEROSCROLLS_TASKS, ZeroScrollsTask as ZeroScrollsTask
