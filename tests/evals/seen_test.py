"""What the search of the scales saw is left out of an evaluation of the same or of other data."""

import json

import pytest

from lpes_evo.errors import ScalesError, TaskError
from lpes_evo.evals import (
    EvalConfig,
    EvalFolder,
    compare_evaluations,
    draw_tasks,
    load_results,
    run_evaluation,
)
from lpes_evo.operators import CurveSpace
from lpes_evo.problems import DataRequest, examples_of, make_task, source_hash
from lpes_evo.scales import Scales, load_scales

POINTS = ((0.0, 0.9), (0.0, 2.8), (5.0, 2.7), (5.0, 2.6))


@pytest.fixture
def spec(tmp_path):
    """A file of prompts that the embedded model can read."""
    rows = [{"prompt": f"3 {n} 4 {n + 1} ? 3", "answer": str(n)} for n in range(10, 30)]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"qa:{tmp_path / 'log.jsonl'}"


def saved(path, sources, task="qa:log.jsonl"):
    scales = CurveSpace(6, 4).draw([POINTS])[0]
    seen = tuple(map(source_hash, sources))
    Scales("tiny", tuple(scales.tolist()), POINTS, task, (-0.1,), seen=seen).save(path)
    return str(path)


def evaluate(folder, *tasks, **settings):
    config = EvalConfig(model={"name": "tiny"}, tasks=tasks, **settings)
    folder.mkdir()
    place = EvalFolder(folder)
    place.create(config)
    return run_evaluation(config, place, devices="cpu")


def test_scales_keep_what_the_search_saw_and_older_files_load(tmp_path):
    file = tmp_path / "scales.json"
    saved(file, ["b", "a"])
    assert load_scales(file).seen == (source_hash("b"), source_hash("a"))
    saved(file, [])
    assert "seen" not in json.loads(file.read_text())
    assert load_scales(file).seen == ()
    file.write_text(file.read_text().replace('"task"', '"seen": [3], "task"'))
    with pytest.raises(ScalesError, match="seen"):
        load_scales(file)


def test_seen_sources_are_left_out_and_counted(tmp_path, spec):
    sources = [example.source for example in examples_of(make_task(spec), DataRequest())]
    file = saved(tmp_path / "scales.json", sources[:7])
    results = evaluate(tmp_path / "out", spec, "recall:8", scales=file, limit=20, positions=(0.5,))
    assert results.tasks[0].n_examples == 13
    assert results.tasks[1].n_examples == 20
    assert f"{spec}: left out 7 of 20 sources, which the search (task qa:log.jsonl) saw" in results.notes
    assert "recall:8: not made of the sources that the search saw" in results.notes
    assert not [note for note in results.notes if note.startswith("Not checked")]
    assert load_scales(tmp_path / "out" / "scales.json").seen == load_scales(file).seen
    run_evaluation(EvalFolder(tmp_path / "out").load_config(), EvalFolder(tmp_path / "out"), devices="cpu")
    assert load_results(tmp_path / "out").tasks[0].n_examples == 13


@pytest.mark.slow
def test_an_evaluation_of_what_was_left_is_compared_with_another_of_it(tmp_path, spec):
    sources = [example.source for example in examples_of(make_task(spec), DataRequest())]
    file = saved(tmp_path / "scales.json", sources[:7])
    for name in ("one", "two"):
        evaluate(tmp_path / name, spec, scales=file)
    found = compare_evaluations(EvalFolder(tmp_path / "one"), EvalFolder(tmp_path / "two"))
    assert [comparison.same_data for comparison in found] == [True, True]


@pytest.mark.parametrize(
    ("others", "note"),
    [
        (
            0,
            "nothing left out, since none of the 3 sources that the search (task qa:log.jsonl) saw is in these data",
        ),
        (
            2,
            "left out 2 of 20 sources, which the search (task qa:log.jsonl) saw; the other 3 that it saw are not in "
            "these data: the file is another, or changed",
        ),
    ],
)
def test_data_that_are_not_those_of_the_search_are_told(tmp_path, spec, others, note):
    sources = [example.source for example in examples_of(make_task(spec), DataRequest())]
    file = saved(tmp_path / "scales.json", [*sources[:others], "x", "y", "z"])
    assert f"{spec}: {note}" in evaluate(tmp_path / "out", spec, scales=file, limit=2).notes


def test_data_that_the_search_saw_whole_are_refused(tmp_path, spec):
    sources = [example.source for example in examples_of(make_task(spec), DataRequest())]
    with pytest.raises(TaskError, match="that the search did not see, but it saw all 20 different texts"):
        draw_tasks(EvalConfig(tasks=(spec,)), frozenset(map(source_hash, sources)))
