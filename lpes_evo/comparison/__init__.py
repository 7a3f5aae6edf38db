"""How searches converge, and how optimisers compare at equal evaluations.

- From journals: `read_trace`, `Trace`, `band`, `read_runs`, `draw_runs`
- Who is best: `standings`, `Standing`, `run_comparison`, `ComparisonConfig`, `ComparisonFolder`
- Who competes and where: `CONTESTANTS`, `Contestant`, `ablations`, `ANALYTIC`, `Arena`
- Optimisers of other packages as a search of ours: `OptimiserSearch`, `Optimiser`, `OPTIMISERS`, `Cube`
- Pictures, each a matplotlib figure: `plot_searches`, `plot_diversity`, `plot_tried_points`, `plot_standings`

Names are loaded on first use; `cma` and `optuna` only when one of their optimisers is made.
"""

from typing import TYPE_CHECKING

from lpes_evo._lazy import lazy_names

if TYPE_CHECKING:
    from lpes_evo.comparison._arenas import ANALYTIC, AnalyticArena, Arena, ModelArena
    from lpes_evo.comparison._config import ComparisonConfig, ComparisonFolder
    from lpes_evo.comparison._contestants import CONTESTANTS, REFERENCE, Contestant, ablations
    from lpes_evo.comparison._cube import Cube
    from lpes_evo.comparison._optimiser_search import OptimiserSearch
    from lpes_evo.comparison._optimisers import OPTIMISERS, Optimiser, Proposal
    from lpes_evo.comparison._pictures import plot_diversity, plot_searches, plot_standings, plot_tried_points
    from lpes_evo.comparison._run import run_comparison
    from lpes_evo.comparison._runs import Runs, draw_runs, read_runs
    from lpes_evo.comparison._standings import Standing, standings
    from lpes_evo.comparison._tables import held_out_rows, rows_of, to_markdown, verdicts
    from lpes_evo.comparison._traces import Band, Trace, band, read_trace

__all__ = [
    "ANALYTIC",
    "CONTESTANTS",
    "OPTIMISERS",
    "REFERENCE",
    "AnalyticArena",
    "Arena",
    "Band",
    "ComparisonConfig",
    "ComparisonFolder",
    "Contestant",
    "Cube",
    "ModelArena",
    "Optimiser",
    "OptimiserSearch",
    "Proposal",
    "Runs",
    "Standing",
    "Trace",
    "ablations",
    "band",
    "draw_runs",
    "held_out_rows",
    "plot_diversity",
    "plot_searches",
    "plot_standings",
    "plot_tried_points",
    "read_runs",
    "read_trace",
    "rows_of",
    "run_comparison",
    "standings",
    "to_markdown",
    "verdicts",
]

_MODULES = {
    "ANALYTIC": "_arenas",
    "AnalyticArena": "_arenas",
    "Arena": "_arenas",
    "Band": "_traces",
    "CONTESTANTS": "_contestants",
    "ComparisonConfig": "_config",
    "ComparisonFolder": "_config",
    "Contestant": "_contestants",
    "Cube": "_cube",
    "ModelArena": "_arenas",
    "OPTIMISERS": "_optimisers",
    "Optimiser": "_optimisers",
    "OptimiserSearch": "_optimiser_search",
    "Proposal": "_optimisers",
    "REFERENCE": "_contestants",
    "Runs": "_runs",
    "Standing": "_standings",
    "Trace": "_traces",
    "ablations": "_contestants",
    "band": "_traces",
    "draw_runs": "_runs",
    "held_out_rows": "_tables",
    "plot_diversity": "_pictures",
    "plot_searches": "_pictures",
    "plot_standings": "_pictures",
    "plot_tried_points": "_pictures",
    "read_runs": "_runs",
    "read_trace": "_traces",
    "rows_of": "_tables",
    "run_comparison": "_run",
    "standings": "_standings",
    "to_markdown": "_tables",
    "verdicts": "_tables",
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
