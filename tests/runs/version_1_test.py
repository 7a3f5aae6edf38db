"""Folders of version 1, from before journal lines had checksums, still load, show and resume."""

import csv
import io
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from lpes_evo.comparison import ComparisonFolder, run_comparison
from lpes_evo.evals import EvalFolder, load_results, run_evaluation
from lpes_evo.page import write_page
from lpes_evo.problems import ModelProblem
from lpes_evo.runs import RunFolder, load_report, run_search, show_run
from lpes_evo.scales import load_scales

KEPT = Path(__file__).parents[1] / "version_1"


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Copies of the folders, with the one that they were made in as the current folder."""
    shutil.copytree(KEPT, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rows_of(path):
    return list(csv.DictReader(io.StringIO(path.read_text())))


def assert_equal_history(found, expected):
    for ours, theirs in zip(rows_of(found), rows_of(expected), strict=True):
        assert {name: float(value) for name, value in ours.items()} == pytest.approx(
            {name: float(value) for name, value in theirs.items()}, abs=1e-3
        )


def assert_equal_scales(found, expected):
    ours, theirs = load_scales(found), load_scales(expected)
    assert ours.control_points == theirs.control_points
    assert ours.scales == pytest.approx(theirs.scales)
    assert ours.fitness == pytest.approx(theirs.fitness, abs=1e-3)


def test_a_run_is_shown_and_written_as_a_page(folders):
    console = Console(file=io.StringIO(), width=200)
    show_run(folders / "search", console)
    assert "0.875" in console.file.getvalue()
    page = write_page(folders / "search", folders / "page.html", drift=folders / "drift")
    assert page.missing == ()
    assert "Of 8 held-out examples" in page.path.read_text()


def test_a_finished_run_is_resumed_without_an_evaluation(folders, monkeypatch):
    monkeypatch.setattr(ModelProblem, "_evaluate", None)
    folder = RunFolder(folders / "search")
    folder.scales.unlink()
    folder.history.unlink()
    folder.report.unlink()
    run_search(folder.load_config(), folder, devices="in-process")
    assert_equal_scales(folder.scales, KEPT / "search" / "scales.json")
    assert_equal_history(folder.history, KEPT / "search" / "history.csv")
    found, expected = load_report(folder.report), load_report(KEPT / "search" / "report.json")
    assert found["differences"] == expected["differences"]


@pytest.mark.parametrize("n_left", [0, 5, 12, 15, 17])
def test_a_run_that_was_killed_goes_on_to_the_same_result(folders, n_left):
    folder = RunFolder(folders / "search")
    lines = folder.journal.read_bytes().splitlines(keepends=True)
    folder.journal.write_bytes(b"".join(lines[: 1 + n_left]) + lines[1 + n_left][:50])
    for file in (folder.scales, folder.history, folder.report, folder.report_journal):
        file.unlink()
    run_search(folder.load_config(), folder, devices="in-process")
    assert_equal_scales(folder.scales, KEPT / "search" / "scales.json")
    assert_equal_history(folder.history, KEPT / "search" / "history.csv")
    # Every line is there again, and the file is still one of version 1.
    assert len(folder.journal.read_bytes().splitlines()) == len(lines)
    run_search(folder.load_config(), folder, devices="in-process")


@pytest.mark.parametrize("n_left", [0, 3, 8])
def test_an_evaluation_is_resumed(folders, n_left):
    folder = EvalFolder(folders / "eval")
    expected = load_results(folder.path)
    lines = folder.answers.read_bytes().splitlines(keepends=True)
    folder.answers.write_bytes(b"".join(lines[: 1 + n_left]))
    folder.results.unlink()
    found = run_evaluation(folder.load_config(), folder, devices="in-process")
    assert found.tasks == expected.tasks
    assert load_results(folder.path).tasks == expected.tasks
    assert len(folder.answers.read_bytes().splitlines()) == len(lines)


def test_a_comparison_is_resumed(folders):
    folder = ComparisonFolder(folders / "comparison")
    path = folder.journal("target", "random", 1)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-2]))
    results = run_comparison(folder.load_config(), folder)
    assert [standing["name"] for standing in results["arenas"]["target"]["standings"]] == ["ga", "random"]
    assert len(path.read_bytes().splitlines()) == len(lines)


def test_routers_are_read():
    from lpes_evo.methods.moice import load_routers
    from lpes_evo.models import load_model

    facts = load_routers(KEPT / "routers.safetensors", load_model("tiny").model).facts
    assert facts.bases == (1.0, 2.0)
    assert facts.trained == {"steps": 0}
