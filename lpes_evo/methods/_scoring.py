"""`score_row_by_row`: scores of known answers under methods that choose something by the prompt."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from lpes_evo.methods.takeover import MethodHandle
from lpes_evo.problems import AnswerScores, EncodedExample, score_answers


def score_row_by_row(
    handle: MethodHandle, model: Any, rows: Sequence[EncodedExample], *, prompts_end: bool
) -> AnswerScores:
    """Score each example in a separate forward pass, so that a method sees the prompt of the example and no padding.

    Args:
        handle: The handle of the method in force on the model.
        model: The model.
        rows: Token ids of the examples, ``n_examples`` of them.
        prompts_end: Whether the method chooses by the prompts alone, as it does in generation. Otherwise it chooses by
            prompt and answer together.

    Returns:
        The scores, ``(n_examples,)``.
    """
    scores = []
    for row in rows:
        with handle.prompts([len(row.prompt_ids) if prompts_end else row.n_tokens]):
            scores.append(score_answers(model, [row]))
    return AnswerScores(
        np.concatenate([score.log_probability for score in scores]),
        np.concatenate([score.correct for score in scores]),
    )
