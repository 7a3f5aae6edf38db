"""Comparison of searches: convergence from journals, and optimisers at equal numbers of evaluations.

- Convergence: `read_trace`, `Trace`, `band`, `read_runs`, `draw_runs`
- Standings: `standings`, `Standing`, `run_comparison`, `ComparisonConfig`, `ComparisonFolder`
- Contestants and arenas: `CONTESTANTS`, `Contestant`, `ablations`, `ANALYTIC`, `Arena`
- Optimisers of other packages as an algorithm of a search: `OptimiserSearch`, `OptimiserAlgorithm`, `Optimiser`,
  `OPTIMISERS`, `UnitCube`
- Pictures, each a matplotlib figure: `plot_searches`, `plot_diversity`, `plot_tried_points`, `plot_standings`

Names are loaded on first use, and `cma` and `optuna` only when one of their optimisers is made.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
