"""What a command does when a standard stream is closed, full, unread, or cannot spell a letter."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(sys.executable).with_name("lpes-evo")
RUN = Path(__file__).parents[2] / "docs" / "results" / "smollm2-needle"


def shell(command, **environment):
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"PROGRAM": str(PROGRAM), "PYTHON": sys.executable, "RUN": str(RUN)} | environment,
    )


def test_the_package_is_a_program_too():
    result = shell('"$PYTHON" -m lpes_evo --version')
    assert result.returncode == 0
    assert result.stdout == shell('"$PROGRAM" --version').stdout


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_a_closed_stream_is_no_fault(closed):
    result = shell(f'"$PROGRAM" show "$RUN" {closed}')
    assert result.returncode == 0
    assert result.stderr == ""


@pytest.mark.parametrize("command", ["--version", 'show "$RUN"', "--help"])
def test_a_full_output_of_a_command_that_prints_is_one_line_and_a_failure(command):
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    result = shell(f'"$PROGRAM" {command} > /dev/full')
    assert result.returncode == 1
    assert result.stderr.startswith(
        "Error: Expected to print the result, but the standard output failed: No space"
    )
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["--help", 'show "$RUN"', "search --help"])
def test_a_reader_that_has_seen_enough_is_no_fault(command):
    result = shell(f'"$PROGRAM" {command} | head -1')
    assert result.returncode == 0
    assert result.stderr == ""


@pytest.mark.parametrize(
    "environment",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
)
def test_a_letter_that_the_output_cannot_spell_becomes_an_escape(tmp_path, environment):
    folder = tmp_path / "L\u00e4ufe"
    shutil.copytree(RUN, folder)
    result = shell(f'"$PROGRAM" show "{folder}"', **environment)
    assert result.returncode == 0, result.stderr
    assert result.stdout.isascii()
    assert "ufe/curve.png" in result.stdout
    missing = shell(f'"$PROGRAM" show "{folder}/none"', **environment)
    assert missing.returncode == 2
    assert missing.stderr.startswith("Error: Expected a run folder")
    assert "Traceback" not in missing.stderr
