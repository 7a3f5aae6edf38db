"""The command line as a user runs it, on the embedded model."""

import json
import shlex
import shutil
import signal
import time
from importlib import metadata

import pytest

from commands import SMALL, contents, lpes_evo, run_here, start, wait_for_lines

PRODUCTS = {"config.yaml", "journal.jsonl", "report.jsonl", "scales.json", "history.csv", "report.json",
            "convergence.png", "curve.png", "positions.png"}  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    result = lpes_evo("search", *SMALL, "--output", "straight", cwd=folder, check=0)
    return folder / "straight", result


def keys(run, name="journal.jsonl"):
    return [json.loads(line).get("key") for line in (run / name).read_text().splitlines()[1:]]


def records(run, name="journal.jsonl"):
    """Return what a journal holds, whatever the order in which workers finished, and without times."""
    found = [json.loads(line) | {"seconds": 0, "check": ""} for line in (run / name).read_text().splitlines()]
    assert len({record.get("key") for record in found}) == len(found)
    return sorted(found, key=lambda record: record.get("key", ""))


def test_a_run_leaves_its_products_and_ends_by_naming_them(finished):
    run, result = finished
    assert {path.name for path in run.iterdir() if not path.name.startswith(".")} == PRODUCTS
    assert "Run folder: straight" in result.stdout
    for picture in ("convergence.png", "curve.png", "positions.png"):
        assert f"straight/{picture}" in result.stdout
        assert (run / picture).read_bytes().startswith(b"\x89PNG")
    for name in ("untouched", "constant", "lpes", "shuffles"):
        assert name in result.stdout
    report = json.loads((run / "report.json").read_text())
    assert report["methods"]["lpes"]["n"] == 30
    assert report["shuffles"]["n_shuffles"] == 3
    assert report["methods"]["untouched"]["scales"] == [1.0] * len(report["methods"]["lpes"]["scales"])


def test_show_says_which_scores_come_from_smaller_batches(finished, tmp_path):
    run, result = finished
    assert "smaller batches" not in result.stdout
    for name in ("config.yaml", "scales.json", "report.json"):
        (tmp_path / name).write_bytes((run / name).read_bytes())
    report = json.loads((run / "report.json").read_text())
    assert report["smaller_batches"] == {"n_candidates": 0, "best": False, "methods": []}
    report["smaller_batches"] = {"n_candidates": 2, "best": True, "methods": ["lpes"]}
    del report["check"]
    (tmp_path / "report.json").write_text(json.dumps(report))
    shown = run_here("show", tmp_path, cwd=tmp_path, check=0).stdout
    assert (
        "Warning: 2 candidates, the best among them and the held-out examples of lpes were scored in" in shown
    )


def test_show_prints_the_result_of_a_run(finished):
    run, _ = finished
    shown = run_here("show", run, cwd=run.parent, check=0)
    assert "95 % intervals" in shown.stdout
    assert str(run / "positions.png") in shown.stdout


def test_equal_configuration_gives_byte_identical_results(finished):
    run, _ = finished
    lpes_evo(
        "search",
        "--config",
        run / "config.yaml",
        "--output",
        "again",
        "--devices",
        "cpu",
        cwd=run.parent,
        check=0,
    )
    assert contents(run.parent / "again") == contents(run)


@pytest.mark.parametrize("n_lines", [9, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 3, 20))])
def test_a_search_killed_at_any_moment_resumes_to_the_same_bytes_and_repeats_nothing(finished, n_lines):
    run, _ = finished
    folder = run.parent / f"killed-{n_lines}"
    process = start("search", *SMALL, "--output", folder, cwd=run.parent)
    wait_for_lines(folder / "journal.jsonl", n_lines, process)
    process.kill()
    process.wait()
    before = keys(folder)
    lpes_evo("search", "--resume", folder, "--devices", "cpu", cwd=run.parent, check=0)
    assert contents(folder) == contents(run)
    after = keys(folder)
    assert after[: len(before)] == before
    assert records(folder) == records(run)
    assert records(folder, "report.jsonl") == records(run, "report.jsonl")


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        *(
            pytest.param(one, marks=pytest.mark.slow)
            for one in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
        ),
    ],
)
def test_a_signal_ends_a_search_with_its_code_and_the_way_to_go_on(finished, number):
    run, _ = finished
    folder = run.parent / f"signal-{number}"
    process = start("search", *SMALL, "--output", folder, cwd=run.parent)
    wait_for_lines(folder / "journal.jsonl", 4, process)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert f"--resume {folder}" in errors
    assert "Traceback" not in errors
    lpes_evo("search", "--resume", folder, "--devices", "cpu", cwd=run.parent, check=0)
    assert contents(folder) == contents(run)
    assert records(folder) == records(run)


@pytest.mark.slow
def test_a_stop_while_the_model_is_loaded_leaves_a_folder_that_can_be_resumed(finished):
    run, _ = finished
    folder = run.parent / "loading"
    process = start("search", *SMALL, "--output", folder, cwd=run.parent)
    deadline = time.monotonic() + 120
    while not (folder / "config.yaml").exists():
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 143
    assert f"--resume {folder}" in errors
    lpes_evo("search", "--resume", folder, "--devices", "cpu", cwd=run.parent, check=0)
    assert contents(folder) == contents(run)


@pytest.mark.slow
def test_a_search_that_was_started_deaf_to_a_hang_up_stays_so(finished):
    run, _ = finished
    folder = run.parent / "nohup"
    process = start("search", *SMALL, "--output", folder, cwd=run.parent, ignored=signal.SIGHUP)
    wait_for_lines(folder / "journal.jsonl", 4, process)
    process.send_signal(signal.SIGHUP)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert contents(folder) == contents(run)


@pytest.mark.slow
def test_a_search_goes_on_when_the_reader_of_its_output_has_gone(finished):
    run, _ = finished
    folder = run.parent / "unread"
    process = start("search", *SMALL, "--output", folder, cwd=run.parent)
    process.stdout.readline()
    process.stdout.close()
    errors = process.stderr.read()
    assert process.wait(120) == 0, errors
    assert "Traceback" not in errors
    assert "Broken" not in errors
    assert contents(folder) == contents(run)


def test_a_folder_whose_name_rich_and_the_shell_would_change_is_shown_as_it_is(finished):
    run, _ = finished
    folder = run.parent / "run:100:[b] 1"
    shutil.copytree(run, folder)
    shown = run_here("show", folder, cwd=run.parent, check=0).stdout
    assert f"Run folder: {folder}" in shown
    again = run_here("search", *SMALL, "--output", folder, cwd=run.parent, check=2).stderr
    assert f"lpes-evo search --resume {shlex.quote(str(folder))}" in again


@pytest.mark.slow
def test_sigterm_ends_every_command_with_its_code(tmp_path):
    process = start("estimate", *SMALL, "--repeats", "100000", cwd=tmp_path)
    time.sleep(8)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 143


def test_a_finished_run_resumes_to_itself_without_an_evaluation(finished):
    run, _ = finished
    journal = (run / "journal.jsonl").read_bytes()
    before = contents(run)
    lpes_evo("search", "--resume", run, "--devices", "cpu", cwd=run.parent, check=0)
    assert (run / "journal.jsonl").read_bytes() == journal
    assert contents(run) == before


@pytest.mark.parametrize(
    ("devices", "n_workers"), [("cpu", 1), pytest.param("cpu:2", 2, marks=pytest.mark.slow)]
)
def test_estimate_predicts_a_run(tmp_path, devices, n_workers):
    result = lpes_evo("estimate", *SMALL[:-1], devices, cwd=tmp_path, check=0)
    assert f"at most 26 full evaluations, {n_workers} at a time" in result.stdout
    assert "total" in result.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "devices",
    [
        "cpu:2",
        pytest.param("cpu+cpu", marks=pytest.mark.slow),
        pytest.param("in-process", marks=pytest.mark.slow),
    ],
)
def test_where_a_search_runs_does_not_show_in_its_results(finished, devices):
    run, _ = finished
    folder = run.parent / devices
    result = lpes_evo("search", *SMALL[:-1], devices, "--output", folder, cwd=run.parent, check=0)
    assert contents(folder) == contents(run)
    assert records(folder) == records(run)
    assert records(folder, "report.jsonl") == records(run, "report.jsonl")
    assert result.stdout.count("was busy") == (2 if devices == "cpu:2" else 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["search", "--preset", "big"], "Expected a preset out of demo, gradient, paper"),
        (["search", "--task", "nothing"], "Expected a task among kv, "),
        (["search", "--model", "no/such/model", "--task", "needle"], "no/such/model"),
        (["search", "--model", "missing.gguf", "--task", "needle"], "missing.gguf"),
        (["search", "--set", "search.generation=3"], "Known keys there: algorithm"),
        (["search", "--set", "generations"], "Expected --set key=value"),
        (["search", "--config", "missing.yaml"], "cannot be read"),
        (["search", "--resume", "missing"], "Expected a run folder with config.yaml"),
        (["search", "--resume", "x", "--seed", "1"], "Expected --resume alone"),
        (["search", "--devices", "warp:0"], "warp:0"),
        (["search", "--devices", "cpu:0"], "or groups such as cuda:0+cuda:1 or auto:2, but got 'cpu:0'"),
        (["search", "--devices", "cpu", "--evaluation-limit", "0"], "positive seconds for work, but got 0.0"),
        (
            ["search", "--devices", "cpu", "--evaluation-limit", "nan"],
            "positive seconds for work, but got nan",
        ),
        (["search", "--seed", "one"], "--seed"),
        (
            ["search", "--task", "needle", "--model", "tiny", "--devices", "in-process"],
            "words that the model's tokenizer knows",
        ),
        (["search", "--set", "task.options={n_pairs: 5000}"], "5000"),
        (["search", "--set", "curve.max_delta=0.03"], "0.03"),
        (["search", "--output", "/proc/nothing/here"], "Choose an --output"),
        (["search", "--output", "n" * 300], "File name too long"),
        (["show", "missing"], "Expected a run folder with config.yaml"),
        (["estimate", "--preset", "big"], "Expected a preset out of"),
        (["unknown"], "unknown"),
    ],
)
def test_bad_input_gives_one_clear_line_and_exit_code_2(arguments, message, tmp_path):
    result = run_here(*arguments, cwd=tmp_path, check=2)
    assert message in result.stderr
    if result.stderr.startswith("Error"):
        assert result.stderr.count("\n") == 1


def test_a_folder_with_a_run_is_not_overwritten(finished):
    run, _ = finished
    result = run_here("search", *SMALL, "--output", run, cwd=run.parent, check=2)
    assert "already holds a run" in result.stderr


def test_an_edited_configuration_is_refused_and_the_journal_kept(finished, tmp_path):
    run, _ = finished
    folder = tmp_path / "edited"
    folder.mkdir()
    for name in ("config.yaml", "journal.jsonl"):
        (folder / name).write_bytes((run / name).read_bytes())
    text = (folder / "config.yaml").read_text()
    (folder / "config.yaml").write_text(text.replace("generations: 3", "generations: 4"))
    result = run_here("search", "--resume", folder, "--devices", "cpu", cwd=tmp_path, check=2)
    assert "Expected" in result.stderr
    assert "to belong to this run, but its config is" in result.stderr
    assert (folder / "journal.jsonl").read_bytes() == (run / "journal.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"values": [', '"values": [1'),
        ('"scores": [', '"scores": [0.5, '),
        ('"status": "ok"', '"status": "failed", "error": 5'),
        ('"control_points": [[0.0, ', '"control_points": [[0.0, 1'),
    ],
)
def test_an_edited_evaluation_is_refused(finished, tmp_path, before, after):
    run, _ = finished
    for name in ("config.yaml", "journal.jsonl"):
        (tmp_path / name).write_bytes((run / name).read_bytes())
    text = (run / "journal.jsonl").read_text()
    assert before in text
    (tmp_path / "journal.jsonl").write_text(text.replace(before, after, 1))
    result = run_here("search", "--resume", tmp_path, "--devices", "in-process", cwd=tmp_path, check=2)
    assert result.stderr.startswith("Error: ")
    assert "journal" in result.stderr


def test_two_processes_do_not_share_a_run(finished):
    run, _ = finished
    folder = run.parent / "shared"
    process = start("search", *SMALL, "--output", folder, cwd=run.parent)
    wait_for_lines(folder / "journal.jsonl", 2, process)
    result = run_here("search", "--resume", folder, "--devices", "cpu", cwd=run.parent, check=2)
    assert "another process works in it" in result.stderr
    process.kill()
    process.wait()


def test_show_of_an_unfinished_run_says_how_to_finish_it(finished, tmp_path):
    run, _ = finished
    (tmp_path / "config.yaml").write_bytes((run / "config.yaml").read_bytes())
    result = run_here("show", tmp_path, cwd=tmp_path, check=2)
    assert "Finish the run with 'lpes-evo search --resume'" in result.stderr


def test_the_version_is_printed(tmp_path):
    assert run_here("--version", cwd=tmp_path, check=0).stdout.strip() == metadata.version("lpes-evo")
