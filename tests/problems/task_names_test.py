"""Tasks by name, with variants and options, and from a user's file."""

import pytest

from lpes_evo.errors import TaskError
from lpes_evo.problems import DataRequest, Task, make_task, register_task, task_names
from lpes_evo.problems.tasks import PasskeyTask

TASK_FILE = """
from lpes_evo.problems import Example, Task

class Echo(Task):
    name = "echo"
    metric = "accuracy"

    def examples(self, request):
        return [Example("echo/0", "Say yes.", ("yes",))]

    def score(self, output, example):
        return (float(output.strip() == example.answers[0]),)

class Broken(Echo):
    def __init__(self):
        raise RuntimeError("out of order")

class Nameless(Task):
    examples = Echo.examples
    score = Echo.score
"""


@pytest.fixture
def task_file(tmp_path):
    path = tmp_path / "my_task.py"
    path.write_text(TASK_FILE)
    return path


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("kv", "kv"),
        ("kv:25", "kv:25"),
        ("kv:25+drawn", "kv:25+drawn"),
        ("mdqa", "mdqa:20"),
        ("mdqa:10+built", "mdqa:10+built"),
        ("needle:4+digits=6+filler=3", "needle:4+filler=3+digits=6"),
        ("passkey", "passkey:80"),
        ("recall", "recall:48"),
        ("perplexity:512", "perplexity:512"),
        ("leval:tpo+length", "leval:tpo+length"),
        ("leval:sci_fi+hub", "leval:sci_fi+hub"),
        ("zeroscrolls:qasper+test", "zeroscrolls:qasper+test"),
    ],
)
def test_a_spec_makes_a_task_whose_name_makes_it_again(spec, name):
    task = make_task(spec)
    assert task.name == name
    assert make_task(task.name).name == name


def test_every_listed_name_makes_a_task_with_a_metric():
    names = task_names()
    assert len(names) == 7 + 10 + 20
    names.remove("qa:FILE")
    for name in names:
        task = make_task(name)
        assert isinstance(task, Task)
        assert task.metric
        assert task.parts


@pytest.mark.parametrize(
    ("spec", "match"),
    [
        ("leval:tp0", r"among .*leval:tpo.*but got 'leval:tp0'. Did you mean leval:tpo\?"),
        ("zeroscrols:qasper", r"Did you mean zeroscrolls:qasper\?"),
        ("leval", "but got 'leval'"),
        ("mdqaa", r"Did you mean mdqa\?"),
        ("xyzzy", "but got 'xyzzy'.$"),
        ("", "name of a task such as kv"),
        ("mdqa:many", "Expected mdqa:NUMBER in the task 'mdqa:many', but got 'many'"),
        ("mdqa:20+bilt", r"among \+built, \+bm25, but got \+bilt"),
        ("mdqa+built=2", r"\+built without a value"),
        ("needle+filler", r"\+filler=NUMBER"),
        ("needle+filler=", r"options such as \+length"),
        ("recall+x", r"among none, but got \+x"),
        ("kv+drawn+drawn", "each once"),
    ],
)
def test_a_wrong_spec_is_one_line_with_the_nearest_name(spec, match):
    with pytest.raises(TaskError, match=match):
        make_task(spec)


def test_a_task_of_a_file_is_made(task_file):
    task = make_task(f"{task_file}:Echo")
    (example,) = task.examples(DataRequest())
    assert task.score(" yes", example) == (1.0,)


@pytest.mark.parametrize(
    ("class_name", "match"),
    [
        ("Absent", "the Task class Absent, but it defines Echo, Broken, Nameless"),
        ("Example", "the Task class Example"),
        ("Broken", "it raised RuntimeError: out of order"),
        ("Nameless", r"attribute name of Nameless in .*my_task\.py to be a name on one line, but it is None"),
    ],
)
def test_a_file_without_such_a_task_is_one_line(task_file, class_name, match):
    with pytest.raises(TaskError, match=match):
        make_task(f"{task_file}:{class_name}")


def test_a_file_that_cannot_be_loaded_is_one_line(tmp_path):
    with pytest.raises(TaskError, match="there is no file"):
        make_task(f"{tmp_path / 'absent.py'}:Echo")
    (tmp_path / "torn.py").write_text("class Echo(")
    with pytest.raises(TaskError, match="raised SyntaxError"):
        make_task(f"{tmp_path / 'torn.py'}:Echo")


def test_a_registered_task_gets_what_the_user_wrote(monkeypatch):
    monkeypatch.setattr("lpes_evo.problems._registry._TASKS", {})
    register_task("short-passkey", lambda spec: PasskeyTask(spec.number(2)))
    assert make_task("short-passkey").name == "passkey:2"
    assert make_task("short-passkey:3").name == "passkey:3"
    assert "short-passkey" in task_names()
    with pytest.raises(TaskError, match="'short-passkey' is taken"):
        register_task("short-passkey", lambda spec: PasskeyTask(spec.number(2)))
    with pytest.raises(TaskError, match="task name of letters"):
        register_task("a:b", lambda spec: PasskeyTask(spec.number(2)))
