from ._estimate import estimate_run as estimate_run
from ._folder import RunFolder as RunFolder
from ._job import (
    JobFacts as JobFacts,
    JobSpec as JobSpec,
    describe as describe,
    draw_examples as draw_examples,
    prepare as prepare,
    search_problem as search_problem,
    task_examples as task_examples,
)
from ._memory import MemoryNeed as MemoryNeed, gpus_found as gpus_found, memory_need as memory_need
from ._outcome import (
    Outcome as Outcome,
    lines_of_outcome as lines_of_outcome,
    outcome_of as outcome_of,
)
from ._pictures import (
    STYLES as STYLES,
    plot_convergence as plot_convergence,
    plot_curve as plot_curve,
    plot_positions as plot_positions,
    series_styles as series_styles,
)
from ._report import (
    candidates as candidates,
    measure as measure,
    smaller_batches as smaller_batches,
    summarise as summarise,
)
from ._report_record import (
    CONSTANT as CONSTANT,
    LPES as LPES,
    REPORT_JOURNAL_FORMAT as REPORT_JOURNAL_FORMAT,
    UNTOUCHED as UNTOUCHED,
    MeasuredLine as MeasuredLine,
    load_report as load_report,
    save_report as save_report,
)
from ._run import UNITS as UNITS, history_table as history_table, run_search as run_search
from ._show import show_run as show_run, show_scales as show_scales, tasks_table as tasks_table
from ._warnings import warnings_of as warnings_of
