"""Execution of a search: evaluations on workers, and the loop that keeps them in a journal.

- `Evaluator`, `ProblemFacts`: the evaluation of genomes on a pool
- `FitnessRule`: from scores to fitness values and violations of guards
- `drive`, `SearchLine`, `JOURNAL_FORMAT`, `UNTOUCHED_KEY`: the loop and its journal
- `with_less_memory`: work in smaller batches where the memory does not suffice
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
