"""Metrics of the benchmarks, each with the exact behaviour of the scorer that was released with it.

Names are loaded on first use.
"""

from typing import TYPE_CHECKING

from lpes_evo._lazy import lazy_names

if TYPE_CHECKING:
    from lpes_evo.evals.metrics._choice import letter_accuracy, option_letter
    from lpes_evo.evals.metrics._concordance import concordance_index, listed_numbers
    from lpes_evo.evals.metrics._contains import contains_value
    from lpes_evo.evals.metrics._exact import (
        answer_letters,
        code_output,
        code_reference,
        exact_match,
        final_number,
        reference_letters,
        truth_word,
    )
    from lpes_evo.evals.metrics._f1 import token_f1
    from lpes_evo.evals.metrics._rouge import geometric_mean, has_rouge_words, rouge
    from lpes_evo.evals.metrics._similarity import exponential_similarity, percentage
    from lpes_evo.evals.metrics._subspan import best_subspan_match, normalize_answer

__all__ = [
    "answer_letters",
    "best_subspan_match",
    "code_output",
    "code_reference",
    "concordance_index",
    "contains_value",
    "exact_match",
    "exponential_similarity",
    "final_number",
    "geometric_mean",
    "has_rouge_words",
    "letter_accuracy",
    "listed_numbers",
    "normalize_answer",
    "option_letter",
    "percentage",
    "reference_letters",
    "rouge",
    "token_f1",
    "truth_word",
]

_MODULES = {
    "answer_letters": "_exact",
    "best_subspan_match": "_subspan",
    "code_output": "_exact",
    "code_reference": "_exact",
    "concordance_index": "_concordance",
    "contains_value": "_contains",
    "exact_match": "_exact",
    "exponential_similarity": "_similarity",
    "final_number": "_exact",
    "geometric_mean": "_rouge",
    "has_rouge_words": "_rouge",
    "letter_accuracy": "_choice",
    "listed_numbers": "_concordance",
    "normalize_answer": "_subspan",
    "option_letter": "_choice",
    "percentage": "_similarity",
    "reference_letters": "_exact",
    "rouge": "_rouge",
    "token_f1": "_f1",
    "truth_word": "_exact",
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
