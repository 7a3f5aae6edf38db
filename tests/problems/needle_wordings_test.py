"""Wordings of the needle task: which there are, how texts take turns in them, and needles without shared words."""

import re

import pytest

from lpes_evo.errors import TaskError
from lpes_evo.problems import DataRequest, check_disjoint, data_hash, make_task

ALL = ("needle:8", *(f"needle:8+wording={number}" for number in (2, 3, 4)), "needle:8+nolima")


def examples(name, **request):
    return make_task(name).examples(DataRequest(**{"limit": 3, "positions": (0.0, 0.5, 1.0)} | request))


def words(text):
    return set(re.findall(r"\w+", text.lower()))


def test_the_examples_of_the_first_wording_are_those_of_before():
    expected = "1173f4c7fd32798423f0899245528876efeae6c0ffa5e8dd84cb6e01196c265c"
    assert data_hash(examples("needle:8")) == expected


@pytest.mark.parametrize("name", ALL)
def test_the_fact_stands_where_the_example_says_and_holds_the_answer(name):
    made = examples(name)
    assert make_task(name).name == name
    for example in made:
        start, end = example.gold
        fact = example.prompt[start:end]
        assert example.answer in fact
        assert example.prompt.count(fact) == 1
        assert example.cut[0] <= start < end <= example.cut[1]


def test_every_wording_asks_in_other_words():
    openings = {example.prompt.rpartition("\n\n")[2].split()[1] for name in ALL for example in examples(name)}
    assert openings == {"is", "access", "which", "many", "character"}


def test_texts_take_turns_in_the_wordings():
    mixed = examples("needle:8+wordings=3", limit=6)
    asked = {example.source: example.prompt.rpartition("\n\n")[2].split()[1] for example in mixed}
    assert sorted(asked.values()) == ["access", "access", "is", "is", "which", "which"]


def test_a_mixed_text_is_that_of_its_wording_alone():
    mixed = examples("needle:8+wordings=3", limit=3)
    alone = [example for number in (1, 2, 3) for example in examples(f"needle:8+wording={number}", limit=3)]
    assert {example.prompt for example in mixed} <= {example.prompt for example in alone}


def test_the_question_of_nolima_shares_no_word_with_the_facts():
    for example in examples("needle:37+nolima", limit=20):
        question = example.prompt.rpartition("\n\n")[2]
        facts = re.findall(r"[^.]*\blives next to [^.]*", example.prompt)
        assert len(facts) == 37
        assert not any(words(question) & words(fact) for fact in facts)
        assert sum(example.answer in words_of for words_of in (fact.split() for fact in facts)) == 1


@pytest.mark.parametrize("name", ["needle:8+wordings=4", "needle:8+nolima"])
def test_search_and_report_share_no_text(name):
    check_disjoint(examples(name, split="search"), examples(name, split="report"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("needle+wording=5", "Expected wording to be an integer from 1 to 4, but got 5"),
        ("needle+wordings=0", "Expected wordings to be an integer from 1 to 4, but got 0"),
        ("needle+wording=2+wordings=2", "one of the options wording, wordings and nolima"),
        ("needle+nolima+digits=5", "no digits beside nolima"),
        ("needle:40+nolima", "Expected n_keys to be an integer from 2 to 37, but got 40"),
        ("needle+nolima=1", r"Expected \+nolima without a value"),
        ("needle+other", r"among \+nolima, \+filler, \+digits, \+wording, \+wordings, but got \+other"),
    ],
)
def test_bad_options_are_refused(name, message):
    with pytest.raises(TaskError, match=message):
        make_task(name)
