from ._evaluator import Cost as Cost, Evaluator as Evaluator
from ._facts import ProblemFacts as ProblemFacts
from ._loop import JOURNAL_FORMAT as JOURNAL_FORMAT, SearchLine as SearchLine, drive as drive
from ._scoring import with_less_memory as with_less_memory
