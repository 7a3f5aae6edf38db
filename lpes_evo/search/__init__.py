"""Search over curves: ask and tell, with one class for each algorithm.

- The search: `Search`, `Evaluation`, `EvaluationRecord`
- The interface of algorithms: `Algorithm`, `Candidate`, `GradientProbe`, `Request`, `Progress`
- Algorithms: `PopulationAlgorithm`, `GeneticAlgorithm`, `Nsga2`, `SteadyState`, `RandomSearch`, `GradientAscent`
- Algorithms by name: `ALGORITHMS`, `find_algorithm`
- Parts of algorithms: `starting_points`, `curve_keys`, `Surrogate`
- Racing and random streams: `example_blocks`, `is_worse`, `isolated_random`, `check_seed`

The package deals with curves and fitness values; it loads no model.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
