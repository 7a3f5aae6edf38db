"""The README holds what it says: its Python runs as written, its commands and settings exist."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text()
BLOCKS = [
    block
    for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    if "not run by the tests" not in block
]


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_the_python_of_the_readme_runs_as_written(number, tmp_path):
    result = subprocess.run(
        [sys.executable, "-c", BLOCKS[number]], capture_output=True, text=True, cwd=tmp_path, timeout=300
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()


def test_every_command_and_option_of_the_readme_exists():
    commands = re.findall(r"^lpes-evo (\w+)(.*)$", README, re.MULTILINE)
    assert {"search", "show", "estimate"} <= {command for command, _ in commands}
    program = Path(sys.executable).with_name("lpes-evo")
    for command, arguments in commands:
        shown = subprocess.run(
            [program, command, "--help"], capture_output=True, text=True, check=True
        ).stdout
        for option in re.findall(r"--[a-z]+", arguments):
            assert option in shown


def test_every_file_that_the_readme_links_exists():
    for link in re.findall(r"\]\((?!http)([^)#]+)", README):
        assert (Path(__file__).parent.parent / link).exists(), link


def test_the_number_of_supported_families_is_that_of_the_table():
    table = (Path(__file__).parent.parent / "docs" / "models.md").read_text()
    n_supported = re.search(r"^(\d+) supported", table, re.MULTILINE).group(1)
    assert f"lists {n_supported} supported families" in README
