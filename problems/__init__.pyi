from ._aggregate import SETS as SETS, aggregate as aggregate, group_of as group_of
from ._checks import check_count as check_count, is_position as is_position
from ._curves import (
    BrachistochroneProblem as BrachistochroneProblem,
    TargetCurveProblem as TargetCurveProblem,
)
from ._data import (
    DataRecord as DataRecord,
    choose as choose,
    find_file as find_file,
    find_files as find_files,
    is_file as is_file,
    is_folder as is_folder,
    load_hub as load_hub,
    optional_module as optional_module,
    read_records as read_records,
)
from ._draws import Draws as Draws
from ._encode import (
    EncodedExample as EncodedExample,
    EncodedPrompt as EncodedPrompt,
    Mode as Mode,
    OverLength as OverLength,
    PromptEncoder as PromptEncoder,
    PromptSummary as PromptSummary,
)
from ._encoding import Encoding as Encoding, encode_examples as encode_examples
from ._example import (
    Example as Example,
    check_disjoint as check_disjoint,
    data_hash as data_hash,
    evaluation_hash as evaluation_hash,
    seen_examples as seen_examples,
)
from ._generate import Generated as Generated, end_ids as end_ids, generate_greedy as generate_greedy
from ._gradient import answer_gradient as answer_gradient
from ._masks import pack_masks as pack_masks
from ._mixture import (
    DEFAULT_TOLERANCE as DEFAULT_TOLERANCE,
    Mixture as Mixture,
    MixtureProblem as MixtureProblem,
)
from ._model_problem import ModelProblem as ModelProblem
from ._pack import batches as batches, pack_rows as pack_rows
from ._problem import Problem as Problem
from ._registry import (
    TaskSpec as TaskSpec,
    make_task as make_task,
    register_task as register_task,
    task_names as task_names,
)
from ._score import (
    AnswerScores as AnswerScores,
    answer_scores as answer_scores,
    default_batch_tokens as default_batch_tokens,
    score_answers as score_answers,
)
from ._sharing import NOTHING_ALIKE as NOTHING_ALIKE, Sharing as Sharing, sharing_is_sound as sharing_is_sound
from ._splits import SEARCH_SHARE as SEARCH_SHARE, divide as divide, source_hash as source_hash
from ._task import (
    DataRequest as DataRequest,
    Split as Split,
    Task as Task,
    check_draw as check_draw,
    slot_of as slot_of,
)
from ._task_calls import (
    Headline as Headline,
    examples_of as examples_of,
    headline_of as headline_of,
    score_output as score_output,
    warnings_of as warnings_of,
)
from ._task_mix import TaskMix as TaskMix
from .tasks import (
    FILLER as FILLER,
    MAX_FILLER as MAX_FILLER,
    QUESTION as QUESTION,
    WORDS as WORDS,
    KeyValueTask as KeyValueTask,
    NeedleTask as NeedleTask,
    RecallTask as RecallTask,
)
