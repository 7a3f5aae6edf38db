"""Problems: tasks, the scoring of answers, and problems that a search solves with or without a model.

* `Task`, `Example`, `DataRequest`: a maker of examples and judge of outputs, which can be searched and evaluated;
  `make_task`, `register_task`, `task_names`: tasks by name.
* `PromptEncoder`, `encode_examples`: token ids of examples.
* `Problem`, `ModelProblem`: scores of per-layer scales; `score_answers`: scores of known answers.
* `TaskMix`, `MixtureProblem`: several tasks as one problem, some searched and some guards.
* `TargetCurveProblem`, `BrachistochroneProblem`: problems over curves, without a model.
* `lpes_evo.problems.tasks` and `lpes_evo.problems.metrics`: the tasks and metrics of this package.

Names are loaded on first use, so that importing this package loads neither torch nor transformers.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
