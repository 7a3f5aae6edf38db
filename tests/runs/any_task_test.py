"""Runs on tasks that place no fact: report, table, picture and page without positions, and data that moved."""

import shutil

import pytest
from rich.console import Console

from lpes_evo.config import load_config
from lpes_evo.errors import TaskError
from lpes_evo.page import write_page
from lpes_evo.runs import RunFolder, load_report, run_search, show_run
from samples import SMALL_RUN

OWN = """
import random

from lpes_evo.problems import Example, Task, make_task


class Placeless(Task):
    name = "placeless"
    metric = "share of words"
    reads_data = True

    def examples(self, request):
        words = (request.folder / "words.txt").read_text().split()
        half = words[: len(words) // 2] if request.split == "search" else words[len(words) // 2 :]
        return [
            Example(f"{word}", f"3 {word} 8 9 ? 3", (word, "9"), source=word, max_new_tokens=2)
            for word in half[: request.limit]
        ]

    def score(self, output, example):
        return (sum(word in output.split() for word in example.answers) / 2,)
"""


@pytest.fixture
def own_task(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "words.txt").write_text(" ".join(map(str, range(20, 44))))
    return f"{tmp_path / 'own.py'}:Placeless"


def begun(tmp_path, task, **overrides):
    settings = SMALL_RUN | {
        "task.name": task,
        "task.data": str(tmp_path / "data"),
        "search.population_size": 6,
        "search.offspring_size": 2,
        "search.generations": 1,
    }
    settings = {key: value for key, value in settings.items() if key != "task.options"}
    config = load_config(overrides=settings | overrides)
    folder = RunFolder(tmp_path / "run")
    folder.create(config)
    return config, folder


@pytest.mark.parametrize("metric", ["log_probability", "score"])
def test_a_run_on_a_task_without_positions_is_reported_and_shown(tmp_path, own_task, metric):
    config, folder = begun(tmp_path, own_task, **{"task.metric": metric})
    run_search(config, folder, devices="in-process")

    report = load_report(folder.report)
    assert all(method["positions"] == [] for method in report["methods"].values())
    assert report.get("measure", "accuracy") == ("share of words" if metric == "score" else "accuracy")
    assert report["methods"]["lpes"]["n"] == 4

    console = Console(width=200, record=True)
    show_run(folder.path, console)
    shown = console.export_text()
    assert ("Share of words" if metric == "score" else "Accuracy") + " on held-out examples" in shown
    assert "all  n=4" in shown
    page = write_page(folder.path, drift=None).path.read_text()
    assert "by position of the fact" not in page
    assert folder.pictures[2].stat().st_size > 1000


def test_several_objectives_are_refused_where_no_fact_is_placed(tmp_path, own_task):
    config, folder = begun(tmp_path, own_task, **{"search.algorithm": "nsga2"})
    with pytest.raises(TaskError, match="the objectives of nsga2, but .* places none"):
        run_search(config, folder, devices="in-process")


@pytest.mark.slow
def test_a_run_resumes_where_its_data_moved(tmp_path, own_task):
    config, folder = begun(tmp_path, own_task)
    run_search(config, folder, devices="in-process")
    before = folder.scales.read_bytes()
    folder.scales.unlink()

    shutil.move(tmp_path / "data", tmp_path / "elsewhere")
    text = folder.config.read_text().replace(str(tmp_path / "data"), str(tmp_path / "elsewhere"))
    folder.config.write_text(text)
    run_search(folder.load_config(), folder, devices="in-process")
    assert folder.scales.read_bytes() == before
