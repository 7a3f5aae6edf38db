"""A task that a user wrote fails: one line names its file, class, method and example, and nothing answered is lost."""

import json
from pathlib import Path

import pytest

from lpes_evo.cli import evaluate
from lpes_evo.errors import EvaluationError, TaskError
from lpes_evo.evals import (
    EvalConfig,
    EvalFolder,
    draw_tasks,
    load_results,
    run_evaluation,
    score_predictions,
)
from lpes_evo.problems import DataRequest, data_hash, make_task, register_task

SOURCE = """
from lpes_evo.problems import Example, Task


def example(n=0, **fields):
    return Example(**({"id": f"q{n}", "prompt": "3 4 5 ? 3", "answers": ("4",), "max_new_tokens": 1} | fields))


class Sound(Task):
    name = "sound"
    metric = "accuracy"

    def examples(self, request):
        return [example(n) for n in range(3)]

    def score(self, output, example):
        return (1.0,)


class Mine(Sound):
    name = "mine"
"""


@pytest.fixture
def write(tmp_path):
    """Return a function that writes a task file with a class Mine of the given body."""

    def written(*lines):
        file = tmp_path / "my_task.py"
        file.write_text(SOURCE + "".join(f"\n    {line}" for line in lines) + "\n")
        return f"{file}:Mine"

    return written


def line_of(spec, text):
    source = Path(spec.rpartition(":")[0]).read_text().splitlines()
    return next(number for number, line in enumerate(source, start=1) if text in line)


def draw(spec):
    return draw_tasks(EvalConfig(tasks=(spec,)))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            ["def examples(self, request):", "    return open('no-such-file')"],
            "examples of Mine in {file}, line {line}, to make the examples, but it raised FileNotFoundError: ",
        ),
        (
            ["def examples(self, request):", "    raise SystemExit(3)"],
            "the method examples of Mine in {file}, line {line}, .* it raised SystemExit: 3",
        ),
        (
            ["def examples(self, request):", "    from lpes_evo.errors import TaskError", "    raise TaskError('x')"],
            "the method examples of Mine in {file}, line {line}, .* it raised TaskError: x",
        ),
        (
            ["def examples(self, request):", "    yield example(0)", "    yield example(1 / 0)"],
            "the method examples of Mine in {file}, line {line}, .* it raised ZeroDivisionError: ",
        ),
        (["def examples(self, request): return None"], "the method examples of Mine in {file} .* raised TypeError"),
        (["def examples(self, request): return ['a']"], "{file} to give a list of Example, but number 0 is 'a'"),
        (["def examples(self, request): return []"], "examples of Mine in {file} made 0 examples"),
        (["def examples(self, request): return [example()] * 2"], "Mine in {file} made 2 examples with 1 different"),
    ],
)  # fmt: skip
def test_examples_that_cannot_be_made_are_one_line_with_file_class_and_method(write, lines, message):
    spec = write(*lines)
    file, _, _ = spec.rpartition(":")
    message = message.format(file=file, line=line_of(spec, lines[-1]))
    with pytest.raises(TaskError, match=message) as raised:
        draw(spec)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("id", "3", "text that is not empty"),
        ("id", "' '", "text that is not empty"),
        ("prompt", "['Say', 'yes']", "text in Unicode"),
        ("prompt", r"'\ud800'", "text in Unicode"),
        ("answers", "'yes'", "a tuple of texts"),
        ("answers", "(1,)", "a tuple of texts"),
        ("position", "'begin'", "a float from 0 to 1 or None"),
        ("position", "1.5", "a float from 0 to 1 or None"),
        ("position", "True", "a float from 0 to 1 or None"),
        ("source", "None", "text in Unicode"),
        ("cut", "(0, 99)", "a span of the prompt or None"),
        ("cut", "'all'", "a span of the prompt or None"),
        ("gold", "(4, 2)", "a span of the prompt or None"),
        ("answer_prefix", "None", "text in Unicode"),
        ("max_new_tokens", "'16'", "an int from 0"),
        ("max_new_tokens", "1.0", "an int from 0"),
        ("details", "[1]", "a dict that json can write"),
        ("details", "{'a': {1}}", "a dict that json can write"),
        ("details", "{'a': float('nan')}", "a dict that json can write"),
    ],
)
def test_a_field_of_a_wrong_type_is_named_with_its_example(write, field, value, expected):
    spec = write("def examples(self, request):", f"    return [example(), example(1, {field}={value})]")
    name = rf"(q1|{value[1:-1] if field == 'id' else 'q1'}|3)"
    with pytest.raises(
        TaskError, match=f"of Mine in .*my_task.py made '?{name}'? with {field} = .*, where {expected}"
    ):
        draw(spec)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("name = 'a\\nb'", "the attribute name of Mine in .*my_task.py to be a name on one line, but it is 'a.*nb'"),
        ("metric = 3", "attribute metric of Mine in .* but it is 3"),
        ("kind = 'read'", "attribute kind of Mine in .* to be one of generate, likelihood, but it is 'read'"),
        ("parts = 'score'", "attribute parts of Mine in .* to be a tuple of names, .* but it is 'score'"),
        ("parts = ()", "attribute parts of Mine in .* to be a tuple of names"),
        ("larger_is_better = 'yes'", "attribute larger_is_better of Mine in .* to be True or False"),
        ("kind = 'likelihood'", r"parts of Mine in .* to name two numbers, .* Set parts = \('nats', 'tokens'\)"),
        ("name = property(lambda self: 1 / 0)", "attribute name of Mine in .* it raised ZeroDivisionError"),
    ],
)  # fmt: skip
def test_an_attribute_of_a_wrong_type_is_refused_before_anything_is_made(write, line, message):
    with pytest.raises(TaskError, match=message):
        make_task(write(line))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["def score(self, output, example):", "    return example.details['kind'],"],
         "the method score of Mine in {file}, line {line}, to give one finite number for each of score, but for the "
         "example 'q0' it raised KeyError: 'kind'"),
        (["def score(self, output, example): return 'high'"], "score of Mine in {file} .* 'q0' it gave 'high'"),
        (["def score(self, output, example): return ('1',)"], r"score of Mine in {file} .* 'q0' it gave \('1',\)"),
        (["def score(self, output, example): return None"], "score of Mine in {file} .* 'q0' it gave None"),
        (["def headline(self, scores):", "    return scores[:, 1].mean()"],
         "the method headline of Mine in {file}, line {line}, to condense the scores of 3 examples to one finite "
         "number, but it raised IndexError"),
        (["def headline(self, scores): return float('nan')"], "headline of Mine in {file} .* but it gave .nan."),
        (["def headline(self, scores): return 'good'"], "headline of Mine in {file} .* but it gave .*'good'"),
        (["def check(self, examples):", "    return [examples[7].id]"],
         "the method check of Mine in {file}, line {line}, to give a list of warnings, but it raised IndexError"),
        (["def check(self, examples): return 'beware'"], "check of Mine in {file} .* but it gave 'beware'"),
    ],
)  # fmt: skip
def test_a_file_of_outputs_is_not_scored_by_a_task_that_fails(write, tmp_path, lines, message):
    spec = write(*lines)
    outputs = tmp_path / "outputs.jsonl"
    outputs.write_text("".join(json.dumps({"id": f"q{n}", "output": "4"}) + "\n" for n in range(3)))
    message = message.format(file=spec.rpartition(":")[0], line=line_of(spec, lines[-1]))
    with pytest.raises(TaskError, match=message) as raised:
        score_predictions(spec, outputs)
    assert "\n" not in str(raised.value)


def test_a_headline_that_fails_costs_neither_answers_nor_the_tables_of_other_tasks(write, tmp_path, capsys):
    spec = write("def headline(self, scores): return scores.nothing")
    other = spec.replace(":Mine", ":Sound")
    settings = {"model": "tiny", "devices": "in-process", "output": tmp_path / "out"}
    message = (
        r"result of every task, but mine have none: .*headline of Mine in .*my_task.py, line \d+.* --resume"
    )
    with pytest.raises(EvaluationError, match=message):
        evaluate(tasks=f"{spec},{other}", **settings)
    shown = capsys.readouterr().out
    assert "sound: accuracy" in shown
    assert "mine has no result: Expected the method headline of Mine" in shown
    results = load_results(tmp_path / "out")
    assert [task.name for task in results.tasks] == ["sound"]
    assert list(results.missing) == ["mine"]
    assert "mine has no result" in (tmp_path / "out" / "results.md").read_text()
    answers = (tmp_path / "out" / "answers.jsonl").read_text()
    assert len(answers.splitlines()) == 1 + 6
    write("def headline(self, scores): return scores.mean()")
    evaluate(resume=tmp_path / "out", devices="in-process")
    results = load_results(tmp_path / "out")
    assert [(task.name, task.arms["untouched"].overall.score) for task in results.tasks] == [
        ("mine", 1.0),
        ("sound", 1.0),
    ]
    assert not results.missing
    assert (tmp_path / "out" / "answers.jsonl").read_text() == answers


def test_a_headline_that_fails_alone_is_the_error_of_the_evaluation(write, tmp_path):
    config = EvalConfig(tasks=(write("def headline(self, scores): return None"),))
    folder = EvalFolder(tmp_path / "out")
    folder.create(config)
    with pytest.raises(TaskError, match="headline of Mine in .* it gave .None"):
        run_evaluation(config, folder, devices="in-process")
    assert len(folder.answers.read_text().splitlines()) == 1 + 3


def test_an_error_of_a_score_is_written_down_with_its_place(write, tmp_path):
    spec = write("def score(self, output, example): return {'q0': (1.0,), 'q1': (0.0,)}[example.id]")
    config = EvalConfig(tasks=(spec,))
    folder = EvalFolder(tmp_path / "out")
    folder.create(config)
    (task,) = run_evaluation(config, folder, devices="in-process").tasks
    assert (task.arms["untouched"].overall.n, task.arms["untouched"].n_failed) == (2, 1)
    (failed,) = (line for line in folder.answers.read_text().splitlines() if '"failed"' in line)
    last = json.loads(failed)["error"].splitlines()[-1]
    assert "score of Mine in" in last
    assert "for the example 'q2' it raised KeyError: 'q2'" in last


def test_two_files_of_one_name_are_two_modules(write, tmp_path):
    spec = write("def check(self, examples): return ['first']")
    (tmp_path / "other").mkdir()
    second = tmp_path / "other" / "my_task.py"
    second.write_text(SOURCE)
    first_task, second_task = make_task(spec), make_task(f"{second}:Mine")
    assert type(first_task).__module__ != type(second_task).__module__
    assert first_task.check([]) == ["first"]


def test_a_registered_maker_that_fails_is_one_line(monkeypatch):
    monkeypatch.setattr("lpes_evo.problems._registry._TASKS", {})
    register_task("broken", lambda spec: 1 / 0)
    register_task("empty", lambda spec: None)
    with pytest.raises(
        TaskError, match="maker registered for 'broken' to make a task, but it raised ZeroDivision"
    ):
        make_task("broken")
    with pytest.raises(
        TaskError, match="maker registered for the task 'empty' to return a Task, but got NoneT"
    ):
        make_task("empty")


def test_every_task_of_this_package_makes_sound_examples(tmp_path):
    for spec in ("kv:5", "needle:2", "recall:4", "passkey:2"):
        made = draw_tasks(EvalConfig(tasks=(spec,), positions=(0.0, 1.0), limit=2))[0][0]
        assert list(made.examples) == make_task(spec).examples(DataRequest(positions=(0.0, 1.0), limit=2))
        assert len(data_hash(made.examples)) == 64


def test_one_name_is_not_taken_by_a_task_of_the_harness_too(write):
    with pytest.raises(TaskError, match="is 'lm:arc' again"):
        draw_tasks(EvalConfig(tasks=(write("name = 'lm:arc'"), "lm:arc")))
