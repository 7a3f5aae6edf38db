import dataclasses

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from lpes_evo.errors import TaskError
from lpes_evo.problems import DataRequest, Example, NeedleTask, encode_examples
from samples import CHAT_TEMPLATE, build_tokenizer


def example(prompt="Key: a", answer="42", prefix="", number=0):
    return Example(
        id=f"e{number}",
        position=0.5,
        prompt=prompt,
        answers=(answer,),
        source=f"s{number}",
        answer_prefix=prefix,
    )


def word_tokenizer(words, unknown="<unk>"):
    vocabulary = {word: index for index, word in enumerate([unknown, *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=unknown))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    wrapped.unk_token = unknown
    return wrapped


def texts(tokenizer, entry, **options):
    (row,) = encode_examples([entry], tokenizer, **options).rows
    return tokenizer.decode(row.prompt_ids), tokenizer.decode(row.answer_ids)


def test_without_template_the_answer_follows_a_space_and_bos_comes_once():
    assert texts(build_tokenizer(), example()) == ("<s>Key: a ", "42")


@pytest.mark.parametrize("prompt", ["Key: a ", "Key: a\n"])
def test_white_space_before_the_answer_is_not_doubled(prompt):
    assert texts(build_tokenizer(), example(prompt)) == (f"<s>{prompt}", "42")


def test_the_answer_prefix_begins_the_models_turn():
    assert texts(build_tokenizer(), example(prefix="It is")) == ("<s>Key: a\nIt is ", "42")
    expected = ("<s><user>\nKey: a\n<assistant>\nIt is ", "42")
    assert texts(build_tokenizer(CHAT_TEMPLATE), example(prefix="It is")) == expected


def test_the_template_gives_the_only_bos():
    tokenizer = build_tokenizer(CHAT_TEMPLATE)
    assert texts(tokenizer, example()) == ("<s><user>\nKey: a\n<assistant>\n", "42")
    assert texts(tokenizer, example(), chat_template=False) == ("<s>Key: a ", "42")


def test_the_templates_own_space_before_a_reply_is_kept():
    template = (
        "{% for message in messages %}{% if message['role'] == 'user' %}USER: {{ message['content'] }} ASSISTANT:"
        "{% else %} {{ message['content'] }}</s>{% endif %}{% endfor %}"
    )
    assert texts(build_tokenizer(template), example()) == ("USER: Key: a ASSISTANT: ", "42")
    no_space = template.replace("{% else %} ", "{% else %}")
    assert texts(build_tokenizer(no_space), example()) == ("USER: Key: a ASSISTANT:", "42")


def test_tokens_that_span_the_border_belong_to_the_answer():
    tokenizer = build_tokenizer()
    letters = tokenizer.get_vocab()
    merged = Tokenizer(models.BPE(vocab=letters | {"Ġ4": len(letters)}, merges=[("Ġ", "4")]))
    merged.pre_tokenizer = tokenizer.backend_tokenizer.pre_tokenizer
    merged.decoder = tokenizer.backend_tokenizer.decoder
    assert texts(PreTrainedTokenizerFast(tokenizer_object=merged), example()) == ("Key: a", " 42")


def test_prompt_and_answer_are_the_tokens_of_the_whole_text():
    tokenizer = build_tokenizer(CHAT_TEMPLATE)
    entry = NeedleTask().examples(DataRequest(positions=[0.5], limit=1, seed=0, split="search"))[0]
    (row,) = encode_examples([entry], tokenizer).rows
    turn = tokenizer.apply_chat_template(
        [{"role": "user", "content": entry.prompt}], add_generation_prompt=True, tokenize=False
    )
    whole = tokenizer(f"{turn}{entry.answer_prefix} {entry.answer}", add_special_tokens=False)["input_ids"]
    assert list(row.prompt_ids + row.answer_ids) == whole
    assert row.n_tokens == len(whole) - 1


def test_word_level_tokenizers_work():
    tokenizer = word_tokenizer(["1", "2", "3", "4", "?"])
    (row,) = encode_examples([example("1 2 3 4 ? 3", "4")], tokenizer).rows
    assert (row.prompt_ids, row.answer_ids) == ((1, 2, 3, 4, 5, 3), (4,))


@pytest.mark.parametrize(("prompt", "answer"), [("1 fox ? 1", "2"), ("1 2 ? 1", "fox")])
def test_words_the_tokenizer_does_not_know_are_refused(prompt, answer):
    with pytest.raises(TaskError, match="words that the model's tokenizer knows, but example 'e0'"):
        encode_examples([example(prompt, answer)], word_tokenizer(["1", "2", "?"]))


def test_a_row_longer_than_the_window_is_refused_with_its_length():
    rows = [example(number=0), example("x" * 5000, number=1)]
    with pytest.raises(TaskError, match="window of 4096 tokens, but 'e1' has 5004"):
        encode_examples(rows, build_tokenizer(), max_length=4096)


def test_a_row_of_exactly_the_window_fits():
    encode_examples([example("x" * 12)], build_tokenizer(), max_length=16)
    with pytest.raises(TaskError, match="window of 15 tokens, but 'e0' has 16"):
        encode_examples([example("x" * 12)], build_tokenizer(), max_length=15)


def test_long_rows_are_skipped_and_counted_on_request():
    rows = [example("x" * 50, number=0), example(number=1), example("x" * 60, number=2)]
    encoding = encode_examples(rows, build_tokenizer(), max_length=20, over_length="skip")
    assert [row.id for row in encoding.rows] == ["e1"]
    assert encoding.examples == (rows[1],)
    assert encoding.skipped == (rows[0], rows[2])


def test_skipping_every_row_is_an_error():
    with pytest.raises(TaskError, match="but all 1 are longer"):
        encode_examples([example()], build_tokenizer(), max_length=3, over_length="skip")


def test_an_empty_answer_is_refused():
    with pytest.raises(TaskError, match="at least one token each, but example 'e0' has 8 and 0"):
        encode_examples([example(answer="")], build_tokenizer())


@pytest.mark.parametrize("examples", [[], [example(), example()]])
def test_no_examples_and_equal_ids_are_refused(examples):
    with pytest.raises(TaskError, match="at least one example and no id twice"):
        encode_examples(examples, build_tokenizer())


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("position", 2.0, r"'e0' has position = 2\.0, where a float from 0 to 1 or None belongs"),
        ("position", float("nan"), "position = nan, where"),
        ("position", "0.5", "position = '0.5', where"),
        ("position", True, "position = True, where"),
        ("prompt", "", "prompt of example 'e0' to be text that is not empty"),
        ("prompt", 5, "prompt = 5, where text in Unicode"),
        ("prompt", "\ud800", "prompt = .* where text in Unicode"),
        ("id", None, "None has id = None, where text that is not empty"),
        ("id", [], r"id = \[\], where"),
        ("source", None, "'e0' has source = None, where text"),
        ("answers", (42,), r"'e0' has answers = \(42,\), where a tuple of texts"),
        ("answers", "42", "'e0' has answers = '42', where a tuple of texts"),
        ("answers", (), "an accepted answer of example 'e0', but it has none"),
        ("answer_prefix", None, "'e0' has answer_prefix = None, where text"),
    ],
)
def test_an_example_with_a_wrong_field_is_refused(field, value, message):
    with pytest.raises(TaskError, match=message):
        encode_examples([dataclasses.replace(example(), **{field: value})], build_tokenizer())


@pytest.mark.parametrize("examples", [None, "text", 5, [None], ["text"]])
def test_what_is_no_list_of_examples_is_refused(examples):
    with pytest.raises(TaskError, match=r"Make them with Task\.examples"):
        encode_examples(examples, build_tokenizer())


def test_an_unknown_treatment_of_long_rows_is_refused():
    with pytest.raises(TaskError, match="over_length to be one of error, skip, cut, but got 'trim'"):
        encode_examples([example()], build_tokenizer(), over_length="trim")


def test_a_long_row_loses_the_middle_of_its_document_on_request():
    long = dataclasses.replace(example("Read: " + "x" * 50 + " Who?"), cut=(6, 56))
    encoding = encode_examples([long], build_tokenizer(), max_length=40, over_length="cut")
    assert encoding.examples == (long,)
    assert len(encoding.rows[0].prompt_ids) + len(encoding.rows[0].answer_ids) == 40
    assert build_tokenizer().decode(encoding.rows[0].prompt_ids).endswith("x Who? ")
    whole = dataclasses.replace(long, id="whole", cut=None)
    assert encode_examples([long, whole], build_tokenizer(), max_length=40, over_length="cut").skipped == (
        whole,
    )
