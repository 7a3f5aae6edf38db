"""Faults of evaluations that were found by bad input and interruptions, each as a promise."""

import itertools
import json

import numpy as np
import pytest

from lpes_evo.errors import ConfigError, JournalError, TaskError
from lpes_evo.evals import (
    EvalConfig,
    EvalFolder,
    answer_key,
    compare_evaluations,
    load_results,
    run_evaluation,
    score_interval,
    score_predictions,
)
from lpes_evo.problems import DataRequest, Example, Task, make_task
from lpes_evo.scales import Scales, load_scales
from lpes_evo.statistics import wilson_interval
from lpes_evo.storage import read_journal


def scales(value):
    return Scales(
        model="tiny",
        scales=(value,) * 4,
        control_points=((0.0, value), (3.0, value)),
        task="recall",
        fitness=(0.0,),
    )


def write_records(path, numbers, key="key"):
    lines = [
        {
            "ordered_kv_records": [[f"{key}-{number}-{pair}", f"value-{number}-{pair}"] for pair in range(4)],
            "key": f"{key}-{number}-1",
            "value": f"value-{number}-1",
        }
        for number in numbers
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_scales_that_a_failed_start_left_behind_are_not_those_of_the_next_one(tmp_path, monkeypatch):
    def refuse(*_arguments, **_options):
        raise ConfigError("no such device")

    def config(value):
        file = tmp_path / f"{value}.json"
        scales(value).save(file)
        return EvalConfig(tasks=("recall:8",), model={"name": "tiny"}, scales=str(file), limit=1)

    folder = EvalFolder(tmp_path / "out")
    folder.path.mkdir()
    with monkeypatch.context() as patch:
        patch.setattr("lpes_evo.evals._run.make_pool", refuse)
        with pytest.raises(ConfigError, match="no such device"):
            run_evaluation(config(1.5), folder, devices="cpu")
    run_evaluation(config(0.9), folder, devices="cpu")
    assert load_scales(folder.scales).scales == (0.9,) * 4

    # Once there are answers, the copy in the folder counts.
    begun = config(0.9)
    (tmp_path / "0.9.json").unlink()
    folder.results.unlink()
    run_evaluation(begun, folder, devices="cpu")
    assert load_scales(folder.scales).scales == (0.9,) * 4


def test_a_record_is_known_again_in_another_order_and_file(tmp_path):
    (tmp_path / "other").mkdir()
    paths = tmp_path / "kv-retrieval-4_keys.jsonl", tmp_path / "other" / "slice.jsonl"
    write_records(paths[0], range(8))
    write_records(paths[1], [5, 3, 1, 0])
    sources = [
        {
            example.source
            for split in ("search", "report")
            for example in make_task("kv", data=path).examples(
                DataRequest(positions=(0.0,), limit=n, seed=0, split=split)
            )
        }
        for path, n in zip(paths, (4, 2), strict=True)
    ]
    assert (len(sources[0]), len(sources[1])) == (8, 4)
    assert sources[1] < sources[0]


def test_a_key_with_a_quote_is_found_in_its_prompt(tmp_path):
    write_records(tmp_path / "kv-retrieval-4_keys.jsonl", range(6), key='a"b')
    (made, *_) = make_task("kv").examples(DataRequest(folder=tmp_path, positions=(0.5,), limit=1))
    assert made.answers[0] in made.prompt[slice(*made.gold)]


@pytest.mark.parametrize(("value", "unit"), [(1.0, 1.0), (0.0, 1.0), (100.0, 100.0)])
def test_few_equal_scores_are_no_certainty(value, unit):
    scores = np.full((6, 1), value)
    low, high = wilson_interval(3 if value else 0, 3)
    assert score_interval(None, scores, ["a", "a", "b", "b", "c", "c"])[1:3] == (unit * low, unit * high)
    assert high - low > 0.3


class Faulty(Task):
    name = "faulty"
    metric = "accuracy"

    def __init__(self, result):
        self.result = result

    def examples(self, request):
        return [Example(id="one", prompt="x", answers=("y",))]

    def score(self, output, example):
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


@pytest.mark.parametrize("result", [(float("nan"),), (1.0, 2.0), 3.0, KeyError("boom")])
def test_a_task_of_a_user_that_fails_is_named_with_its_example(result, tmp_path):
    file = tmp_path / "outputs.jsonl"
    file.write_text('{"id": "one", "output": "y"}\n')
    with pytest.raises(
        TaskError, match=r"method score of Faulty in .*attack_test\.py.* for the example 'one' it"
    ):
        score_predictions(Faulty(result), file)


def test_evaluations_that_asked_in_different_ways_are_not_compared(tmp_path, monkeypatch):
    folders = []
    for name, over_length in (("a", "error"), ("b", "cut")):
        folder = EvalFolder(tmp_path / name)
        folder.create(EvalConfig(tasks=("recall",), model={"name": "tiny"}, over_length=over_length))
        folders.append(folder)
    nothing = type("Results", (), {"tasks": ()})()
    monkeypatch.setattr("lpes_evo.evals._compare.load_results", lambda _path: nothing)
    with pytest.raises(
        JournalError,
        match=r"asked for in one way, but .*a has over_length error and .*b has over_length cut\. Use",
    ):
        compare_evaluations(*folders)


def test_names_with_a_slash_keep_their_answers_apart():
    keys = {
        answer_key(*names)
        for names in itertools.product(
            ("a", "a/b", "a%2Fb", "a%"), ("c", "b/c", "b"), ("d", "c/d", "b/c/d", "%")
        )
    }
    assert len(keys) == 4 * 3 * 4
    assert answer_key("untouched", "kv:25+drawn", "kv/report/0") == "untouched/kv:25+drawn/kv/report/0"


def test_files_nested_too_deeply_are_one_line(tmp_path):
    deep = "[" * 100_000 + "]" * 100_000
    (tmp_path / "results.json").write_text(deep)
    with pytest.raises(JournalError, match="results.json to be JSON, but it is not"):
        load_results(tmp_path)
    (tmp_path / "answers.jsonl").write_text(f"{{}}\n{deep}\n")
    with pytest.raises(JournalError, match="line 2 of .*answers.jsonl to be a JSON object"):
        read_journal(tmp_path / "answers.jsonl")


def test_a_name_that_is_too_long_is_no_evaluation(tmp_path):
    with pytest.raises(JournalError, match="it cannot be read: File name too long"):
        load_results(tmp_path / ("a" * 300))


def test_a_task_with_a_long_name_has_its_picture(tmp_path):
    pictures = {EvalFolder(tmp_path).picture("a" * length) for length in (5, 300, 301)}
    assert len(pictures) == 3
    for path in pictures:
        path.write_bytes(b"")


def test_shots_that_no_task_takes_are_refused():
    with pytest.raises(ConfigError, match="Expected shots only with mmlu, ceval-valid or an lm: task"):
        EvalConfig(tasks=("recall",), shots=2)
    assert EvalConfig(tasks=("recall", "lm:arc"), shots=2).shots == 2
