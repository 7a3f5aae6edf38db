from ._algorithm import Algorithm as Algorithm, starting_points as starting_points
from ._ascent import Ascent as Ascent, GradientAscent as GradientAscent, variation_slope as variation_slope
from ._curves import curve_keys as curve_keys
from ._evaluation import Evaluation as Evaluation, EvaluationRecord as EvaluationRecord
from ._genetic import (
    GeneticAlgorithm as GeneticAlgorithm,
    Nsga2 as Nsga2,
    SteadyState as SteadyState,
)
from ._population import PopulationAlgorithm as PopulationAlgorithm, RandomSearch as RandomSearch
from ._progress import Progress as Progress
from ._racing import example_blocks as example_blocks, is_worse as is_worse
from ._randomness import check_seed as check_seed, isolated_random as isolated_random
from ._registry import ALGORITHMS as ALGORITHMS, find_algorithm as find_algorithm
from ._requests import Candidate as Candidate, GradientProbe as GradientProbe, Request as Request
from ._search import Search as Search
from ._surrogate import Surrogate as Surrogate, TrainingSet as TrainingSet
