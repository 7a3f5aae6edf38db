"""How searches converge, and how optimisers compare at equal evaluations.

- From journals: `read_trace`, `Trace`, `band`, `read_runs`, `draw_runs`
- Who is best: `standings`, `Standing`, `run_comparison`, `ComparisonConfig`, `ComparisonFolder`
- Who competes and where: `CONTESTANTS`, `Contestant`, `ablations`, `ANALYTIC`, `Arena`
- Optimisers of other packages as a search of ours: `OptimiserSearch`, `OptimiserAlgorithm`, `Optimiser`,
  `OPTIMISERS`, `UnitCube`
- Pictures, each a matplotlib figure: `plot_searches`, `plot_diversity`, `plot_tried_points`, `plot_standings`

Names are loaded on first use; `cma` and `optuna` only when one of their optimisers is made.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
