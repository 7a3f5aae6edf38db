"""Benchmark files are read, and what is wrong with one is said in one line."""

import gzip
import json
import zipfile

import pytest

from lpes_evo.errors import TaskError
from lpes_evo.problems import choose, find_file, find_files, load_hub, read_records

ROWS = [{"id": "a", "text": "één"}, {"id": "b", "text": "two"}]
LINES = "\n".join(json.dumps(row) for row in ROWS) + "\n"


def test_every_kind_of_file_gives_the_same_rows(tmp_path):
    plain = tmp_path / "rows.jsonl"
    plain.write_text("\ufeff" + LINES, encoding="utf-8")
    packed = tmp_path / "rows.jsonl.gz"
    packed.write_bytes(gzip.compress(LINES.encode()))
    archive = tmp_path / "rows.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("rows/validation.jsonl", LINES)
        file.writestr("__MACOSX/rows/validation.jsonl", "\0")
    for path in (plain, packed, archive):
        records = read_records(path, "validation.jsonl")
        assert [record.fields for record in records] == ROWS
        assert "line 2 of" in records[1].place
        assert path.name in records[1].place


def test_parquet_gives_the_same_rows(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="the extra [eval] is not installed")
    import pyarrow

    path = tmp_path / "rows.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)
    assert [record.fields for record in read_records(path)] == ROWS
    path.write_bytes(b"no parquet")
    with pytest.raises(TaskError, match=r"rows\.parquet to be a Parquet file"):
        read_records(path)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (LINES.encode() + b"\n{}\n", r"line 3 of .*rows\.jsonl to be a JSON object, but it is blank"),
        (b'{"id": 1}\n{"id"', r"line 2 of .*rows\.jsonl to be a JSON object, but it is not JSON"),
        (b"[1]\n", r"line 1 of .*to be a JSON object, but it is \[1\]"),
        (b"[" * 100_000, r"line 1 of .*not JSON"),
        (b'{"id": "\xff"}\n', r"readable file in UTF-8"),
        (b'{"id": "\\ud800"}\n', r"line 1 of .*half of a surrogate pair"),
        (b"", r"at least one row, but it is empty"),
    ],
)
def test_a_malformed_file_is_named_with_its_line(tmp_path, content, match):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content)
    with pytest.raises(TaskError, match=match):
        read_records(path)


@pytest.mark.parametrize("name", ["rows.jsonl.gz", "rows.zip"])
def test_a_damaged_archive_is_one_line(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(gzip.compress(LINES.encode() * 100)[:-20] if name.endswith("gz") else b"PK\3\4 torn")
    with pytest.raises(TaskError, match="reading it failed.*Download it again"):
        read_records(path, "validation.jsonl")


@pytest.mark.parametrize("packing", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_an_archive_with_a_damaged_member_is_one_line(tmp_path, packing):
    path = tmp_path / "rows.zip"
    with zipfile.ZipFile(path, "w", packing) as file:
        file.writestr("rows/validation.jsonl", LINES * 200)
    assert len(read_records(path, "validation.jsonl")) == 400
    data = bytearray(path.read_bytes())
    start = data.index(b"validation.jsonl") + len("validation.jsonl")
    data[start + 4 : start + 60] = b"\xff" * 56
    path.write_bytes(data)
    with pytest.raises(TaskError, match="reading it failed.*Download it again"):
        read_records(path, "validation.jsonl")


def test_an_archive_without_the_split_says_what_it_holds(tmp_path):
    path = tmp_path / "rows.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("rows/test.jsonl", LINES)
    with pytest.raises(TaskError, match=r"one file validation\.jsonl, but it holds rows/test\.jsonl"):
        read_records(path, "validation.jsonl")


def test_a_wrong_field_is_named_with_its_line(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"text": "", "list": [1], "start": 3, "end": 3}\n')
    (record,) = read_records(path)
    with pytest.raises(TaskError, match=r"line 1 of .*have the field 'id', but it has 'text'"):
        record.text("id")
    with pytest.raises(TaskError, match="hold text in the field 'text', but it holds ''"):
        record.text("text")
    with pytest.raises(TaskError, match="list of texts in the field 'list'"):
        record.texts("list")
    with pytest.raises(TaskError, match="0 <= start < end <= 9.*document that is empty"):
        record.span("start", "end", 9)


def test_files_are_found_in_the_folder_and_below_but_predictions_are_not_data(tmp_path):
    below = tmp_path / "one" / "two"
    below.mkdir(parents=True)
    (below / "tpo.jsonl").write_text("{}")
    (below / "tpo.system.pred.jsonl").write_text("{}")
    assert find_file(tmp_path, ("tpo.*jsonl", "tpo.jsonl"), "leval:tpo") == below / "tpo.jsonl"
    (tmp_path / "tpo.jsonl").write_text("{}")
    assert find_files(tmp_path, ("tpo.jsonl",), "leval:tpo") == [tmp_path / "tpo.jsonl"]


def test_a_missing_folder_or_file_and_a_doubled_one_are_one_line(tmp_path):
    with pytest.raises(
        TaskError, match=r"tpo\.jsonl for the task leval:tpo, but got none. Give it with --data"
    ):
        find_file(None, ("tpo.jsonl",), "leval:tpo")
    with pytest.raises(TaskError, match="there is no such folder"):
        find_file(tmp_path / "absent", ("tpo.jsonl",), "leval:tpo")
    with pytest.raises(TaskError, match=r"to hold tpo\.jsonl for the task leval:tpo, but it does not"):
        find_file(tmp_path, ("tpo.jsonl",), "leval:tpo")
    (tmp_path / "tpo.a.jsonl").write_text("{}")
    (tmp_path / "tpo.b.jsonl").write_text("{}")
    with pytest.raises(TaskError, match=r"one data file .* tpo\.a\.jsonl|one data file"):
        find_file(tmp_path, ("tpo.*.jsonl",), "leval:tpo")
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "kv.jsonl").write_text("{}")
    with pytest.raises(TaskError, match="in one place of"):
        find_files(tmp_path, ("kv.jsonl",), "kv")


def test_a_choice_is_seeded_and_keeps_the_order():
    items = list(range(100))
    first = choose(items, 10, 3, "x")
    assert first == sorted(first) == choose(items, 10, 3, "x")
    assert first != choose(items, 10, 4, "x")
    assert choose(items, None, 3, "x") == choose(items, 100, 3, "x") == items
    with pytest.raises(TaskError, match="limit of examples to be at least 1, but got 0"):
        choose(items, 0, 3, "x")


def test_the_hub_is_asked_for_parquet_and_runs_no_script(monkeypatch):
    datasets = pytest.importorskip("datasets", reason="the extra [eval] is not installed")
    asked = []

    def load(*arguments, **options):
        asked.append((arguments, options))
        return ROWS

    monkeypatch.setattr(datasets, "load_dataset", load)
    records = load_hub("tau/zero_scrolls", "qasper", "validation")
    assert [record.fields for record in records] == ROWS
    assert records[1].place == "row 2 of validation of qasper of tau/zero_scrolls"
    assert asked == [
        (("tau/zero_scrolls", "qasper"), {"split": "validation", "revision": "refs/convert/parquet"})
    ]


def test_a_hub_that_does_not_answer_is_one_line(monkeypatch):
    datasets = pytest.importorskip("datasets", reason="the extra [eval] is not installed")

    def fail(*_arguments, **_options):
        raise ConnectionError("no route\nto host")

    monkeypatch.setattr(datasets, "load_dataset", fail)
    with pytest.raises(
        TaskError, match=r"qasper of tau/zero_scrolls from the hub, but it failed: no route\. "
    ):
        load_hub("tau/zero_scrolls", "qasper", "validation")
