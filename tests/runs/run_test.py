"""A whole run in this process: want of memory is flagged wherever its scores are shown."""

import io
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from rich.console import Console

from lpes_evo.config import load_config
from lpes_evo.errors import ConfigError, JournalError
from lpes_evo.problems import ModelProblem, Sharing
from lpes_evo.reporting import TerminalReporter
from lpes_evo.runs import RunFolder, describe, estimate_run, prepare, run_search, show_run
from samples import SMALL_RUN

SMALL = SMALL_RUN | {
    "search.population_size": 5,
    "search.generations": 0,
    "search.racing": False,
    "report.n_shuffles": 0,
}


def test_a_run_that_ran_out_of_memory_says_which_scores_are_from_smaller_batches(tmp_path, monkeypatch):
    config = load_config(preset="demo", overrides=SMALL)
    evaluate = ModelProblem._evaluate

    def untouched_needs_more(problem, curves, ids):
        if problem.batch_tokens > 1024 and (curves == 1.0).all(axis=1).any():
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return evaluate(problem, curves, ids)

    monkeypatch.setattr(ModelProblem, "_evaluate", untouched_needs_more)
    folder, console = RunFolder(tmp_path / "run"), Console(file=io.StringIO(), width=200)
    folder.create(config)
    result = run_search(config, folder, devices="in-process", reporter=TerminalReporter(console))
    lines = [json.loads(line) for line in folder.journal.read_text().splitlines()[1:]]
    halved = [line for line in lines if line.get("halvings")]
    assert 1 <= len(halved) < len(lines) == 5
    assert any({y for _, y in line["control_points"]} == {1.0} for line in halved)
    assert {line["halvings"] for line in halved} == {1}
    best = max(lines, key=lambda line: np.mean(line["values"]))
    methods = result.summary["methods"]
    ones = [name for name in methods if set(methods[name]["scales"]) == {1.0}]
    assert "untouched" in ones
    assert result.summary["smaller_batches"] == {
        "n_candidates": len(halved),
        "best": "halvings" in best,
        "methods": ones,
    }
    told = console.file.getvalue()
    assert told.count("an evaluation took 1/2 of the batch") == len(halved)
    shown = Console(file=io.StringIO(), width=200)
    show_run(folder.path, shown)
    assert f"Warning: {len(halved)} candidates" in shown.file.getvalue()
    assert f"the held-out examples of {', '.join(ones)} were scored in smaller" in shown.file.getvalue()
    # Resumed, it is told just the same, though nothing is evaluated.
    before = folder.journal.read_bytes()
    monkeypatch.setattr(ModelProblem, "_evaluate", None)
    again = run_search(config, folder, devices="in-process").summary
    assert {**again, "command": ""} == {**result.summary, "command": ""}
    assert folder.journal.read_bytes() == before


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        ({}, "no two examples have their first half in common"),
        ({"task.share_prefixes": False}, "task.share_prefixes is off"),
    ],
)
def test_the_first_lines_of_a_run_and_an_estimate_say_why_prefixes_are_not_shared(
    tmp_path, overrides, reason
):
    config = load_config(preset="demo", overrides=SMALL | overrides)
    folder, console = RunFolder(tmp_path / "run"), Console(file=io.StringIO(), width=200)
    folder.create(config)
    run_search(config, folder, devices="in-process", reporter=TerminalReporter(console))
    line = f"Search examples: prefixes are not shared, since {reason}"
    assert console.file.getvalue().splitlines()[2] == line
    assert estimate_run(config, devices="in-process", repeats=1).lines()[0] == line


def test_held_out_examples_that_differ_from_the_search_in_sharing_are_told_apart():
    job = describe(prepare(load_config(preset="demo", overrides=SMALL), "cpu"))
    sound, not_sound = Sharing(True, "5 tokens instead of 9"), Sharing(False, "they differ")

    def lines(search, report):
        facts = replace(job.search, sharing=search), replace(job.report, sharing=report)
        return replace(job, search=facts[0], report=facts[1]).sharing

    assert lines(sound, sound) == ["Search examples: prefixes are shared, 5 tokens instead of 9"]
    assert lines(sound, not_sound) == [
        "Search examples: prefixes are shared, 5 tokens instead of 9",
        "Held-out examples: prefixes are not shared, since they differ",
    ]


def test_a_folder_that_another_process_works_in_keeps_its_configuration(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.create(load_config(preset="demo", overrides=SMALL))
    before = folder.config.read_bytes()
    with folder.locked(), pytest.raises(JournalError, match=r"alone, but another process works in it"):
        RunFolder(folder.path).create(load_config(preset="demo", overrides=SMALL | {"seed": 7}))
    assert folder.config.read_bytes() == before


def test_a_limit_of_time_is_refused_where_no_worker_can_be_stopped(tmp_path):
    config, folder = load_config(preset="demo", overrides=SMALL), RunFolder(tmp_path / "run")
    folder.create(config)
    with pytest.raises(ConfigError, match=r"^Expected no limit of time in this process"):
        run_search(config, folder, devices="in-process", work_limit=5.0)


def test_the_record_of_a_run_on_an_adapter_with_notes_is_read_as_it_was_written(tmp_path):
    folder = RunFolder(tmp_path / "run")
    config = load_config(preset="demo")
    folder.create(config)
    hashes = dict.fromkeys(("config", "search_data", "report_data", "weights"), "0" * 64)
    record = hashes | {
        "base": "tiny", "notes": ["rope_freqs.weight was put into the config"], "dtype": "float32", "attention": "sdpa",
        "device": "cpu", "revision": None, "device_name": "a CPU", "n_layers": 6, "command": "lpes-evo search",
        "versions": {"python": "3.11.7"},
    }  # fmt: skip
    folder.write_config(config, record)
    assert folder.load_record() == record
