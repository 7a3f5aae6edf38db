"""Metrics score as the scorers that were released with the benchmarks do."""

import re
import string

import numpy as np
import pytest
import regex
from hypothesis import given, strategies as st

from lpes_evo.errors import TaskError
from lpes_evo.problems import metrics


@pytest.mark.parametrize(
    ("output", "answer", "score"),
    [
        ("\nParis", "Paris", 0),
        ("the  Eiffel Tower, in Paris", "Eiffel tower", 1),
        ("Eiffel-Tower", "eiffel tower", 0),
        ("focus", "US", 1),
        ("anything", "The", 1),
        ("Paris\nLondon", "London", 0),
        ("  Paris ", "paris.", 1),
        ("x\u0301", "a\u0301", 0),
        ("cafe\u0301", "the\u0301", 0),
        ("nothing of it", "an\u0300", 0),
        ("a\u0301 b", "a\u0301", 1),
    ],
)
def test_subspan_match_has_the_golden_values_of_the_released_functions(output, answer, score):
    assert metrics.best_subspan_match(output, ["not this one", answer]) == score


@given(
    text=st.text(alphabet="aAntheTHE \u0301\u0300\u200d\u00b2\u0661\uff3f.-\u0130\u03a3\u4e2d_", max_size=12)
)
def test_words_for_subspan_match_are_those_of_the_released_normalisation(text):
    lowered = "".join(letter for letter in text.lower() if letter not in set(string.punctuation))
    released = " ".join(regex.sub(r"\b(a|an|the)\b", " ", lowered).split())

    assert metrics.normalize_answer(text, marks_join_words=True) == released


@given(
    text=st.text(alphabet="aAntheTHE \u0301\u0300\u200d\u00b2\u0661\uff3f.-\u0130\u03a3\u4e2d_", max_size=12)
)
def test_words_for_f1_are_those_of_the_squad_normalisation(text):
    lowered = "".join(letter for letter in text.lower() if letter not in set(string.punctuation))
    released = " ".join(re.sub(r"\b(a|an|the)\b", " ", lowered).split())

    assert metrics.normalize_answer(text) == released


def test_a_value_is_found_on_any_line_and_in_any_case():
    assert metrics.contains_value("First.\nIt is 7F3A.", "7f3a") == 1
    assert metrics.contains_value("7f3", "7f3a") == 0


def test_f1_counts_words_and_takes_the_best_reference():
    # 2 of 3 words said and 2 of 2 of the reference: P = 2/3, R = 1.
    assert metrics.token_f1("The big red dog", ["cats", "red dog"]) == pytest.approx(0.8)
    assert metrics.token_f1("red red dog", ["red dog dog"]) == pytest.approx(2 / 3)
    assert metrics.token_f1("", ["dog"]) == 0


def test_zeroscrolls_f1_spells_letters_in_ascii():
    pytest.importorskip("text_unidecode", reason="the extra [eval] is not installed")
    assert metrics.token_f1("Café Zürich", ["cafe zurich"], ascii_only=True) == 1
    assert metrics.token_f1("Café Zürich", ["cafe zurich"]) == 0


def test_rouge_has_no_stemmer_and_takes_the_best_of_each_type():
    pytest.importorskip("rouge_score", reason="the extra [eval] is not installed")
    assert metrics.rouge("the cats", ["the cat"]) == (0.5, 0.0, 0.5)
    # Unigrams are best in the first reference, bigrams in the second.
    one, two, longest = metrics.rouge("a b c d", ["d c b a", "a b x y"])
    assert one == 1
    assert two == pytest.approx(1 / 3)
    assert longest == pytest.approx(0.5)


def test_the_geometric_mean_is_that_of_the_means():
    scores = np.array([[40.0, 10.0, 20.0], [20.0, 0.0, 10.0]])
    assert metrics.geometric_mean(scores) == pytest.approx((30 * 5 * 15) ** (1 / 3))


@pytest.mark.parametrize(
    ("output", "score"),
    [("62%", 1), ("About 72 % or 72%", 0.5), ("42.0%", 0.25), ("62", 0), ("62%, or 10%", 1)],
)
def test_exponential_similarity_halves_every_ten_points(output, score):
    assert metrics.exponential_similarity(output, ["62%"]) == pytest.approx(score)


def test_exponential_similarity_refuses_a_reference_without_percentage():
    with pytest.raises(ValueError, match="hold a percentage such as 62%"):
        metrics.exponential_similarity("62%", ["sixty"])


@pytest.mark.parametrize(
    ("output", "score"),
    [
        ("1, 2, 3, 4", 1),
        ("The order is: 4,3,2,1.", 0),
        ("2 1 3 4", 5 / 6),
        ("1, 2, 3", 0),
        ("1, 2, 3, 4, 4", 0),
        ("1, 2, 3, " + "4" * 10_000, 0),
        ("", 0),
    ],
)
def test_concordance_is_the_share_of_pairs_in_order(output, score):
    assert metrics.concordance_index(output, ["1, 2, 3, 4"]) == pytest.approx(score)


@pytest.mark.parametrize(
    ("output", "score"), [("(B) because", 1), ("Answer: B", 1), ("Because A", 0), ("b", 0)]
)
def test_a_chosen_letter_is_a_word_of_its_own(output, score):
    assert metrics.letter_accuracy(output, ["(B) The moon"]) == score


@pytest.mark.parametrize(
    ("output", "one", "several"),
    [
        ("B. to earn money", "B", "B"),
        # A letter inside a word counts where one option is right.
        ("The answer: Definitely C.", "D", "C"),
        ("BCA", "B", "ABC"),
        ("BC", "BC", "BC"),
        ("A. first\nC. third", "A", "AC"),
        ("the options AC", "A", "AC"),
        ("it is (B), (D)", "B", "BD"),
        ("no idea", "A", "A"),
        ("  ", "None", "None"),
        ("A B Question 2: C", "A", "AB"),
    ],
)
def test_option_letters_are_extracted_as_l_eval_does(output, one, several):
    assert metrics.answer_letters(output, several=False) == one
    assert metrics.answer_letters(output, several=True) == several


@pytest.mark.parametrize(
    ("output", "reference", "score"),
    [
        ("AB", "AB", 1),
        ("A", "AB", 0.25),
        ("AC", "AB", 0),
        ("12", "12.0", 1),
        ("13", "12", 0),
        ("we spoke of The Benefits ofVolunteering today", "the benefits of volunteering", 1),
        ("", "12", 0),
    ],
)
def test_exact_match_of_l_eval(output, reference, score):
    assert metrics.exact_match(output, reference) == score


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("So 3 x 4 = 12.\nThe answer is $1,200.50", "1200"),
        ("He has 3 apples and 12 pears.\n\nQuestion: 77", "12"),
        ("none", ""),
    ],
)
def test_the_result_of_a_solution_is_its_stated_or_its_last_number(text, number):
    assert metrics.final_number(text) == number


def test_the_output_of_code_is_looked_for_at_the_end_or_after_the_final_output():
    assert metrics.code_reference("[ [1.0, 2],\n ['a'] ]") == "[[1 2][a]]"
    assert metrics.code_output("one two three four five six", "x") == "three four five six"
    assert (
        metrics.code_output("the final output will be [1, 2] and nothing else", "[1, 2]")
        == " [1 2] and nothing"
    )


def test_a_truth_is_the_first_word_that_says_one():
    assert metrics.truth_word("Well, it's False. Not true") == "false"
    assert metrics.truth_word("maybe") == "<error>"


def test_a_missing_package_is_named_with_its_remedy(monkeypatch):
    def refuse(name):
        raise ImportError(name)

    monkeypatch.setattr("lpes_evo.problems._data.import_module", refuse)
    with pytest.raises(TaskError, match=r"text_unidecode .* pip install '\.\[eval\]'"):
        metrics.token_f1("é", ["e"], ascii_only=True)
