from ._arms import Arm as Arm, make_arms as make_arms
from ._compare import compare_evaluations as compare_evaluations
from ._config import EvalConfig as EvalConfig
from ._folder import EvalFolder as EvalFolder
from ._names import (
    DataRequest as DataRequest,
    EvalExample as EvalExample,
    EvalTask as EvalTask,
    register_task as register_task,
)
from ._results import EvalResults as EvalResults, load_results as load_results
from ._run import run_evaluation as run_evaluation
from ._table import (
    csv_table as csv_table,
    markdown_table as markdown_table,
    print_results as print_results,
)
from ._target import EvalTarget as EvalTarget, answer_batch as answer_batch
from .predictions import score_predictions as score_predictions
