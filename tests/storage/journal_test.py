import json
import os
import resource
import subprocess
import sys
import textwrap

import pytest

from lpes_evo.errors import JournalError, StorageError
from lpes_evo.storage import Journal, read_journal

HEADER = {"format": "test", "config": "abc"}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal.jsonl"


def fill(path, n_records):
    with Journal(path, HEADER) as journal:
        for number in range(n_records):
            journal.append(f"k{number}", {"value": number / 3})


def test_records_round_trip_exactly_and_in_order(path):
    fill(path, 5)
    with Journal(path, HEADER) as journal:
        assert [record["key"] for record in journal] == ["k0", "k1", "k2", "k3", "k4"]
        assert journal.get("k4")["value"] == 4 / 3
        assert journal.get("other") is None


def test_a_kill_at_any_byte_loses_only_the_line_in_hand(path):
    fill(path, 3)
    data = path.read_bytes()
    for size in range(len(data) + 1):
        path.write_bytes(data[:size])
        with Journal(path, HEADER) as journal:
            finished = data[:size].count(b"\n")
            assert len(journal) == max(0, finished - 1)
            journal.append("new", {"value": 1})
        with Journal(path, HEADER) as journal:
            assert journal.get("new") == {"key": "new", "value": 1}


def test_another_header_is_refused_and_nothing_is_changed(path):
    fill(path, 2)
    before = path.read_bytes()
    with pytest.raises(JournalError, match=r"its config is 'abc' and this run's is 'xyz'.*Resume with"):
        Journal(path, HEADER | {"config": "xyz"})
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("found", "expected", "message"),
    [
        (
            {"data": {"a": "0" * 64, "b": "1" * 64}, "weights": "2" * 64, "device": "cpu"},
            {"data": {"a": "3" * 64, "c": "1" * 64}, "weights": "4" * 64, "device": "cuda"},
            "its data of a and b and c is another, its device is 'cpu' and this run's is 'cuda', its weights is an",
        ),
        (
            {"arms": {str(n): n for n in range(50)}},
            {"arms": {}},
            "its arms of 0 and 1 and 10 and .* and 44 more is",
        ),
        (
            {"format": "other", "data": {}},
            {"format": "mine"},
            "its format is 'other' and this run's is 'mine'. Res",
        ),
        ({"search_data": "5" * 64}, {}, "its search data is another. "),
    ],
)
def test_a_journal_of_another_run_says_what_differs_and_shows_no_hash(tmp_path, found, expected, message):
    Journal(tmp_path / "journal", found).close()
    with pytest.raises(JournalError, match=f"to belong to this run, but {message}") as raised:
        Journal(tmp_path / "journal", expected)
    assert "0000" not in str(raised.value)
    assert len(str(raised.value)) < 500


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[" * 100_000, "line 2 of .* to be a JSON object, but got b'\\[\\["),
        ("not json", "line 2 of .* to be a JSON object, but got b'not json'"),
        ("[1, 2]", "line 2 of .* to be a JSON object, but got list"),
        ('{"value": 1}', "line 2 of .* to have a key of its own, but got None"),
        ("", "line 2 of .* to be a JSON object, but got b''"),
        ('{"key": "k1"}', "line 4 of .* to have a key of its own, but got 'k1'"),
    ],
)
def test_an_edited_line_is_named(path, line, message):
    fill(path, 3)
    lines = path.read_text().splitlines()
    lines.insert(1, line)
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(JournalError, match=message):
        Journal(path, HEADER)


def test_a_key_is_written_once(path):
    with Journal(path, HEADER) as journal:
        journal.append("k", {})
        with pytest.raises(JournalError, match="Expected a new key, but 'k' is already in"):
            journal.append("k", {})


def test_numbers_that_are_not_finite_are_refused(path):
    with Journal(path, HEADER) as journal:
        with pytest.raises(ValueError, match="Out of range float"):
            journal.append("k", {"value": float("nan")})
        journal.append("k", {"value": 1.0})


def test_a_folder_that_does_not_exist_gives_one_clear_line(tmp_path):
    with pytest.raises(StorageError, match="Expected to open .* but the system said: No such file"):
        Journal(tmp_path / "missing" / "journal.jsonl", HEADER)


def changed(path, change):
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    change(lines)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: lines[2].update(value=0.25), "line 3 of .* to have the checksum .*, but it says"),
        (lambda lines: lines[2].update(key="k7"), "line 3 of .* to have the checksum"),
        (lambda lines: lines[2].update(more=1), "line 3 of .* to have the checksum"),
        (lambda lines: lines[2].pop("value"), "line 3 of .* to have the checksum"),
        (lambda lines: lines[2].pop("check"), "line 3 of .* to have the checksum .*, but it has none"),
        (lambda lines: lines[2].update(check=7), "line 3 of .* to have the checksum .*, but it says 7"),
        (lambda lines: lines[0].update(config="abd"), "line 1 of .* to have the checksum"),
        (lambda lines: lines[0].update(version=1), "line 1 of .* to have the checksum"),
        (lambda lines: lines[0].update(version=3), "version 1 to 2, but got 3"),
        (lambda lines: lines[0].update(version=True), "version 1 to 2, but got True"),
    ],
)
def test_a_line_that_is_not_what_was_written_is_refused(path, change, message):
    fill(path, 3)
    changed(path, change)
    before = path.read_bytes()
    for read in (lambda: Journal(path, HEADER), lambda: read_journal(path)):
        with pytest.raises(JournalError, match=message):
            read()
    assert path.read_bytes() == before


def test_every_flipped_bit_is_found_or_changes_nothing(path):
    fill(path, 2)
    data = path.read_bytes()
    with Journal(path, HEADER) as journal:
        expected = list(journal)
    for place in range(len(data)):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        try:
            found = read_journal(path)
        except JournalError:
            continue
        # A lost newline at the end tears the last line off, whose work is done again.
        assert list(found.records.values()) == expected[: len(found.records)]
        assert found.header in (HEADER, {})


def test_a_line_of_another_journal_is_refused_and_a_lost_line_is_work_to_do_again(path):
    fill(path, 3)
    other = path.with_name("other.jsonl")
    with Journal(other, HEADER | {"config": "xyz"}) as journal:
        journal.append("k9", {"value": 1.0})
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines, other.read_bytes().splitlines(keepends=True)[1]]))
    with pytest.raises(JournalError, match="line 5 of .* to have the checksum"):
        Journal(path, HEADER)
    path.write_bytes(b"".join([lines[0], lines[3], lines[1]]))
    with Journal(path, HEADER) as journal:
        assert [record["key"] for record in journal] == ["k2", "k0"]


def test_a_journal_of_version_1_goes_on_and_what_is_appended_has_checksums(path):
    lines = [{"format": "test", "version": 1, "config": "abc"}, {"key": "k0", "value": 0.5}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    before = path.read_text()
    with Journal(path, HEADER) as journal:
        assert journal.get("k0") == {"key": "k0", "value": 0.5}
        journal.append("k1", {"value": 1.5})
    assert path.read_text().startswith(before)
    with Journal(path, HEADER) as journal:
        assert journal.get("k1") == {"key": "k1", "value": 1.5}
    changed(path, lambda lines: lines[2].update(value=2.5))
    with pytest.raises(JournalError, match="line 3 of .* to have the checksum"):
        Journal(path, HEADER)


def test_a_torn_last_line_is_told_once(path):
    fill(path, 3)
    path.write_bytes(path.read_bytes()[:-20])
    told = []
    for _ in range(2):
        with Journal(path, HEADER, on_event=told.append) as journal:
            assert len(journal) == 2
    assert len(told) == 1
    assert "journal.jsonl ended in the middle of a line" in told[0]


def test_numbers_that_no_float_holds_are_named(path):
    for number, shown in (("1" + "0" * 400, "10+"), ("NaN", "nan"), ("1e999", "inf"), ("-Infinity", "-inf")):
        path.write_text(f'{{"format": "test", "config": "abc"}}\n{{"key": "k", "value": [1, {number}]}}\n')
        with pytest.raises(JournalError, match=rf"number of line 2 of .* but got {shown}.* at value\.1"):
            Journal(path, HEADER)


def test_a_file_size_limit_keeps_every_finished_record(path):
    script = textwrap.dedent(
        """
        import resource, signal, sys
        from pathlib import Path
        from lpes_evo.errors import StorageError
        from lpes_evo.storage import Journal

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        journal = Journal(Path(sys.argv[1]), {"format": "test"})
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        for number in range(1000):
            try:
                journal.append(f"k{number}", {"value": "x" * 100})
            except StorageError as error:
                print(number, error)
                break
        """
    )
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    result = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, cwd=path.parent, check=True
    )
    n_written = int(result.stdout.split()[0])
    assert "Finished work is safe" in result.stdout
    with Journal(path, {"format": "test"}) as journal:
        assert len(journal) == n_written


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_an_evaluation_that_finishes_on_a_full_disk_is_saved(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("this machine does not allow a tmpfs mount")
    try:
        with Journal(disk / "journal.jsonl", HEADER) as journal:
            with pytest.raises(OSError, match="No space left"):
                fill_up(disk / "filler")
            number = -1
            with pytest.raises(StorageError, match=r"No space left on device\. Finished work is safe"):  # noqa: PT012
                while True:
                    number += 1
                    journal.append(f"k{number}", {"value": "x" * 500})
        (disk / "filler").unlink()
        with Journal(disk / "journal.jsonl", HEADER) as journal:
            # The record that met the full disk is there too.
            assert len(journal) == number + 1
            assert json.loads(path_last_line(disk / "journal.jsonl"))["key"] == f"k{number}"
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def fill_up(path):
    with open(path, "wb", buffering=0) as file:
        while True:
            file.write(b"\0" * 4096)


def path_last_line(path):
    return path.read_text().splitlines()[-1]
