import datetime
import gzip
import json
import re
import uuid

import pytest

from lpes_evo.errors import TaskError
from lpes_evo.problems import DataRequest, KeyValueTask, check_disjoint, data_hash, examples_of


def draw(task, positions=(0.0, 0.5, 1.0), limit=2, seed=0, split="search"):
    return task.examples(DataRequest(positions=positions, limit=limit, seed=seed, split=split))


def pairs_of(example):
    return json.loads(re.search(r"JSON data:\n(\{.*\})\n\nKey", example.prompt, re.DOTALL).group(1))


def record(n_pairs=4, gold=2, tag="a"):
    pairs = [[f"key-{tag}{number}", f"value-{tag}{number}"] for number in range(n_pairs)]
    return {"ordered_kv_records": pairs, "key": pairs[gold][0], "value": pairs[gold][1]}


def write(path, records):
    path.write_text("".join(json.dumps(entry) + "\n" for entry in records), encoding="utf-8")
    return path


def test_drawn_examples_are_byte_identical_on_every_platform():
    assert (
        data_hash(draw(KeyValueTask())) == "63dc4d481dc8f22a22296d88baedcca2b405d75d6a8b475a6f1c46dc31897566"
    )


def test_prompt_has_the_wording_of_the_original_task(tmp_path):
    path = write(tmp_path / "kv.jsonl", [record(2, 0), record(2, 0)])
    (example,) = draw(KeyValueTask(data=path), positions=[1.0], limit=1)
    assert example.prompt == (
        "Extract the value corresponding to the specified key in the JSON object below.\n\n"
        'JSON data:\n{"key-a1": "value-a1",\n "key-a0": "value-a0"}\n\nKey: "key-a0"\nCorresponding value:'
    )
    assert example.answer == "value-a0"


def test_drawn_pairs_are_uuids_of_version_4_with_the_gold_pair_in_place():
    for example, slot in zip(draw(KeyValueTask(n_pairs=11), limit=1), [0, 5, 10], strict=True):
        pairs = list(pairs_of(example).items())
        assert len(pairs) == 11
        assert all(uuid.UUID(text).version == 4 for pair in pairs for text in pair)
        assert pairs[slot][1] == example.answer
        assert f'Key: "{pairs[slot][0]}"' in example.prompt


def test_drawn_splits_and_seeds_are_disjoint():
    task = KeyValueTask(n_pairs=3)
    check_disjoint(draw(task), draw(task, split="report"))
    check_disjoint(draw(task), draw(task, seed=1))


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
def test_files_are_read_plain_and_compressed(tmp_path, suffix):
    path = write(tmp_path / "kv.jsonl", [record(tag=str(number)) for number in range(4)])
    if suffix == ".jsonl.gz":
        (tmp_path / "kv.jsonl.gz").write_bytes(gzip.compress(path.read_bytes()))
    examples = draw(KeyValueTask(data=tmp_path / f"kv{suffix}"))
    assert len(examples) == 6
    assert [list(pairs_of(example).values()).index(example.answer) for example in examples] == [
        0,
        0,
        2,
        2,
        3,
        3,
    ]


@pytest.mark.parametrize("n_pairs", [2, 3, 4, None])
def test_any_number_of_pairs_of_a_record_is_kept_and_always_the_gold_pair(tmp_path, n_pairs):
    path = write(tmp_path / "kv.jsonl", [record(gold=3, tag="x"), record(gold=3, tag="y")])
    for example in draw(KeyValueTask(n_pairs=n_pairs, data=path), limit=1):
        pairs = pairs_of(example)
        assert len(pairs) == (n_pairs or 4)
        assert example.answer in pairs.values()


def test_records_of_a_file_never_serve_both_splits_whatever_the_seeds(tmp_path):
    path = write(tmp_path / "kv.jsonl", [record(tag=f"{number}-") for number in range(9)])
    task = KeyValueTask(data=path)
    for seed in range(5):
        check_disjoint(draw(task, limit=4, seed=seed), draw(task, limit=5, split="report"))


def test_too_few_records_for_a_split_are_an_error(tmp_path):
    path = write(tmp_path / "kv.jsonl", [record(tag=str(number)) for number in range(5)])
    task = KeyValueTask(data=path)
    assert len(draw(task, limit=3)) == 2 * 3
    request = DataRequest(positions=(0.0, 1.0), limit=3, split="search", exact=True)
    with pytest.raises(
        TaskError, match="Expected 3 examples of the task 'kv' at position 0, .* search split has 2"
    ):
        examples_of(task, request)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "be a JSON object, but it is blank"),
        ("   ", "be a JSON object, but it is blank"),
        ("{", "be a JSON object, but it is not JSON"),
        ("[" * 100_000, "be a JSON object, but it is not JSON"),
        ("[1]", r"be a JSON object, but it is \[1\]"),
        ('{"key": "a"}', "have the field 'ordered_kv_records', but it has 'key'"),
        ('{"ordered_kv_records": {}, "key": "a", "value": "b"}', r"hold a list of .*, but it holds \{\}"),
        (
            '{"ordered_kv_records": [["a", 1]], "key": "a", "value": "b"}',
            r"hold a list of .* holds \[\['a', 1\]\]",
        ),
        (
            '{"ordered_kv_records": [["a", "b"]], "key": "c", "value": "b"}',
            "hold .* once, but 'c' does not stand",
        ),
        (
            '{"ordered_kv_records": [["a", "b"], ["a", "c"]], "key": "a", "value": "b"}',
            "hold .* once, but 'a' does not stand",
        ),
        (json.dumps(record(3)), "hold at least n_pairs = 4 pairs, but it has 3"),
    ],
)
def test_a_malformed_line_is_named(tmp_path, line, message):
    path = tmp_path / "kv.jsonl"
    path.write_text(json.dumps(record()) + "\n" + line + "\n" + json.dumps(record()) + "\n", encoding="utf-8")
    with pytest.raises(TaskError, match=rf"Expected line 2 of .*kv\.jsonl to {message}"):
        KeyValueTask(n_pairs=4, data=path)


def test_a_byte_order_mark_at_the_start_is_skipped(tmp_path):
    path = write(tmp_path / "kv.jsonl", [record(tag="x"), record(tag="y")])
    plain = draw(KeyValueTask(data=path), limit=1)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert data_hash(draw(KeyValueTask(data=path), limit=1)) == data_hash(plain)


@pytest.mark.parametrize("data", [5, True, ["kv.jsonl"], float("nan"), datetime.date(2024, 1, 1), {}, b"kv"])
def test_data_that_is_no_path_is_refused(data):
    with pytest.raises(TaskError, match=r"data to be the path of a \.jsonl or \.jsonl\.gz file, but got"):
        KeyValueTask(data=data)


def test_a_path_that_no_file_can_have_is_refused():
    with pytest.raises(TaskError, match="reading it failed"):
        KeyValueTask(data="kv\0.jsonl")


def test_an_empty_file_is_an_error(tmp_path):
    (tmp_path / "kv.jsonl").touch()
    with pytest.raises(TaskError, match="but it is empty"):
        KeyValueTask(data=tmp_path / "kv.jsonl")


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(TaskError, match="readable file in UTF-8"):
        KeyValueTask(data=tmp_path / "absent.jsonl")


@pytest.mark.parametrize("cut", [10, 60, -4])
def test_a_truncated_archive_is_an_error(tmp_path, cut):
    data = gzip.compress("".join(json.dumps(record(50)) + "\n" for _ in range(20)).encode())
    (tmp_path / "kv.jsonl.gz").write_bytes(data[:cut])
    with pytest.raises(TaskError, match="readable file in UTF-8|to be a JSON object"):
        KeyValueTask(data=tmp_path / "kv.jsonl.gz")


@pytest.mark.parametrize("n_pairs", [1, 0, 2.5, "8", 10**20])
def test_a_wrong_number_of_pairs_is_refused(n_pairs):
    with pytest.raises(TaskError, match="n_pairs to be an integer from 2"):
        KeyValueTask(n_pairs=n_pairs)


def test_real_records_keep_their_pairs_and_move_the_gold_pair(real_data):
    path = real_data / "lost-in-the-middle" / "kv-retrieval-75_keys.first60.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        golds = {entry["key"]: entry["value"] for entry in map(json.loads, lines)}
    search = draw(KeyValueTask(data=path), limit=30)
    report = draw(KeyValueTask(data=path), limit=30, split="report")
    check_disjoint(search, report)
    for example in search:
        pairs = pairs_of(example)
        key = re.search(r'Key: "(.*)"', example.prompt).group(1)
        assert len(pairs) == 75
        assert golds[key] == pairs[key] == example.answer
        assert list(pairs).index(key) == {0.0: 0, 0.5: 37, 1.0: 74}[example.position]
