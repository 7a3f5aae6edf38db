"""Every file that is read back is refused in one clear line where it is not what was written."""

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from lpes_evo.analysis import DriftReport
from lpes_evo.comparison import ComparisonFolder, read_trace
from lpes_evo.errors import LpesError
from lpes_evo.evals import EvalFolder, load_results, read_answer
from lpes_evo.methods.moice import load_routers
from lpes_evo.runs import MeasuredLine, RunFolder, load_report
from lpes_evo.scales import load_scales
from lpes_evo.storage import read_journal

KEPT = Path(__file__).parents[1] / "version_1"


def read_answers(path):
    for record in read_journal(path).records.values():
        read_answer(record, None, path)


def read_measured(path):
    for record in read_journal(path).records.values():
        MeasuredLine.of(record, str(path))


FILES = {
    "search/scales.json": load_scales,
    "search/report.json": load_report,
    "eval/results.json": load_results,
    "drift/drift.json": DriftReport.load,
}
JOURNALS = {
    "search/journal.jsonl": read_trace,
    "search/report.jsonl": read_measured,
    "eval/answers.jsonl": read_answers,
    "comparison/journals/target/ga-0.jsonl": read_trace,
}
CONFIGURATIONS = {
    "search/config.yaml": lambda path: RunFolder(path.parent).load_record(),
    "eval/config.yaml": lambda path: EvalFolder(path.parent).load_config(),
    "comparison/comparison.yaml": lambda path: ComparisonFolder(path.parent).load_config(),
}
READERS = FILES | JOURNALS | CONFIGURATIONS


@pytest.fixture
def kept(tmp_path):
    return shutil.copytree(KEPT, tmp_path / "kept")


def assert_refused(name, path):
    with pytest.raises(LpesError) as raised:
        READERS[name](path)
    message = str(raised.value)
    assert "\n" not in message
    assert path.name in message
    assert "Expected" in message
    assert len(message) < 1000
    return message


def leaves(values, place=()):
    """Yield the place of every value in parsed JSON."""
    entries = values.items() if isinstance(values, dict) else enumerate(values)
    for key, value in entries:
        yield (*place, key)
        if isinstance(value, (dict, list)):
            yield from leaves(value, (*place, key))


def put(values, place, value):
    for step in place[:-1]:
        values = values[step]
    values[place[-1]] = value


@pytest.mark.parametrize("name", READERS)
def test_a_file_is_read_with_and_without_a_byte_order_mark(kept, name):
    path = kept / name
    found = READERS[name](path)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    again = READERS[name](path)
    assert repr(again) == repr(found)


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(
    "text", ["[" * 100_000, "[" * 100_000 + "]" * 100_000, "7", '"text"', "\x00", "{", "[]"]
)
def test_a_file_of_something_else_is_refused(kept, name, text):
    (kept / name).write_text(text + "\n")
    assert_refused(name, kept / name)


@pytest.mark.parametrize("name", READERS)
def test_a_file_that_is_no_text_is_refused(kept, name):
    (kept / name).write_bytes(b"\xff\xfe\x00{}\n")
    assert_refused(name, kept / name)


@pytest.mark.parametrize("name", READERS)
def test_a_missing_file_is_refused(kept, name):
    (kept / name).unlink()
    with pytest.raises(LpesError, match="Expected"):
        READERS[name](kept / name)


@pytest.mark.parametrize("name", FILES)
def test_a_truncated_file_is_refused(kept, name):
    data = (kept / name).read_bytes()
    for size in range(0, len(data) - 2, max(1, len(data) // 50)):
        (kept / name).write_bytes(data[:size])
        assert_refused(name, kept / name)


@pytest.mark.parametrize("name", ["search/config.yaml", "eval/config.yaml"])
def test_a_truncated_configuration_is_refused_unless_nothing_of_it_is_lost(kept, name):
    data = (kept / name).read_bytes()
    whole = READERS[name](kept / name)
    n_read = 0
    for size in range(0, data.index(b"  versions:"), 23):
        (kept / name).write_bytes(data[:size])
        try:
            assert READERS[name](kept / name) == whole
            n_read += 1
        except LpesError:
            assert_refused(name, kept / name)
    # The settings of an evaluation stand before its provenance, which nothing reads.
    assert n_read == 0 or name == "eval/config.yaml"


@pytest.mark.parametrize("name", FILES)
def test_an_edited_value_is_refused_with_its_place(kept, name):
    text = (kept / name).read_text()
    # What options of a task and facts of a machine are is not for the file to say.
    free = {"command", "options", "facts", "task", "curves", "versions", "trained", "notes"}
    places = [place for place in leaves(json.loads(text)) if not free & set(place)]
    for place in places[:: max(1, len(places) // 40)]:
        for value in (10**400, float("nan"), float("inf"), {"nested": [[]]}):
            values = json.loads(text)
            if value == {"nested": [[]]} and name == "eval/results.json" and place[0] == "arms":
                continue  # what defines an arm is not for the file to say
            put(values, place, value)
            (kept / name).write_text(json.dumps(values))
            assert_refused(name, kept / name)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_and_an_unknown_field_are_named(kept, name):
    whole = json.loads((kept / name).read_text())
    optional = {
        "curve",
        "shuffles",
        "smaller_batches",
        "skipped",
        "data",
        "command",
        "model",
        "task",
        "missing",
    }
    for field in whole.keys() - optional:
        (kept / name).write_text(json.dumps({key: value for key, value in whole.items() if key != field}))
        message = assert_refused(name, kept / name)
        assert "to have format" in message if field in ("format", "version") else f"'{field}'" in message
    (kept / name).write_text(json.dumps(whole | {"surprise": 1}))
    assert "to have no field 'surprise'" in assert_refused(name, kept / name)
    for version in (0, 2, 1.0, "1", True, None):
        (kept / name).write_text(json.dumps(whole | {"version": version}))
        assert "version 1, but got" in assert_refused(name, kept / name)


@pytest.mark.parametrize("name", JOURNALS)
@pytest.mark.parametrize(
    "change",
    [
        lambda line: line.pop(next(name for name in ("seconds", "correct", "n_rows") if name in line)),
        lambda line: line.update(surprise=1),
        lambda line: line.update({"scores" if "scores" in line else "score": [float("nan")]}),
        lambda line: line.update({"halvings" if "n_rows" not in line else "n_rows": -1}),
        lambda line: line.update(key=7),
        lambda line: line.update(tokens=10**400),
    ],
)
def test_an_unsound_line_of_a_journal_without_checksums_is_refused(kept, name, change):
    header, first, *others = (kept / name).read_text().splitlines()
    line = json.loads(first)
    change(line)
    (kept / name).write_text("\n".join([header, json.dumps(line), *others, ""]))
    assert_refused(name, kept / name)


@pytest.mark.parametrize("name", CONFIGURATIONS)
@pytest.mark.parametrize("text", ["a: 2001-99-99", "a: b: c", "1: 2", "seed: .nan", "eval: {1: 2}", "? [1]"])
def test_a_configuration_of_something_else_is_refused(kept, name, text):
    (kept / name).write_text(text + "\n")
    assert_refused(name, kept / name)


@pytest.mark.parametrize(
    "change",
    [
        lambda header: header.pop("weights"),
        lambda header: header.update(version=2),
        lambda header: header.update(surprise=1),
        lambda header: header.update(bases=[1.0, float("nan")]),
        lambda header: header.update(bases=[1.0, 10**400]),
        lambda header: header.update(bases=[1.0, -2.0]),
        lambda header: header.update(top_k=3),
        lambda header: header.update(layers=[]),
        lambda header: header.update(head_dim="8"),
    ],
)
def test_an_edited_header_of_routers_is_refused(kept, change):
    path = kept / "routers.safetensors"
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        header = json.loads(file.metadata()["lpes_evo"])
    change(header)
    save_file(load_file(path), path, {"lpes_evo": json.dumps(header)})
    with pytest.raises(LpesError, match="Expected .*routers.safetensors") as raised:
        load_routers(path)
    assert "\n" not in str(raised.value)
    save_file(load_file(path), path, {"lpes_evo": "[" * 100_000})
    with pytest.raises(LpesError, match="nested too deeply"):
        load_routers(path)
