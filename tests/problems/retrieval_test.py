"""The retrieval tasks: report split, gold spans, cuts and scores."""

import json

import pytest

from lpes_evo.errors import TaskError
from lpes_evo.problems import DataRequest, make_task

POSITIONS = (0.0, 0.5, 1.0)
DRAWN = ["kv:6", "needle:4+filler=2+digits=5", "recall:6", "passkey:5"]
QUESTIONS = {
    "kv": "Corresponding value:",
    "needle": "What is the magic number for",
    "recall": "?",
    "passkey": "What is the pass key?",
}


def record(number, n_pairs):
    pairs = [[f"key-{number}-{index}", f"value-{number}-{index}"] for index in range(n_pairs)]
    return {"ordered_kv_records": pairs, "key": pairs[1][0], "value": pairs[1][1]}


def write_records(folder, n_pairs, n_records=10):
    path = folder / f"kv-retrieval-{n_pairs}_keys.jsonl"
    path.write_text("".join(json.dumps(record(number, n_pairs)) + "\n" for number in range(n_records)))


@pytest.mark.parametrize("spec", DRAWN)
def test_the_gold_span_holds_the_answer_and_lies_in_the_part_that_may_be_cut(spec):
    task = make_task(spec)
    made = task.examples(DataRequest(positions=POSITIONS, limit=4))
    assert [example.position for example in made] == [place for place in POSITIONS for _ in range(4)]
    assert len({example.id for example in made}) == 12
    for example in made:
        start, end = example.gold
        assert example.answers[0] in example.prompt[start:end]
        # The answer stands nowhere else in what the model reads.
        assert example.answers[0] not in (example.prompt[:start] + " | " + example.prompt[end:]).split()
        assert example.cut[0] <= start < end <= example.cut[1]
        assert QUESTIONS[spec.split(":")[0]] in example.prompt[example.cut[1] :]
    first, middle, last = (made[index].gold[0] for index in (0, 4, 8))
    assert first < middle < last
    assert task.examples(DataRequest(positions=POSITIONS, limit=4)) == made
    assert task.examples(DataRequest(positions=POSITIONS, limit=4, seed=1)) != made


@pytest.mark.parametrize("name", ["kv", "needle", "recall"])
def test_drawn_examples_are_those_of_the_report_split_and_none_of_the_search(name):
    spec, options = {
        "kv": ("kv:6", {"n_pairs": 6}),
        "needle": ("needle:4", {"n_keys": 4}),
        "recall": ("recall:6", {"n_pairs": 6}),
    }[name]
    made = make_task(spec).examples(DataRequest(positions=POSITIONS, limit=5))
    task = make_task(name, **options)
    report = task.examples(DataRequest(positions=POSITIONS, limit=5, seed=0, split="report"))
    search = task.examples(DataRequest(positions=POSITIONS, limit=5, seed=0, split="search"))
    assert [(example.prompt, example.source) for example in made] == [
        (example.prompt, example.source) for example in report
    ]
    assert not {example.source for example in made} & {example.source for example in search}


def test_records_of_a_file_are_those_that_no_search_draws(tmp_path):
    write_records(tmp_path, 8)
    made = make_task("kv:5").examples(DataRequest(folder=tmp_path, positions=(0.0, 1.0)))
    assert len(made) == 10
    assert made[0].prompt.count('": "') == 5
    task = make_task("kv", n_pairs=5, data=tmp_path / "kv-retrieval-8_keys.jsonl")
    search = task.examples(DataRequest(positions=(0.5,), limit=5, seed=0, split="search"))
    assert not {example.source for example in made} & {example.source for example in search}
    assert len(make_task("kv:5").examples(DataRequest(folder=tmp_path, positions=(0.0,), limit=99))) == 5


def test_the_file_with_the_fewest_pairs_that_suffice_is_read(tmp_path):
    write_records(tmp_path, 8)
    write_records(tmp_path, 12)
    nine = make_task("kv:9").examples(DataRequest(folder=tmp_path, limit=1))[0]
    longer = make_task("kv", data=tmp_path / "kv-retrieval-12_keys.jsonl")
    assert nine.source in {
        example.source
        for example in longer.examples(DataRequest(positions=(0.0,), limit=5, seed=0, split="report"))
    }
    whole = make_task("kv").examples(DataRequest(folder=tmp_path, limit=1))[0]
    assert whole.prompt.count('": "') == 8
    drawn = make_task("kv:9+drawn").examples(DataRequest(folder=tmp_path, limit=1))[0]
    assert drawn.source.startswith("kv/report/")
    with pytest.raises(TaskError, match=r"at least n_pairs = 13 pairs, but it has 12"):
        make_task("kv:13").examples(DataRequest(folder=tmp_path))


def test_real_records_are_asked_with_fewer_pairs(real_data):
    made = make_task("kv:10").examples(DataRequest(folder=real_data, positions=(0.5,)))
    assert len(made) == 30
    assert all(example.prompt.count('": "') == 10 for example in made)


def test_an_answer_counts_wherever_it_stands_but_a_recalled_word_must_come_first():
    (example,) = make_task("kv:4").examples(DataRequest(positions=(0.0,), limit=1))
    task = make_task("kv:4")
    assert task.score(f"It is\n{example.answers[0].upper()}!", example) == (1.0,)
    assert task.score(example.answers[0][:-1], example) == (0.0,)
    recall = make_task("recall:4")
    (example,) = recall.examples(DataRequest(positions=(0.0,), limit=1))
    assert recall.score(f" {example.answers[0]} 7 7", example) == (1.0,)
    assert recall.score(f"7{example.answers[0]}", example) == (0.0,)
    assert recall.score("", example) == (0.0,)


@pytest.mark.parametrize(
    ("spec", "match"),
    [
        ("kv:1", "n_pairs to be an integer from 2"),
        ("needle:1", "n_keys to be an integer from 2"),
        ("passkey:0", "fillers of passkey to be an integer from 1"),
        ("recall:1000", "n_pairs to be an integer from 2 to 96"),
    ],
)
def test_options_out_of_range_are_refused(spec, match):
    with pytest.raises(TaskError, match=match):
        make_task(spec)


@pytest.mark.parametrize("spec", DRAWN)
def test_a_request_that_is_not_valid_is_refused(spec):
    with pytest.raises(TaskError, match="position to lie between 0 and 1, but got 2"):
        make_task(spec).examples(DataRequest(positions=(2.0,)))
    with pytest.raises(TaskError, match="integer .*1.*but got 0"):
        make_task(spec).examples(DataRequest(limit=0))
