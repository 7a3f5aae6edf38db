"""Runs on several tasks with guards, from the command line to the report."""

import json
import shutil

import pytest

from commands import run_here
from lpes_evo.config import load_config, settings_hash
from lpes_evo.errors import JournalError, TaskError
from lpes_evo.page import write_page
from lpes_evo.runs import RunFolder, draw_examples, load_report, memory_need, run_search
from lpes_evo.scales import load_scales

TASKS = "recall:48,recall:40*2"
SMALL = {
    "model.name": "tiny",
    "task.name": TASKS,
    "guards": ["recall:32:0.5"],
    "examples.n_per_position": 2,
    "search.population_size": 4,
    "search.n_constants": 2,
    "search.offspring_size": 2,
    "search.generations": 1,
    "report.n_per_position": 2,
    "report.positions": [0.0, 1.0],
    "report.n_shuffles": 1,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = RunFolder(tmp_path_factory.mktemp("runs") / "mixed")
    folder.create(load_config(overrides=SMALL))
    run_search(folder.load_config(), folder, devices="in-process")
    return folder


def test_the_report_has_a_row_for_each_task_and_each_guard(run):
    summary = load_report(run.report)
    rows = summary["tasks"]
    assert list(rows) == ["recall:48", "recall:40", "recall:32"]
    assert [row.get("weight") for row in rows.values()] == [1.0, 2.0, None]
    assert [row.get("tolerance") for row in rows.values()] == [None, None, 0.5]
    assert [row["n"] for row in rows.values()] == [4, 4, 4]
    # The table by position is that of the searched tasks.
    assert summary["methods"]["lpes"]["n"] == 8
    for row in rows.values():
        assert set(row["methods"]) == {"untouched", "constant", "lpes"}
        found, untouched = (row["methods"][name]["log_probability"] for name in ("lpes", "untouched"))
        change = row["differences"]["untouched"]["log_probability"]
        assert change["difference"] == pytest.approx(found - untouched)
        assert change["low"] <= change["difference"] <= change["high"]


def test_the_scales_say_what_was_guarded_and_how_much_they_changed_it(run):
    (guard,) = load_scales(run.scales).guards
    lines = [json.loads(line) for line in run.journal.read_text().splitlines()[1:]]
    fitness = list(load_scales(run.scales).fitness)
    best = next(line for line in lines if line.get("values") == fitness)
    assert (guard.name, guard.tolerance) == ("recall:32", 0.5)
    assert guard.change == pytest.approx(sum(best["scores"][12:]) / 6)
    assert guard.change >= -0.5
    shown = run_here("show", str(run.path), cwd=run.path.parent).stdout
    assert "recall:32 (guard)" in shown
    assert "recall:40 (weight 2)" in shown


def test_history_has_columns_of_guards_and_the_journal_begins_with_the_untouched_model(run):
    assert run.history.read_text().splitlines()[0].endswith("spread,violating,violation")
    first = json.loads(run.journal.read_text().splitlines()[1])
    assert first["key"] == "untouched"
    assert len(first["scores"]) == 18


@pytest.mark.parametrize("n_kept", [1, 2, 4])
def test_a_run_with_guards_that_was_killed_ends_with_the_same_bytes(run, tmp_path, n_kept):
    folder = RunFolder(tmp_path / "killed")
    folder.path.mkdir()
    shutil.copy(run.path / "config.yaml", folder.path)
    lines = run.journal.read_text().splitlines(keepends=True)
    folder.journal.write_text("".join(lines[:n_kept]))
    run_search(folder.load_config(), folder, devices="in-process")
    assert folder.scales.read_bytes() == run.scales.read_bytes()
    assert folder.history.read_bytes() == run.history.read_bytes()


def test_a_violation_that_was_edited_is_refused(run, tmp_path):
    shutil.copytree(run.path, tmp_path / "edited")
    folder = RunFolder(tmp_path / "edited")
    # Written without checksums, as another program would.
    lines = [json.loads(line) for line in folder.journal.read_text().splitlines()]
    number = next(row for row, line in enumerate(lines) if line.get("status") == "ok" and row > 1)
    lines[number]["violation"] = 7.0
    for line in lines:
        line.pop("check", None)
    folder.journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(JournalError):
        run_search(folder.load_config(), folder, devices="in-process")


def test_a_configuration_without_guards_has_the_hash_that_it_had_before_there_were_any():
    config = load_config(preset="demo")
    assert settings_hash(config) == settings_hash(config.model_copy(update={"guards": ()}))
    assert settings_hash(config) != settings_hash(config.model_copy(update={"guards": ("kv",)}))


def test_options_beside_several_tasks_are_refused():
    config = load_config(overrides=SMALL | {"task.options": {"n_pairs": 8}})
    with pytest.raises(TaskError, match=r"no task.options beside several tasks.*but got n_pairs"):
        draw_examples(config)


def test_a_mistake_in_a_guard_is_one_line_before_any_model_is_loaded(tmp_path):
    result = run_here("search", "--task", "recall", "--guard", "recal:8", "--output", "run", cwd=tmp_path)
    assert result.returncode == 2
    assert "Did you mean recall?" in result.stderr


def test_the_page_has_the_table_of_tasks_and_guards(run, tmp_path):
    write_page(run.path, tmp_path / "page.html", drift=None)
    assert "recall:32 (guard)" in (tmp_path / "page.html").read_text()


def test_the_memory_of_a_search_on_several_tasks_is_told_from_the_config_alone():
    alone, several = (
        memory_need(load_config(overrides=SMALL | {"task.name": name, "guards": guards}))
        for name, guards in (("recall:48", []), (TASKS, ["recall:32:0.5"]))
    )
    assert several.lines(2**34, 1) == alone.lines(2**34, 1)


def test_examples_of_several_tasks_have_ids_of_their_own():
    examples, _ = draw_examples(load_config(overrides=SMALL))
    assert len({example.id for example in examples}) == len(examples) == 18
