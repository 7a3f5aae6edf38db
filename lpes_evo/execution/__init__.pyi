from ._evaluator import Cost as Cost, Evaluator as Evaluator
from ._facts import ProblemFacts as ProblemFacts
from ._fitness import FitnessRule as FitnessRule
from ._loop import (
    JOURNAL_FORMAT as JOURNAL_FORMAT,
    UNTOUCHED_KEY as UNTOUCHED_KEY,
    SearchLine as SearchLine,
    drive as drive,
)
from ._scoring import with_less_memory as with_less_memory
