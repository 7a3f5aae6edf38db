"""Problems: retrieval tasks, how answers are scored, and curve problems that need no model.

Names are loaded on first use, so that importing this package loads neither torch nor transformers.
"""

from typing import TYPE_CHECKING

from lpes_evo._lazy import lazy_names

if TYPE_CHECKING:
    from lpes_evo.problems._aggregate import (
        aggregate,
        group_of,
        mean_interval,
        paired_difference,
        wilson_interval,
    )
    from lpes_evo.problems._curves import BrachistochroneProblem, TargetCurveProblem
    from lpes_evo.problems._encode import EncodedExample, Encoding, encode_examples
    from lpes_evo.problems._key_value import KeyValueTask
    from lpes_evo.problems._model_problem import ModelProblem
    from lpes_evo.problems._needle import NeedleTask
    from lpes_evo.problems._problem import Problem
    from lpes_evo.problems._recall import RecallTask
    from lpes_evo.problems._registry import make_task
    from lpes_evo.problems._score import AnswerScores, score_answers
    from lpes_evo.problems._sharing import Sharing, sharing_is_sound
    from lpes_evo.problems._task import Example, Split, Task, check_disjoint, data_hash

__all__ = [
    "AnswerScores",
    "BrachistochroneProblem",
    "EncodedExample",
    "Encoding",
    "Example",
    "KeyValueTask",
    "ModelProblem",
    "NeedleTask",
    "Problem",
    "RecallTask",
    "Sharing",
    "Split",
    "TargetCurveProblem",
    "Task",
    "aggregate",
    "check_disjoint",
    "data_hash",
    "encode_examples",
    "group_of",
    "make_task",
    "mean_interval",
    "paired_difference",
    "score_answers",
    "sharing_is_sound",
    "wilson_interval",
]

_MODULES = {
    "AnswerScores": "_score",
    "BrachistochroneProblem": "_curves",
    "EncodedExample": "_encode",
    "Encoding": "_encode",
    "Example": "_task",
    "KeyValueTask": "_key_value",
    "ModelProblem": "_model_problem",
    "NeedleTask": "_needle",
    "Problem": "_problem",
    "RecallTask": "_recall",
    "Sharing": "_sharing",
    "Split": "_task",
    "TargetCurveProblem": "_curves",
    "Task": "_task",
    "aggregate": "_aggregate",
    "check_disjoint": "_task",
    "data_hash": "_task",
    "encode_examples": "_encode",
    "group_of": "_aggregate",
    "make_task": "_registry",
    "mean_interval": "_aggregate",
    "paired_difference": "_aggregate",
    "score_answers": "_score",
    "sharing_is_sound": "_sharing",
    "wilson_interval": "_aggregate",
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
