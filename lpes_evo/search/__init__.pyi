from ._breeding import Breeder as Breeder
from ._candidates import CandidateLine as CandidateLine
from ._evaluation import Evaluation as Evaluation, EvaluationRecord as EvaluationRecord
from ._probe import GradientProbe as GradientProbe
from ._racing import example_blocks as example_blocks, is_worse as is_worse
from ._randomness import check_seed as check_seed, isolated_random as isolated_random
from ._search import Search as Search
from ._surrogate import Surrogate as Surrogate
