"""The page about tasks is true: its example runs as written, and it names every task and option."""

import json
import re
from pathlib import Path

import pytest

from lpes_evo.errors import TaskError
from lpes_evo.evals import score_predictions
from lpes_evo.problems import DataRequest, make_task, task_names

PAGE = (Path(__file__).parents[2] / "docs" / "tasks.md").read_text(encoding="utf-8")


@pytest.fixture
def box_task(tmp_path):
    (source,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    path = tmp_path / "secret_task.py"
    path.write_text(source)
    return f"{path}:BoxTask"


def test_the_example_task_runs_as_written(box_task, tmp_path):
    request = DataRequest(positions=(0.0, 1.0), limit=3, split="report")
    made = make_task(box_task).examples(request)
    assert [example.position for example in made] == [0.0] * 3 + [1.0] * 3
    assert made == make_task(box_task).examples(request)
    for example in made:
        box = re.search(r"box (\d+)\?", example.prompt).group(1)
        assert example.prompt[slice(*example.gold)] == f"Box {box} is {example.answers[0]}."
        assert example.prompt[example.cut[1] :].startswith("\n\nWhich")
    file = tmp_path / "answers.jsonl"
    file.write_text(
        "".join(
            json.dumps({"id": example.id, "output": example.answers[0] if example.position else "grey"})
            + "\n"
            for example in made
        )
    )
    result = score_predictions(box_task, file, request)
    assert (result.task, result.score, result.n) == ("boxes", 0.5, 6)


def test_the_table_names_every_task_and_each_of_its_options_is_known():
    rows = re.findall(r"^\| `([a-z]+)(?::NAME|:FILE)?` \|[^|]*\|([^|]*)\|", PAGE, re.MULTILINE)
    variants = {family: variant for family, _, variant in (name.partition(":") for name in task_names())}
    assert {name for name, _ in rows} == set(variants)
    (own,) = [options for name, options in rows if name == "qa"]
    for option in re.findall(r"`\+([a-z]+)=", own):
        with pytest.raises(TaskError, match=f"\\+{option}"):
            make_task(f"qa:log.jsonl+{option}")

    for name, options in rows:
        if name == "qa":
            continue
        variant = variants[name]
        for option in re.findall(r"`(\+[a-z]+(?:=N)?)`", options):
            spec = name + (f":{'news_summ' if name == 'leval' else variant}" if variant else "")
            task = make_task(spec + ("+built" if option == "+bm25" else "") + option.replace("N", "3"))
            assert option.partition("=")[0] in task.name
