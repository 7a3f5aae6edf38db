from ._aggregate import aggregate as aggregate, group_of as group_of
from ._curves import (
    BrachistochroneProblem as BrachistochroneProblem,
    TargetCurveProblem as TargetCurveProblem,
)
from ._draws import Draws as Draws
from ._encode import (
    EncodedExample as EncodedExample,
    Encoding as Encoding,
    PromptTexts as PromptTexts,
    encode_examples as encode_examples,
)
from ._key_value import KeyValueTask as KeyValueTask
from ._model_problem import ModelProblem as ModelProblem
from ._needle import FILLER as FILLER, MAX_FILLER as MAX_FILLER, NeedleTask as NeedleTask
from ._pack import batches as batches, pack_rows as pack_rows
from ._problem import Problem as Problem
from ._recall import QUESTION as QUESTION, WORDS as WORDS, RecallTask as RecallTask
from ._registry import make_task as make_task
from ._score import (
    AnswerScores as AnswerScores,
    default_batch_tokens as default_batch_tokens,
    score_answers as score_answers,
)
from ._sharing import NOTHING_ALIKE as NOTHING_ALIKE, Sharing as Sharing, sharing_is_sound as sharing_is_sound
from ._task import (
    Example as Example,
    Split as Split,
    Task as Task,
    check_count as check_count,
    check_disjoint as check_disjoint,
    check_draw as check_draw,
    data_hash as data_hash,
    is_position as is_position,
    slot_of as slot_of,
)
