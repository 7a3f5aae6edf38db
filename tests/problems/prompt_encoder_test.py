from dataclasses import replace

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from lpes_evo.problems import Example, PromptEncoder
from samples import CHAT_TEMPLATE, build_tokenizer

UNKNOWN = "<unk>"
HEAD, TAIL = "Read this.\n", "\nWho was it?"


def example(document="text", gold=None, **options):
    prompt = HEAD + document + TAIL
    place = prompt.index(gold) if gold else 0
    return Example(
        id="e",
        prompt=prompt,
        answers=("Ada",),
        cut=(len(HEAD), len(HEAD) + len(document)),
        gold=(place, place + len(gold)) if gold else None,
        max_new_tokens=10,
        **options,
    )


def encoder(window=4096, *, template=None, **options):
    return PromptEncoder(build_tokenizer(template), window, **options)


def prompt_text(asked, encoded):
    return asked.tokenizer.decode(encoded.rows[0].prompt_ids)


def test_a_prompt_ends_where_the_model_goes_on_and_does_not_depend_on_the_answer():
    asked = encoder()
    assert prompt_text(asked, asked.encode(example(), "generation")) == f"<s>{HEAD}text{TAIL}"
    other = replace(example(), answers=("Someone else",))
    assert asked.encode(other, "generation") == asked.encode(example(), "generation")


def test_the_chat_template_and_the_prefix_of_the_models_turn_are_written_once():
    asked = encoder(template=CHAT_TEMPLATE)
    text = prompt_text(asked, asked.encode(example(answer_prefix="It was"), "generation"))
    assert text == f"<s><user>\n{HEAD}text{TAIL}\n<assistant>\nIt was"
    plain = encoder(template=CHAT_TEMPLATE, chat_template=False)
    text = prompt_text(plain, plain.encode(example(answer_prefix="It was"), "generation"))
    assert text == f"<s>{HEAD}text{TAIL}\nIt was"


def test_teacher_forcing_splits_prompt_and_answer_as_the_search_does():
    asked = encoder(template=CHAT_TEMPLATE)
    (row,) = asked.encode(example(), "teacher forcing").rows
    assert asked.tokenizer.decode(row.answer_ids) == "Ada"
    assert asked.tokenizer.decode(row.prompt_ids).endswith("<assistant>\n")


@pytest.mark.parametrize("over_length", ["error", "skip"])
def test_a_prompt_of_5000_tokens_is_refused_by_a_window_of_4096_and_never_cut_unasked(over_length):
    entry = example("x" * (5000 - len(HEAD + TAIL) - 1))
    facts = encoder(over_length=over_length).encode(entry, "generation").summary
    assert facts.n_prompt == 5000
    assert facts.n_cut == 0
    assert facts.refusal == "it is 914 tokens longer than the window of 4096 tokens, answer included"


def test_a_cut_takes_the_middle_of_the_document_and_keeps_instruction_and_question():
    document = "".join(f"{number:04d} " for number in range(1000))
    asked = encoder(over_length="cut", template=CHAT_TEMPLATE)
    encoded = asked.encode(example(document), "generation")
    text = prompt_text(asked, encoded)
    # The room for the answer counts too.
    assert encoded.summary.n_prompt == len(encoded.rows[0].prompt_ids) == 4096 - 10
    assert text.startswith(f"<s><user>\n{HEAD}0000 0001")
    assert text.endswith(f"0998 0999 {TAIL}\n<assistant>\n")
    whole = encoder(9999, template=CHAT_TEMPLATE).encode(example(document), "generation")
    assert encoded.summary.n_cut == whole.summary.n_prompt - encoded.summary.n_prompt
    kept = text.removeprefix(f"<s><user>\n{HEAD}").removesuffix(f"{TAIL}\n<assistant>\n")
    front = next(n for n in range(len(kept)) if not document.startswith(kept[: n + 1]))
    assert abs(front - len(kept) / 2) <= 4
    assert document.endswith(kept[front:])


@pytest.mark.parametrize(("place", "lost"), [(0, False), (2500, True), (4950, False)])
def test_a_cut_that_takes_the_needed_fact_is_told(place, lost):
    document = "x" * place + "GOLD FACT" + "x" * (5000 - place)
    encoded = encoder(over_length="cut").encode(example(document, "GOLD FACT"), "generation")
    assert encoded.summary.refusal is None
    assert encoded.summary.gold_lost is lost


def test_a_cut_splits_no_character():
    # Each letter is three tokens of the byte-level tokenizer.
    asked = encoder(200, over_length="cut")
    for n_letters in range(90, 100):
        text = prompt_text(asked, asked.encode(example("€" * n_letters), "generation"))
        assert "�" not in text
        assert set(text.removeprefix(f"<s>{HEAD}").removesuffix(TAIL)) == {"€"}


def test_a_template_that_strips_the_prompt_moves_the_cut_with_it():
    template = "{% for message in messages %}[{{ message['content'] | trim }}]{% endfor %}"
    asked = encoder(100, template=template, over_length="cut")
    entry = replace(
        example("x" * 300), prompt="  \n" + example("x" * 300).prompt, cut=(3 + len(HEAD), 303 + len(HEAD))
    )
    text = prompt_text(asked, asked.encode(entry, "generation"))
    assert text.startswith(f"[{HEAD}xx")
    assert text.endswith(f"xx{TAIL}]")


def test_what_cannot_be_cut_is_refused_with_its_reason():
    asked = encoder(100, over_length="cut")
    assert (
        "no part of it may be cut"
        in asked.encode(replace(example("x" * 300), cut=None), "generation").summary.refusal
    )
    long_question = replace(example("x" * 30), prompt=example("x" * 30).prompt + "?" * 300)
    assert "its document has only 30 tokens" in asked.encode(long_question, "generation").summary.refusal
    shouting = encoder(
        100,
        over_length="cut",
        template="{% for message in messages %}{{ message['content'] | upper }}{% endfor %}",
    )
    assert (
        "the chat template changes the prompt"
        in shouting.encode(example("x" * 300), "generation").summary.refusal
    )


def test_a_likelihood_is_taken_of_every_token_but_the_first_special_one():
    asked = encoder(20, template=CHAT_TEMPLATE)
    entry = Example(id="t", prompt="", answers=("abcdefgh" * 5,))
    encoded = asked.encode(entry, "likelihood")
    assert [len(row.prompt_ids) for row in encoded.rows] == [1, 1, 1]
    assert [asked.tokenizer.decode(row.answer_ids) for row in encoded.rows] == [
        "abcdefgh" * 2 + "abc",
        "defgh" + "abcdefgh" + "abcdef",
        "gh",
    ]
    assert encoded.summary.n_answer == 40


def test_a_likelihood_under_a_prompt_counts_the_text_alone_and_must_fit():
    asked = encoder(20)
    entry = Example(id="t", prompt="Once ", answers=("upon a time",))
    (row,) = asked.encode(entry, "likelihood").rows
    assert asked.tokenizer.decode(row.prompt_ids) == "<s>Once "
    assert asked.tokenizer.decode(row.answer_ids) == "upon a time"
    entry = replace(entry, answers=("upon a time and more",))
    assert "it has 26 tokens, and the window has 20" in asked.encode(entry, "likelihood").summary.refusal


def test_unknown_words_are_counted():
    tokenizer = Tokenizer(models.WordLevel({UNKNOWN: 0, "a": 1, "b": 2}, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    wrapped.unk_token = UNKNOWN
    entry = Example(id="u", prompt="a b stranger a other", answers=("a",))
    assert PromptEncoder(wrapped, 100).encode(entry, "generation").summary.n_unknown == 2


def test_the_hash_of_a_prompt_follows_its_tokens():
    asked = encoder()
    assert (
        asked.encode(example(), "generation").prompt_hash == asked.encode(example(), "generation").prompt_hash
    )
    assert (
        asked.encode(example(), "generation").prompt_hash
        != asked.encode(example("texts"), "generation").prompt_hash
    )
