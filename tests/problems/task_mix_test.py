"""Tasks and guards as users write them."""

import pytest

from lpes_evo.errors import TaskError
from lpes_evo.problems import DEFAULT_TOLERANCE, TaskMix


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kv", {"kv": 1.0}),
        ("mdqa:5,kv:8*2,needle:8", {"mdqa:5": 1.0, "kv:8": 2.0, "needle:8": 1.0}),
        (" mdqa:5+built , needle:8+filler=3 * 0.5", {"mdqa:5+built": 1.0, "needle:8+filler=3": 0.5}),
        (r"qa:notes\, old.jsonl,kv:8", {"qa:notes, old.jsonl": 1.0, "kv:8": 1.0}),
        ("my_task.py:MyTask*3,kv", {"my_task.py:MyTask": 3.0, "kv": 1.0}),
    ],
)
def test_commas_divide_tasks_and_a_star_weighs_one(text, expected):
    mix = TaskMix.parse(text)
    assert mix.weights == expected
    assert mix.is_single == (len(expected) == 1)


@pytest.mark.parametrize(
    ("text", "name", "tolerance"),
    [
        ("perplexity", "perplexity", DEFAULT_TOLERANCE),
        ("perplexity:0.05", "perplexity", 0.05),
        ("perplexity:0.0", "perplexity", 0.0),
        ("perplexity:1e-3", "perplexity", 1e-3),
        ("kv:8", "kv:8", DEFAULT_TOLERANCE),
        ("kv:8:0.1", "kv:8", 0.1),
        ("kv:8:1", "kv:8", 1.0),
        ("mdqa:5+built:0.2", "mdqa:5+built", 0.2),
        ("leval:tpo", "leval:tpo", DEFAULT_TOLERANCE),
        ("my_task.py:MyTask:0.3", "my_task.py:MyTask", 0.3),
    ],
)
def test_a_guard_has_its_tolerance_behind_the_last_colon(text, name, tolerance):
    mix = TaskMix.parse("needle:8", [text])
    assert mix.tolerances == {name: tolerance}
    assert mix.names == ["needle:8", name]
    assert not mix.is_single


@pytest.mark.parametrize(
    ("tasks", "guards", "message"),
    [
        ("kv,", [], "each task once, with commas between, but got an empty name"),
        ("kv,kv*2", [], "but got 'kv' twice"),
        ("kv*0", [], "a weight above 0 behind the star, such as kv:8\\*2, but got '0'"),
        ("kv*much", [], "but got 'much'"),
        ("kv*nan", [], "but got 'nan'"),
        ("kv", ["perplexity:-0.1"], "a tolerance of at least 0 nats per token, but got '-0.1'"),
        ("kv", ["perplexity:-1"], "a tolerance of at least 0 nats per token, but got '-1'"),
        ("kv", ["perplexity", "perplexity:0.1"], "each guard once"),
        ("kv", ["kv:0.1"], "guards other than the tasks of the search, but got 'kv' as both"),
        ("kv", [""], "an empty name"),
    ],
)
def test_what_is_no_mixture_is_refused_in_a_line(tasks, guards, message):
    with pytest.raises(TaskError, match=message):
        TaskMix.parse(tasks, guards)
