from ._answers import answer_key as answer_key, read_answer as read_answer
from ._arms import Arm as Arm, make_arms as make_arms
from ._compare import compare_evaluations as compare_evaluations
from ._config import EvalConfig as EvalConfig
from ._engines import VllmEngine as VllmEngine, check_engine as check_engine
from ._folder import EvalFolder as EvalFolder
from ._lm_tasks import macro_headline as macro_headline
from ._names import (
    DataRequest as DataRequest,
    EvalExample as EvalExample,
    EvalTask as EvalTask,
    register_task as register_task,
)
from ._plan import draw_tasks as draw_tasks
from ._plot import plot_task_positions as plot_task_positions
from ._results import (
    EvalResults as EvalResults,
    TaskResult as TaskResult,
    load_results as load_results,
    save_results as save_results,
)
from ._run import run_evaluation as run_evaluation
from ._statistics import (
    ScoredExample as ScoredExample,
    difference as difference,
    score_interval as score_interval,
    summarise_arm as summarise_arm,
)
from ._table import (
    csv_table as csv_table,
    markdown_table as markdown_table,
    print_results as print_results,
    save_tables as save_tables,
)
from ._target import (
    EvalTarget as EvalTarget,
    answer_batch as answer_batch,
    describe_target as describe_target,
    try_sharing as try_sharing,
)
from .predictions import score_predictions as score_predictions
