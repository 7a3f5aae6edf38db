"""Locks say who holds them, and why there is none."""

import errno
import fcntl
import json
import os
import socket
import subprocess
import sys

import pytest

from lpes_evo.errors import JournalError, StorageError
from lpes_evo.storage import Journal, WorkFolder

HOLD = """
import sys
from pathlib import Path
from lpes_evo.storage import WorkFolder
from lpes_evo.storage import Journal
with WorkFolder(Path(sys.argv[1])).locked(), Journal(Path(sys.argv[1]) / "j.jsonl", {"format": "test"}):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_the_message_names_process_host_and_start_and_how_to_release_the_lock(tmp_path, holder):
    with (
        pytest.raises(JournalError, match="another process works in it") as raised,
        WorkFolder(tmp_path).locked(),
    ):
        pass
    message = str(raised.value)
    assert f"process {holder.pid} on host {socket.gethostname()}, since 2" in message
    assert f"delete {tmp_path / '.lock'} and run again" in message
    holder.kill()
    holder.wait()
    with WorkFolder(tmp_path).locked():
        assert json.loads((tmp_path / ".lock").read_text())["process"] == os.getpid()
    assert (tmp_path / ".lock").read_text() == ""


def test_a_lock_that_a_lost_node_left_is_released_as_the_message_says(tmp_path, holder):
    (tmp_path / ".lock").unlink()
    with WorkFolder(tmp_path).locked():
        pass


def test_a_journal_that_another_process_has_open_is_refused(tmp_path, holder):
    path = tmp_path / "j.jsonl"
    before = path.read_bytes()
    with pytest.raises(JournalError, match=r"to have .*j\.jsonl alone, but it is open already"):
        Journal(path, {"format": "test"})
    assert path.read_bytes() == before


def test_a_journal_that_this_process_has_open_is_refused(tmp_path):
    path = tmp_path / "j.jsonl"
    with Journal(path, {}) as journal:
        with pytest.raises(JournalError, match="it is open already, in this process or another"):
            Journal(path, {})
        journal.append("k", {})
    with Journal(path, {}) as journal:
        assert len(journal) == 1


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EIO, errno.ENOTSUP, errno.ENOSYS])
def test_a_file_system_without_locks_is_named_as_the_cause(tmp_path, monkeypatch, number):
    def flock(descriptor, operation):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    with (
        pytest.raises(StorageError, match="its file system gives no lock: ") as raised,
        WorkFolder(tmp_path).locked(),
    ):
        pass
    assert os.strerror(number) in str(raised.value)
    assert "Choose a folder you may write to" not in str(raised.value)
    with pytest.raises(StorageError, match="gives no lock"):
        Journal(tmp_path / "j.jsonl", {})


def test_a_folder_that_is_not_there_is_no_matter_of_locks(tmp_path):
    with (
        pytest.raises(StorageError, match="Expected to write in .*No such file"),
        WorkFolder(tmp_path / "no").locked(),
    ):
        pass


def test_temporary_files_of_killed_writes_are_removed_and_no_others(tmp_path):
    ours = [".scales.json.abcd_123", ".config.yaml.00000000", ".positions-a.png.zzzzzzzz"]
    others = [
        ".scales.json",
        ".notes.abcdefgh",
        "scales.json.abcd_123",
        ".scales.json.ABCD1234",
        ".journal.jsonl.spare",
    ]
    for name in (*ours, *others):
        (tmp_path / name).write_text("{")
    (tmp_path / ".a.json.abcdefgh.d").mkdir()
    with WorkFolder(tmp_path).locked():
        left = {file.name for file in tmp_path.iterdir()}
    assert left == {*others, ".lock", ".a.json.abcdefgh.d"}
