import dataclasses

import pytest

from lpes_evo.analysis import inputs_of_examples, inputs_of_text
from lpes_evo.errors import TaskError
from lpes_evo.models import load_model
from lpes_evo.problems import DataRequest, make_task


@pytest.fixture(scope="module")
def tiny():
    return load_model("tiny")


def examples(name, **options):
    return make_task(name, **options).examples(
        DataRequest(positions=[0.0, 0.5, 1.0], limit=2, seed=0, split="report")
    )


def test_the_gold_span_of_recall_is_the_partner_of_the_key(tiny):
    for entry in inputs_of_examples(tiny, examples("recall", n_pairs=16)):
        start, stop = entry.gold
        assert entry.token_ids[start:stop] == entry.row.answer_ids
        assert entry.token_ids[start - 1] == entry.token_ids[-1]
        assert entry.position == pytest.approx((start - 2) / 30, abs=0.06)


@pytest.mark.parametrize("name", ["needle", "kv"])
@pytest.mark.parametrize("chat_template", [True, False])
def test_the_gold_span_is_the_answer_where_it_stands_in_the_prompt(tiny_loaded, name, chat_template):
    drawn = examples(name, n_keys=3) if name == "needle" else examples(name, n_pairs=3)
    for example, entry in zip(
        drawn, inputs_of_examples(tiny_loaded, drawn, chat_template=chat_template), strict=True
    ):
        text = tiny_loaded.tokenizer.decode(entry.token_ids[slice(*entry.gold)])
        assert text == example.answer
        before = tiny_loaded.tokenizer.decode(entry.token_ids[: entry.gold[0]])
        assert example.answer not in before


def test_of_several_places_the_one_nearest_to_the_position_is_gold(tiny_loaded):
    example = dataclasses.replace(
        examples("needle", n_keys=2)[0],
        prompt="ab 12 cd 12 ef 123 gh",
        answers=("12",),
        answer_prefix="",
        cut=None,
        gold=None,
    )
    spans = []
    for position in (0.0, 1.0):
        (entry,) = inputs_of_examples(
            tiny_loaded, [dataclasses.replace(example, position=position)], chat_template=False
        )
        spans.append(entry.gold)
    # One special token stands in front; "123" is another word.
    assert spans == [(4, 6), (10, 12)]


def test_an_answer_that_does_not_stand_in_the_prompt_has_no_gold_span(tiny_loaded):
    example = dataclasses.replace(examples("needle", n_keys=2)[0], answers=("nowhere",))
    assert inputs_of_examples(tiny_loaded, [example])[0].gold is None


def test_a_text_is_cut_into_pieces_of_equal_length(tiny_loaded, tmp_path):
    file = tmp_path / "text.txt"
    file.write_text("abcdefghij" * 5)
    pieces = inputs_of_text(tiny_loaded, file, length=16, n_inputs=10)
    front = tiny_loaded.tokenizer("a")["input_ids"][:1]
    assert [entry.n_tokens for entry in pieces] == [16, 16, 16]
    assert all(list(entry.token_ids[:1]) == front for entry in pieces)
    assert tiny_loaded.tokenizer.decode(pieces[1].token_ids[1:]) == ("abcdefghij" * 5)[15:30]
    assert len(inputs_of_text(tiny_loaded, file, length=16, n_inputs=2)) == 2
    (whole,) = inputs_of_text(tiny_loaded, file, length=500, n_inputs=2)
    assert whole.n_tokens == 51
    assert whole.gold is whole.row is None


def test_texts_that_cannot_be_analysed_are_refused_in_one_line(tiny_loaded, tiny, tmp_path):
    empty, short, binary, words = (tmp_path / name for name in ("empty", "short", "binary", "words"))
    empty.write_text(" \n\t")
    short.write_text("a")
    binary.write_bytes(b"\xff\xfe\x00")
    words.write_text("the embedded model knows no words")
    for loaded, file, message in (
        (tiny_loaded, empty, "but it is empty"),
        (tiny_loaded, short, "at least 4 tokens"),
        (tiny_loaded, binary, "not UTF-8"),
        (tiny_loaded, tmp_path / "none", "cannot be read: No such file"),
        (tiny_loaded, tmp_path, "cannot be read: Is a directory"),
        (tiny, words, "the model's tokenizer knows"),
    ):
        with pytest.raises(TaskError, match=message) as caught:
            inputs_of_text(loaded, file, length=64, n_inputs=2)
        assert "\n" not in str(caught.value)
    for length, n_inputs in ((3, 1), (2000, 1), (64, 0)):
        with pytest.raises(TaskError, match="at least one input of 4 to 1024 tokens"):
            inputs_of_text(tiny_loaded, short, length=length, n_inputs=n_inputs)
