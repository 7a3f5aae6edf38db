from ._arenas import (
    ANALYTIC as ANALYTIC,
    AnalyticArena as AnalyticArena,
    Arena as Arena,
    ModelArena as ModelArena,
)
from ._config import ComparisonConfig as ComparisonConfig, ComparisonFolder as ComparisonFolder
from ._contestants import (
    CONTESTANTS as CONTESTANTS,
    REFERENCE as REFERENCE,
    Contestant as Contestant,
    ablations as ablations,
)
from ._optimiser_search import OptimiserAlgorithm as OptimiserAlgorithm, OptimiserSearch as OptimiserSearch
from ._optimisers import OPTIMISERS as OPTIMISERS, Optimiser as Optimiser, Proposal as Proposal
from ._pictures import (
    plot_diversity as plot_diversity,
    plot_searches as plot_searches,
    plot_standings as plot_standings,
    plot_tried_points as plot_tried_points,
)
from ._run import run_comparison as run_comparison
from ._runs import Runs as Runs, draw_runs as draw_runs, read_runs as read_runs
from ._standings import Standing as Standing, standings as standings
from ._tables import (
    held_out_table as held_out_table,
    standings_table as standings_table,
    to_markdown as to_markdown,
    verdicts as verdicts,
)
from ._traces import (
    Axis as Axis,
    Band as Band,
    Trace as Trace,
    band as band,
    read_steps as read_steps,
    read_trace as read_trace,
)
from ._unit_cube import UnitCube as UnitCube
