import subprocess
import sys

import pytest

import lpes_evo.problems
from lpes_evo.errors import TaskError
from lpes_evo.problems import DataRequest, KeyValueTask, NeedleTask, RecallTask, make_task


@pytest.mark.parametrize(
    ("name", "kind"), [("kv", KeyValueTask), ("needle", NeedleTask), ("recall", RecallTask)]
)
def test_tasks_are_made_by_name(name, kind):
    task = make_task(name)
    assert isinstance(task, kind)
    assert task.name.partition(":")[0] == name


def test_options_reach_the_task():
    (example,) = make_task("needle", n_keys=3).examples(
        DataRequest(positions=[0.5], limit=1, seed=0, split="search")
    )
    assert example.prompt.count("The magic number for") == 3


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(
        TaskError, match="among kv, .*needle, .*recall, .*but got 'needles'. Did you mean needle"
    ):
        make_task("needles")


@pytest.mark.parametrize("name", [[], None, {}])
def test_a_name_that_is_no_text_is_refused(name):
    with pytest.raises(TaskError, match="name of a task such as kv or leval:tpo, but got"):
        make_task(name)


def test_an_unknown_option_lists_the_known_ones():
    with pytest.raises(TaskError, match="'kv' to be among n_pairs, data, drawn, but got pairs"):
        make_task("kv", pairs=3)


def test_every_exported_name_exists():
    for name in lpes_evo.problems.__all__:
        assert getattr(lpes_evo.problems, name) is not None


def test_an_unknown_export_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nothing"):
        _ = lpes_evo.problems.nothing


def test_tasks_load_neither_torch_nor_transformers(tmp_path):
    code = (
        "import sys; from lpes_evo.problems import make_task, aggregate, ModelProblem, encode_examples, "
        "score_answers; "
        "make_task('kv'); print([name for name in ('torch', 'transformers', 'matplotlib') if name in "
        "sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert result.stdout.strip() == "[]"
