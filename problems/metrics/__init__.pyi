from ._choice import letter_accuracy as letter_accuracy, option_letter as option_letter
from ._concordance import concordance_index as concordance_index, listed_numbers as listed_numbers
from ._contains import contains_value as contains_value
from ._exact import (
    answer_letters as answer_letters,
    code_output as code_output,
    code_reference as code_reference,
    exact_match as exact_match,
    final_number as final_number,
    reference_letters as reference_letters,
    truth_word as truth_word,
)
from ._f1 import token_f1 as token_f1
from ._rouge import geometric_mean as geometric_mean, has_rouge_words as has_rouge_words, rouge as rouge
from ._similarity import exponential_similarity as exponential_similarity, percentage as percentage
from ._subspan import best_subspan_match as best_subspan_match, normalize_answer as normalize_answer
