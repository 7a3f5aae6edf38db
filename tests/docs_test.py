"""The pages say what is true: their code runs as written, and the commands, names and files in them exist.

Every Python and every shell block of a page is run. A block of Python whose docstring begins with the name of a file
lies under that name in the folder where the blocks of its page run. An HTML comment right before a block, which no
reader of the page sees, tells how it is tested:

- ``<!-- not run: REASON -->``: the test is listed as skipped, with the reason;
- ``<!-- slow -->``: the block takes minutes, or needs the result of such a block. The slow blocks of a page are one
  test, in their order, and ``make test`` leaves it out.
"""

import importlib
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
ROOT_PAGES = ("README.md", "CONTRIBUTING.md")
PAGES = {
    name: (ROOT / name).read_text(encoding="utf-8")
    for name in (*ROOT_PAGES, *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/**/*.md")))
}
LANGUAGES = {"python": "python", "bash": "shell", "sh": "shell", "shell": "shell"}
FENCE = re.compile(
    r"(?:^<!-- (?P<marker>[^\n]*?) -->\n+)?^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$",
    re.DOTALL | re.MULTILINE,
)
PROGRAMS = ("lpes-evo", "lpes-lm-eval")


@dataclass(frozen=True)
class Block:
    """A block of code on a page."""

    page: str
    number: int
    language: str
    text: str
    marker: str


def blocks_of(page: str) -> list[Block]:
    found = []
    for match in FENCE.finditer(PAGES[page]):
        language = LANGUAGES.get(match["language"])
        if language is not None:
            found.append(Block(page, len(found), language, match["text"], match["marker"] or ""))
    return found


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def cases_of(page: str):
    """Return the tests of a page: one for each block, and one for all slow blocks together."""
    blocks = blocks_of(page)
    slow = [block for block in blocks if block.marker == "slow"]
    for block in blocks:
        kind, _, reason = block.marker.partition(": ")
        name = f"{page}-{block.number}"
        if kind == "not run":
            yield pytest.param([block], marks=pytest.mark.skip(reason=f"{page}: {reason}"), id=name)
        elif block not in slow:
            yield pytest.param([block], id=name)
    if slow:
        yield pytest.param(slow, marks=pytest.mark.slow, id=f"{page}-slow")


def file_name(block: Block) -> str | None:
    """Return the name of the file that a block is."""
    named = re.match(r'"""(\w+\.py): ', block.text)
    return None if named is None else named[1]


@pytest.mark.parametrize("blocks", [case for page in PAGES for case in cases_of(page)])
def test_the_blocks_of_a_page_run_as_written(blocks, tmp_path):
    for block in blocks_of(blocks[0].page):
        if name := file_name(block):
            (tmp_path / name).write_text(block.text, encoding="utf-8")

    for block in blocks:
        shell = ["bash", "-euo", "pipefail", "-c", block.text]
        python = [sys.executable, *([name] if (name := file_name(block)) else ["-c", block.text])]
        result = subprocess.run(
            shell if block.language == "shell" else python,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"},
            timeout=800,
        )
        assert result.returncode == 0, result.stdout + result.stderr
        if block.page == "README.md":
            assert result.stdout.strip()


def test_every_marker_is_known_and_stands_before_a_block():
    for page, text in PAGES.items():
        markers = re.findall(r"^<!-- (.*?) -->$", text, re.MULTILINE)
        assert markers == [block.marker for block in blocks_of(page) if block.marker], page
        for marker in markers:
            assert re.fullmatch(r"not run: \w.+|slow", marker), f"{page}: {marker}"


def test_no_page_has_code_outside_of_the_blocks_that_are_tested():
    written_by_commands = {page for page in PAGES if page.endswith("/results.md")}
    for page in PAGES.keys() - written_by_commands:
        text = PAGES[page]
        languages = {match["language"] for match in FENCE.finditer(text)}
        assert languages <= {*LANGUAGES, "text", "json", "yaml", "csv", "cpp"}, page
        indented = [
            line for line in text.splitlines() if re.match(r" {4}(lpes-evo|python|pip|from|import) ", line)
        ]
        assert not [line for line in indented if "```" not in text], page


def commands_of(block: Block) -> list[list[str]]:
    """Return the calls of our programs in a block, as words."""
    lines = block.text.replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.startswith(PROGRAMS)]


@cache
def help_of(command: str) -> str:
    # A narrow terminal cuts long options short.
    wide = os.environ | {"COLUMNS": "200"}
    shown = subprocess.run([BIN / "lpes-evo", command, "--help"], capture_output=True, text=True, env=wide)
    assert shown.returncode == 0, f"lpes-evo {command}: {shown.stderr}"
    return shown.stdout


def test_every_command_and_option_exists():
    calls = {
        block.page: [words for words in commands_of(block) if words[0] == "lpes-evo"]
        for block in BLOCKS
        if block.language == "shell"
    }
    for page, commands in calls.items():
        for _, command, *arguments in commands:
            for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", " ".join(arguments)):
                assert re.search(rf"{option}\b", help_of(command)), f"{page}: {command} {option}"
    readme = {command for _, command, *_ in calls["README.md"]}
    assert {"estimate", "search", "show", "eval"} <= readme


def anchors_of(page: str) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", PAGES[page]), re.MULTILINE)
    kept = (re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)) for heading in headings)
    return {heading.strip().lower().replace(" ", "-") for heading in kept}


def test_every_link_leads_to_a_file_and_to_a_heading_in_it():
    for page, text in PAGES.items():
        for target, anchor in re.findall(r"\]\((?![a-z]+:)([^)#\s]*)#?([^)\s]*)\)", FENCE.sub("", text)):
            file = ((ROOT / page).parent / target).resolve() if target else ROOT / page
            assert file.exists(), f"{page}: {target}"
            name = str(file.relative_to(ROOT))
            if anchor and name in PAGES:
                assert anchor in anchors_of(name), f"{page}: {target}#{anchor}"


def test_every_file_that_a_page_names_exists():
    folders = "lpes_evo|operators|problems|tests|benchmarks|docs|notebooks"
    for page, text in PAGES.items():
        for name in re.findall(rf"`((?:{folders})/[\w./-]+)`", text):
            assert (ROOT / name).exists(), f"{page}: {name}"


def resolve(name: str):
    """Return what a dotted name leads to."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            found = getattr(found, part)
        return found
    raise AttributeError(name)


def test_every_name_of_the_package_on_a_page_exists():
    for page, text in PAGES.items():
        for name in sorted(set(re.findall(r"\b(lpes_evo(?:\.\w+)+)", text))):
            if name.endswith((".py", ".pyi", ".md")):
                continue
            try:
                resolve(name)
            except AttributeError:
                pytest.fail(f"{page}: {name}")


def test_every_public_package_has_a_page_in_the_reference():
    folders = {"lpes_evo": "lpes_evo", "operators": "lpes_evo.operators", "problems": "lpes_evo.problems"}
    packages = set()
    for folder, package in folders.items():
        for stub in (ROOT / folder).glob("**/__init__.pyi"):
            packages.add(".".join((package, *stub.parent.relative_to(ROOT / folder).parts)))
    packages -= {"lpes_evo.cli"}  # a program, whose reference is its --help
    named = {
        re.search(r"^::: (\S+)", PAGES[page], re.MULTILINE)[1] for page in PAGES if "\n::: " in PAGES[page]
    }
    assert packages <= named


def test_the_navigation_names_every_page():
    def names(entry):
        if isinstance(entry, str):
            return {entry}
        return set().union(*map(names, entry.values() if isinstance(entry, dict) else entry))

    navigation = names(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"])
    pages = {page.removeprefix("docs/") for page in PAGES if page.startswith("docs/")}
    tables = {page for page in pages if page.startswith("results/") and page.endswith("/results.md")}
    assert pages - tables == navigation - {"index.md", "contributing.md", "changelog.md"}


def test_the_order_of_imports_on_the_page_is_that_of_the_linter():
    layers = re.search(
        r"^layers = \[(.*?)^\]", (ROOT / "pyproject.toml").read_text(), re.DOTALL | re.MULTILINE
    )[1]
    shown = re.search(
        r"## Imports go down only.*?```text\n(.*?)```", PAGES["docs/architecture.md"], re.DOTALL
    )[1]
    assert shown.splitlines() == re.findall(r'"(.*?)"', layers)


def test_the_readme_is_short_and_names_the_test_command():
    readme = PAGES["README.md"]
    assert len(readme.splitlines()) <= 120
    assert re.search(r"^make test\b", readme, re.MULTILINE)


def test_the_number_of_supported_families_is_that_of_the_table():
    n_supported = re.search(r"^(\d+) supported", PAGES["docs/models.md"], re.MULTILINE)[1]
    assert f"{n_supported} families" in PAGES["README.md"]
