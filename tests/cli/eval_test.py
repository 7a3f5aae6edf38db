"""``lpes-evo eval`` as a user runs it, on the embedded model."""

import json
import re
import signal
from pathlib import Path

import pytest

from commands import lpes_evo, run_here, start, wait_for_lines
from lpes_evo.cli import evaluate
from lpes_evo.errors import LpesError
from lpes_evo.operators import CurveSpace
from lpes_evo.scales import Scales

POINTS = ((0.0, 0.9), (0.0, 2.8), (5.0, 2.7), (5.0, 2.6))
PRODUCTS = {"config.yaml", "scales.json", "answers.jsonl", "results.json", "results.md", "results.csv",
            "positions-recall-64.png"}  # fmt: skip
SMALL = ["eval", "tiny", "--tasks", "recall:64", "--positions", "0,0.5,1", "--limit", "10", "--batch-tokens", "300",
         "--scales", "scales.json", "--devices", "in-process"]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("evals")
    scales = CurveSpace(6, 4).draw([POINTS])[0]
    Scales("tiny", tuple(scales.tolist()), POINTS, "recall", (-0.1,)).save(path / "scales.json")
    return path


@pytest.fixture(scope="module")
def finished(folder):
    result = lpes_evo(*SMALL, "--output", "straight", cwd=folder, check=0)
    return folder / "straight", result


def tasks(path):
    return json.loads((path / "results.json").read_text())["tasks"]


def test_an_evaluation_leaves_its_products_and_prints_its_table(finished):
    path, result = finished
    assert {file.name for file in path.iterdir() if not file.name.startswith(".")} == PRODUCTS
    assert "minus untouched" in result.stdout
    assert "Folder: straight" in result.stdout
    assert "straight/positions-recall-64.png" in result.stdout
    assert "Not checked whether the search saw these examples" in result.stdout
    assert len((path / "answers.jsonl").read_text().splitlines()) == 1 + 2 * 30
    assert tasks(path)[0]["arms"]["lpes"]["overall"]["n"] == 30


def test_an_evaluation_killed_in_the_middle_resumes_and_repeats_nothing(finished, monkeypatch, capsys):
    straight, _ = finished
    monkeypatch.chdir(straight.parent)
    path = straight.parent / "killed"
    process = start(*SMALL, "--output", path, cwd=straight.parent)
    wait_for_lines(path / "answers.jsonl", 12, process)
    process.kill()
    process.wait()
    before = (path / "answers.jsonl").read_text()
    before = before[: before.rfind("\n") + 1]
    evaluate(resume=path, devices="in-process")
    assert "minus untouched" in capsys.readouterr().out
    assert (path / "answers.jsonl").read_text().startswith(before)
    assert (path / "answers.jsonl").read_text() == (straight / "answers.jsonl").read_text()
    assert tasks(path) == tasks(straight)


@pytest.mark.parametrize(
    ("number", "code"), [pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow), (signal.SIGTERM, 143)]
)
def test_a_signal_ends_an_evaluation_with_its_code_and_the_way_to_go_on(finished, number, code):
    straight, _ = finished
    path = straight.parent / f"signal-{number}"
    process = start(*SMALL, "--output", path, cwd=straight.parent)
    wait_for_lines(path / "answers.jsonl", 4, process)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == code
    assert f"go on with: lpes-evo eval --resume {path}" in errors
    assert "Traceback" not in errors


@pytest.mark.slow
def test_two_worker_processes_give_the_scores_of_one(finished):
    straight, _ = finished
    arguments = [*SMALL[:-1], "cpu:2"]
    lpes_evo(*arguments, "--output", "two", cwd=straight.parent, check=0)
    assert tasks(straight.parent / "two") == tasks(straight)


def test_a_finished_evaluation_is_shown_and_compared_without_work(finished, monkeypatch, capsys):
    straight, _ = finished
    monkeypatch.setattr("lpes_evo.models._model.load_model", None)
    answers = (straight / "answers.jsonl").stat().st_mtime_ns
    evaluate(resume=straight, against=straight)
    shown = capsys.readouterr().out
    assert "Loading" not in shown
    assert "here minus there" in shown
    assert "+0.000 [+0.000, +0.000]" in shown
    assert (straight / "answers.jsonl").stat().st_mtime_ns == answers


def test_a_folder_with_an_evaluation_is_not_overwritten(finished):
    straight, _ = finished
    config = (straight / "config.yaml").read_bytes()
    with pytest.raises(LpesError, match="is in use already"):
        evaluate("tiny", tasks="recall", output=straight)
    assert (straight / "config.yaml").read_bytes() == config


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "Expected a model and --tasks"),
        ({"tasks": None}, "Expected a model and --tasks"),
        ({"tasks": "recal"}, "Did you mean recall?"),
        ({"tasks": "recall,,kv"}, "Expected names of tasks, but one is empty"),
        ({"tasks": "recall,recall"}, "Expected no task twice"),
        ({"positions": "0,middle"}, "Expected --positions to be numbers"),
        ({"positions": "0,2"}, "lie between 0 and 1, but got 2.0"),
        ({"limit": 0}, "configuration key limit"),
        ({"over_length": "drop"}, "configuration key over_length"),
        ({"dtype": "int8"}, "configuration key model.dtype"),
        ({"scales": "missing.json"}, "Expected a scales file at missing.json"),
        ({"tasks": "leval:tpo"}, "leval:tpo"),
        ({"tasks": "mdqa:10", "data": Path("nowhere")}, "nowhere"),
        ({"devices": "warp:0"}, "warp:0"),
        ({"force": True}, "Expected --force only with --against"),
        ({"against": Path("missing")}, "Expected a finished evaluation with missing"),
        ({"resume": Path("x"), "seed": 1}, "but got MODEL, --tasks, --seed too"),
        ({"output": Path("/proc/nothing/here")}, "Choose an --output"),
    ],
)
def test_bad_input_is_refused_before_a_model_is_loaded(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("lpes_evo.models._model.load_model", None)
    given = {"model": "tiny", "tasks": "recall"} | arguments if arguments else {}
    with pytest.raises(LpesError, match=re.escape(message)) as raised:
        evaluate(**given)
    assert raised.value.exit_code == 2


def test_bad_input_gives_one_clear_line_and_exit_code_2(tmp_path):
    result = run_here("eval", "--resume", "missing", cwd=tmp_path, check=2)
    assert "Expected a folder of an evaluation with config.yaml" in result.stderr
    assert result.stderr.count("\n") == 1


def scored(capsys, *arguments):
    """Run ``lpes-evo score`` in this process and return what it printed."""
    from typer.testing import CliRunner

    from lpes_evo.cli import app

    result = CliRunner().invoke(app, ["score", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


def test_the_answers_of_an_evaluation_are_scored_without_its_model(finished, capsys):
    path, _ = finished
    made_with = ["--positions", "0,0.5,1", "--limit", "10"]
    (task,) = tasks(path)
    for arm in ("lpes", "untouched"):
        shown = scored(capsys, "recall:64", path / "answers.jsonl", *made_with, "--system", arm)
        assert f"accuracy {task['arms'][arm]['overall']['score']:.4f}" in shown
        assert "n = 30" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["recall:64"],
            "under one arm of .*answers.jsonl, but it has those of untouched, lpes. Name one with",
        ),
        (["recall:64", "--system", "yarn"], "it has those of untouched, lpes"),
        (["recall:16", "--system", "lpes"], "Expected answers to recall:16, but .* has none. Name a task"),
        (
            ["recall:64", "--system", "lpes", "--seed", "1"],
            "it has one to .* Give the data, positions, limit",
        ),
    ],
)
def test_answers_that_do_not_go_with_the_task_are_refused(finished, capsys, arguments, message):
    path, _ = finished
    task, *options = arguments
    with pytest.raises(LpesError, match=message):
        scored(capsys, task, path / "answers.jsonl", "--positions", "0,0.5,1", "--limit", "10", *options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tasks": "lm:x", "batch_tokens": 40}, "takes no --batch-tokens"),
        ({"tasks": "lm:x,mmlu", "max_length": 20}, "takes no --max-length"),
        ({"tasks": "ceval-valid", "over_length": "skip"}, "takes no --over-length"),
        ({"tasks": "mmlu", "positions": "0,1"}, "takes no --positions"),
        ({"tasks": "lm:x", "teacher_forcing": True}, "takes no --teacher-forcing"),
        ({"tasks": "lm:x", "seed": 3}, "takes no --seed"),
        ({"tasks": "recall:16", "shots": 3}, "Expected shots only with mmlu"),
        ({"tasks": "lm:x", "batch_limit": 9.0}, "--batch-limit, since lm-evaluation-harness makes its own"),
        ({"tasks": "recall:16", "data": Path(".")}, "--data, since no task reads files"),
        ({"tasks": "needle:4,passkey:9,kv+drawn", "data": Path(".")}, "--data, since no task reads files"),
        (
            {"tasks": "recall:16", "max_length": 100_000},
            "within the model's window of 512 tokens, but got 100000",
        ),
    ],
)
def test_an_option_without_effect_is_refused(tmp_path, options, message):
    with pytest.raises(LpesError, match=message):
        evaluate("tiny", output=tmp_path / "new", devices="in-process", **options)


def test_options_that_some_tasks_take_are_said_to_miss_the_others():
    from lpes_evo.evals import EvalConfig

    config = EvalConfig(tasks=("recall:16", "lm:x"), batch_tokens=40, over_length="skip")
    config.refuse_idle_options()
    assert config.idle_in_harness() == ["--over-length", "--batch-tokens"]


def test_positions_and_teacher_forcing_need_a_task_that_takes_them(tmp_path):
    (tmp_path / "text.txt").write_text("a text of a few words " * 40)
    file = tmp_path / "tasks.py"
    file.write_text(
        "from lpes_evo.evals import EvalExample, EvalTask\n\n\n"
        "class Free(EvalTask):\n"
        "    name = metric = 'free'\n\n"
        "    def examples(self, request):\n"
        "        return [EvalExample('a', '3 4 ? 3', ('4',), source='a')]\n\n"
        "    def score(self, output, example):\n"
        "        return (1.0,)\n"
    )
    for options, message in (
        ({"positions": "0,1"}, "--positions, since no task places a fact"),
        ({"teacher_forcing": True}, "--teacher-forcing, since the metric of no task allows it"),
    ):
        with pytest.raises(LpesError, match=message):
            evaluate("tiny", tasks=f"{file}:Free", output=tmp_path / "new", devices="in-process", **options)
