"""One task object can be searched and evaluated."""

import dataclasses

import pytest

from lpes_evo.config import load_config
from lpes_evo.errors import TaskError
from lpes_evo.evals import EvalConfig, EvalExample, EvalTask, draw_tasks
from lpes_evo.models import load_model
from lpes_evo.problems import (
    DataRequest,
    Example,
    ModelProblem,
    Task,
    check_disjoint,
    data_hash,
    evaluation_hash,
    examples_of,
    make_task,
)
from lpes_evo.runs import draw_examples

OWN_TASK = """
from lpes_evo.problems import Example, Task


class Halves(Task):
    name = "halves"
    metric = "accuracy"

    def examples(self, request):
        return [
            Example(f"{place}/{number}", f"3 {number} ? 3", (str(number),), place, f"{request.split}/{place}/{number}")
            for place in request.positions
            for number in range(4, 4 + request.limit)
        ]

    def score(self, output, example):
        return (float(example.answer in output),)


class Apart(Halves):
    def examples(self, request):
        first = 4 if request.split == "search" else 90
        return [
            Example(f"{place}/{number}", f"3 {number} {int(8 * place)} ? 3", (str(number),), place, f"{place}/{number}")
            for place in request.positions
            for number in range(first, first + request.limit)
        ]


class Placeless(Apart):
    def examples(self, request):
        return [
            Example(name, f"{name} ? 3", ("4",), source=name)
            for name in (f"{request.split} {number}" for number in range(request.limit))
        ]
"""


def run_config(name, **options):
    return load_config(
        overrides={
            "task.name": str(name),
            "task.options": options,
            "examples.n_per_position": 2,
            "report.n_per_position": 3,
            "report.positions": [0.0, 1.0],
        }
    )


@pytest.fixture
def own_file(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(OWN_TASK)
    return path


@pytest.mark.parametrize("name", ["kv:4", "needle:4+filler=2", "recall:8", "passkey:3"])
def test_a_drawn_task_is_searched_and_evaluated_under_one_name(name):
    search, report = draw_examples(run_config(name))
    (evaluated,), _ = draw_tasks(EvalConfig(tasks=(name,), positions=(0.0, 1.0), limit=3))
    assert evaluated.task.name == name
    assert len(search) == 6
    assert evaluated.examples == report
    check_disjoint(search, evaluated.examples)


def test_an_option_is_given_in_the_name_or_by_its_argument():
    request = DataRequest(limit=2, split="search")
    written, given = make_task("needle:4+filler=2"), make_task("needle", n_keys=4, n_filler=2)
    assert written.name == given.name == "needle:4+filler=2"
    assert written.examples(request) == given.examples(request)
    assert make_task("kv:5", drawn=True).name == "kv:5+drawn"
    with pytest.raises(
        TaskError, match="option of a task once, but got n_keys as an option and in the name 'needle:4'"
    ):
        make_task("needle:4", n_keys=5)


def test_a_task_of_a_user_is_searched_where_its_splits_share_nothing(own_file):
    search, report = draw_examples(run_config(f"{own_file}:Apart"))
    assert (len(search), len(report)) == (6, 6)
    with pytest.raises(TaskError, match="to be disjoint, but 4 report examples are made of material"):
        draw_examples(run_config(f"{own_file}:Halves"))
    assert {example.position for example in draw_examples(run_config(f"{own_file}:Placeless"))[0]} == {None}
    with pytest.raises(TaskError, match="no options for the task .*own.py:Apart' of a user, but got n_pairs"):
        draw_examples(run_config(f"{own_file}:Apart", n_pairs=3))


def test_a_search_asks_for_the_number_of_examples_that_it_was_told(tmp_path):
    request = DataRequest(positions=(0.0,), limit=3, split="search")
    assert len(examples_of(make_task("recall:4"), request)) == 3

    class Few(Task):
        name = "few"
        metric = "accuracy"

        def examples(self, request):
            return [Example("one", "3 4 ? 3", ("4",))]

        def score(self, output, example):
            return (1.0,)

    assert len(examples_of(Few(), request)) == 1
    with pytest.raises(
        TaskError, match="Expected 3 examples of the task 'few', but its search split has 1. Ask for fewer"
    ):
        examples_of(Few(), dataclasses.replace(request, exact=True))


def test_a_search_problem_groups_examples_without_a_position():
    example = Example("one", "3 4 ? 3", ("4",), source="s")
    assert ModelProblem(load_model("tiny"), [example]).groups == ("all",)


def test_the_hash_of_a_search_follows_what_is_scored_and_that_of_an_evaluation_every_field():
    example = Example("one", "3 4 ? 3", ("4",), 0.5, "s", max_new_tokens=4)
    longer = dataclasses.replace(example, max_new_tokens=8, cut=(0, 3), details={"kind": "easy"})
    other = dataclasses.replace(example, answers=("5",))
    several = dataclasses.replace(example, answers=("4", "5"))
    assert data_hash([example]) == data_hash([longer])
    assert len({data_hash([one]) for one in (example, other, several)}) == 3
    assert len({evaluation_hash([one]) for one in (example, longer, other, several)}) == 4


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("kv:6", "c2fa16a063925a4f86bf252b04a0a6f945139269679357d27b15a5af298189a2"),
        ("needle:4+filler=2+digits=5", "b2536c94c99f6f326c5fae732454085a7e3ccce6dccb4d26bb373cb67014a112"),
        ("recall:6", "9efb920fee053fd7492c0a1bc8f6b5c445b95beb1f2245eca26d694463b8064c"),
        ("passkey:5", "0e79a8b043ad3f13a467aa0363d3c637864c43f89a643e476152bec51b278418"),
    ],
)
def test_an_evaluation_of_an_earlier_version_finds_its_data_again(name, expected):
    made = make_task(name).examples(DataRequest(positions=(0.0, 0.3, 1.0), limit=5, seed=2))
    assert evaluation_hash(made) == expected


def test_the_names_of_earlier_task_files_are_those_of_today():
    assert EvalTask is Task
    assert EvalExample is Example
