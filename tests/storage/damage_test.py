"""A run whose files were damaged is refused by every command that reads it."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lpes_evo.cli import app
from lpes_evo.config import load_config
from lpes_evo.errors import JournalError, LpesError
from lpes_evo.evals import EvalFolder
from lpes_evo.page import write_page
from lpes_evo.runs import RunFolder, run_search
from samples import SMALL_RUN

KEPT = Path(__file__).parents[1] / "version_1"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run with raced evaluations."""
    overrides = SMALL_RUN | {
        "examples.n_per_position": 6,
        "search.population_size": 6,
        "search.offspring_size": 4,
        "search.generations": 1,
        "search.race_level": 0.2,
        "report.n_shuffles": 0,
    }
    config, folder = (
        load_config(preset="demo", overrides=overrides),
        RunFolder(tmp_path_factory.mktemp("runs") / "run"),
    )
    folder.create(config)
    run_search(config, folder, devices="in-process")
    return folder.path


@pytest.fixture
def run(finished, tmp_path):
    return RunFolder(shutil.copytree(finished, tmp_path / "run"))


def resumed(folder):
    return run_search(folder.load_config(), folder, devices="in-process")


def test_a_flipped_digit_in_the_scores_of_a_raced_line_is_refused(run):
    lines = run.journal.read_text().splitlines(keepends=True)
    number = next(number for number, line in enumerate(lines) if '"raced"' in line)
    place = re.search(r'"scores": \[-?\d', lines[number]).end() - 1
    digit = "1" if lines[number][place] != "1" else "2"
    lines[number] = lines[number][:place] + digit + lines[number][place + 1 :]
    run.journal.write_text("".join(lines))
    with pytest.raises(JournalError, match=rf"line {number + 1} of .*journal\.jsonl to have the checksum"):
        resumed(run)


def test_answers_that_were_set_to_wrong_are_refused(run):
    run.report.unlink()
    text = run.report_journal.read_text()
    assert '"correct": [1' in text
    run.report_journal.write_text(text.replace('"correct": [1', '"correct": [0', 1))
    with pytest.raises(JournalError, match=r"line \d of .*report\.jsonl to have the checksum"):
        resumed(run)


def test_a_score_of_an_evaluation_that_was_edited_is_refused(tmp_path):
    folder = EvalFolder(shutil.copytree(KEPT / "eval", tmp_path / "eval"))
    header, first, *_ = folder.answers.read_text().splitlines()
    folder.answers.unlink()
    from lpes_evo.storage import Journal, read_journal

    with Journal(folder.answers, json.loads(header)) as journal:
        record = json.loads(first)
        journal.append(record.pop("key"), record)
    folder.answers.write_text(folder.answers.read_text().replace('"score": [1.0]', '"score": [0.0]'))
    with pytest.raises(JournalError, match="to have the checksum"):
        read_journal(folder.answers)


@pytest.mark.parametrize(
    "command",
    [
        ["report", "RUN", "--no-drift"],
        ["show", "RUN"],
        ["convergence", "RUN", "--output", "pictures"],
        ["search", "--resume", "RUN"],
        ["search", "--config", "RUN/config.yaml", "--output", "again"],
        ["drift", "tiny", "--scales", "RUN", "--output", "drift"],
        ["eval", "tiny", "--tasks", "recall:16", "--limit", "1", "--scales", "RUN", "--devices", "in-process",
         "--output", "eval"],
    ],
)  # fmt: skip
@pytest.mark.parametrize("version", [1, 2])
def test_a_truncated_configuration_is_refused_by_every_command(command, version, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if version == 1:
        shutil.rmtree(run.path)
        shutil.copytree(KEPT / "search", run.path)
    data = run.config.read_bytes()
    # The settings of the search are gone, and what is left is sound.
    run.config.write_bytes(data[: data.index(b"search:")])
    arguments = [part.replace("RUN", str(run.path)) for part in command]
    error = CliRunner().invoke(app, arguments).exception
    assert isinstance(error, LpesError)
    assert re.search(r"config\.yaml to belong to this run, but its config is not the one", str(error))
    assert "\n" not in str(error)


def test_a_copied_configuration_can_be_changed_for_a_run_of_its_own(run, tmp_path):
    copy = tmp_path / "config.yaml"
    copy.write_text(run.config.read_text().replace("generations: 1", "generations: 2"))
    assert load_config(file=copy).search.generations == 2


def test_a_truncated_configuration_of_an_evaluation_is_refused(tmp_path):
    folder = EvalFolder(shutil.copytree(KEPT / "eval", tmp_path / "eval"))
    text = folder.config.read_text()
    folder.config.write_text(text[: text.index("  limit: 2")])
    with pytest.raises(JournalError, match=r"config is not the one that answers\.jsonl was begun with"):
        folder.load_config()
    folder.config.write_text(text.replace("seed: 0", "seed: 1"))
    result = CliRunner().invoke(app, ["eval", "--resume", str(folder.path)])
    assert "to belong to this evaluation" in str(result.exception)


def test_a_search_that_was_killed_says_once_that_its_last_line_was_torn(run):
    heard = []

    from lpes_evo.reporting import Reporter

    class Listener(Reporter):
        def stage(self, text):
            heard.append(text)

    run.journal.write_bytes(run.journal.read_bytes()[:-30])
    (run.path / ".scales.json.abcd1234").write_text("{")
    run_search(run.load_config(), run, devices="in-process", reporter=Listener())
    run_search(run.load_config(), run, devices="in-process", reporter=Listener())
    assert sum("journal.jsonl ended in the middle of a line" in line for line in heard) == 1
    assert not (run.path / ".scales.json.abcd1234").exists()


def test_the_page_of_a_read_only_run_keeps_its_drift_beside_the_page(run, tmp_path, monkeypatch):
    monkeypatch.setattr("lpes_evo.page._drift._N_DRAWS", 2)
    # Permissions do not hold for a superuser, who may run the tests.
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != run.path and access(path, mode))
    before = {file: file.stat().st_mtime_ns for file in run.path.iterdir()}
    page = write_page(run.path, tmp_path / "elsewhere" / "mine.html")
    assert page.missing == ()
    assert {file: file.stat().st_mtime_ns for file in run.path.iterdir()} == before
    assert (tmp_path / "elsewhere" / "mine-drift" / "drift.json").is_file()
    assert "mine-drift</code> beside this page" in page.path.read_text()
    monkeypatch.setattr("lpes_evo.page._drift.measure_drift_of", None)
    assert write_page(run.path, tmp_path / "elsewhere" / "mine.html").missing == ()


def test_names_from_files_are_no_markup(run):
    summary = json.loads(run.report.read_text())
    del summary["check"]
    summary["methods"]["[/bold]"] = summary["methods"]["untouched"]
    summary["differences"]["[/bold]"] = summary["differences"]["untouched"]
    summary["smaller_batches"] = {"n_candidates": 0, "best": False, "methods": ["[/bold]"]}
    run.report.write_text(json.dumps(summary))
    result = CliRunner().invoke(app, ["show", str(run.path)])
    assert result.exit_code == 0, result.exception
    assert result.output.count("[/bold]") == 3
    assert CliRunner().invoke(app, ["report", str(run.path), "--no-drift"]).exit_code == 0


@pytest.mark.parametrize("change", [('"accuracy": 1.0', '"accuracy": 0.5'), ('"n": 4', '"n": 5')])
def test_a_report_with_other_numbers_is_refused(run, change):
    before, after = change
    text = run.report.read_text()
    assert before in text
    run.report.write_text(text.replace(before, after))
    with pytest.raises(
        JournalError, match=r"report\.json to be as it was written, but .* does not fit its checksum"
    ):
        CliRunner().invoke(app, ["show", str(run.path)], catch_exceptions=False)


def test_results_of_an_evaluation_with_other_numbers_are_refused(tmp_path):
    from lpes_evo.evals import load_results, save_results

    folder = EvalFolder(shutil.copytree(KEPT / "eval", tmp_path / "eval"))
    save_results(folder.results, load_results(folder.results))
    load_results(folder.results)
    text = folder.results.read_text()
    folder.results.write_text(re.sub(r'"score": [0-9.]+', '"score": 0.123', text, count=1))
    with pytest.raises(JournalError, match="does not fit its checksum"):
        load_results(folder.results)


def test_scales_that_are_not_those_of_the_report_are_refused(run):
    values = json.loads(run.scales.read_text())
    values["scales"] = [0.9] * len(values["scales"])
    values["control_points"] = [[x, 0.9] for x, _ in values["control_points"]]
    run.scales.write_text(json.dumps(values))
    with pytest.raises(JournalError, match="to be those measured in"):
        CliRunner().invoke(app, ["show", str(run.path)], catch_exceptions=False)


def test_a_record_that_does_not_fit_the_journal_is_refused(run):
    text = run.config.read_text()
    run.config.write_text(re.sub(r"weights: [0-9a-f]{64}", "weights: " + "a" * 64, text))
    with pytest.raises(JournalError, match="to fit the journal beside it, but weights is another"):
        run.load_record()


def test_an_edited_answer_is_not_scored(tmp_path):
    from lpes_evo.evals import score_predictions
    from samples import rewrite_journal

    folder = EvalFolder(shutil.copytree(KEPT / "eval", tmp_path / "eval"))
    rewrite_journal(folder.answers)
    text = folder.answers.read_text()
    place = text.rindex('"output": "') + len('"output": "')
    folder.answers.write_text(text[:place] + "x" + text[place:])
    with pytest.raises(JournalError, match="to have the checksum"):
        score_predictions("recall:16", folder.answers)
