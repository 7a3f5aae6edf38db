"""Tasks of lm-evaluation-harness inside an evaluation, with task files of a few local questions."""

import functools

import pytest

pytest.importorskip("lm_eval", reason="the extra [eval] is not installed")

from lpes_evo.errors import JournalError, TaskError
from lpes_evo.evals import EvalConfig, EvalFolder, compare_evaluations, run_evaluation
from lpes_evo.operators import CurveSpace
from lpes_evo.scales import Scales
from samples import rewrite_journal
from tests.evals.harness_test import questions, write_task


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tasks")
    write_task(folder, "recall_small", questions(4))
    write_task(folder, "recall_large", questions(12, n_wrong=6))
    (folder / "recall_both.yaml").write_text("group: recall_both\ntask: [recall_small, recall_large]\n")
    unlabelled = questions(4)
    unlabelled[2]["label"] = None
    write_task(folder, "unlabelled", unlabelled)
    # Positions that all but vanish leave the model without the order of the words.
    scales = CurveSpace(6, 2).draw([((0.0, 1000.0), (5.0, 1000.0))])[0]
    absurd = Scales("tiny", tuple(scales.tolist()), ((0.0, 1000.0), (5.0, 1000.0)), "recall", (0.0,))
    absurd.save(folder / "scales.json")
    return folder


@pytest.fixture(autouse=True)
def own_tasks(monkeypatch):
    """Keep the harness from reading its own 14,000 task files, which takes longer than all tests here."""
    import lm_eval.tasks

    monkeypatch.setattr(
        lm_eval.tasks, "TaskManager", functools.partial(lm_eval.tasks.TaskManager, include_defaults=False)
    )


def evaluate(config, path):
    folder = EvalFolder(path)
    if not folder.config.exists():
        folder.create(config)
    return run_evaluation(config, folder, devices="in-process")


def test_a_group_of_subjects_is_one_task_with_macro_headline_micro_beside_and_the_arm_in_force(
    folder, tmp_path
):
    config = EvalConfig(
        tasks=("lm:recall_both", "recall:20"), data=str(folder), scales=str(folder / "scales.json"),
        positions=(0.5,), limit=12,
    )  # fmt: skip
    results = evaluate(config, tmp_path / "out")
    assert [task.name for task in results.tasks] == ["recall:20", "lm:recall_both"]
    task = results.tasks[1]
    assert task.metric == "macro average of acc"
    plain, absurd = task.arms["untouched"].overall, task.arms["lpes"].overall
    assert plain.score == 0.75
    assert absurd.score < 0.6
    assert absurd.difference.value == pytest.approx(absurd.score - plain.score)
    assert (plain.n, task.n_examples) == (16, 16)
    assert "micro average: untouched 0.6250" in task.notes[0]
    assert task.notes[1].startswith("0 shots; task version 3")
    lines = (tmp_path / "out" / "answers.jsonl").read_text()
    assert evaluate(config, tmp_path / "out").tasks == results.tasks
    assert (tmp_path / "out" / "answers.jsonl").read_text() == lines
    rows = compare_evaluations(EvalFolder(tmp_path / "out"), EvalFolder(tmp_path / "out"))
    assert {(row.task, row.arm, row.difference.value) for row in rows} == {
        (name, arm, 0.0) for name in ("recall:20", "lm:recall_both") for arm in ("untouched", "lpes")
    }


def test_missing_labels_are_an_error_and_what_was_scored_stays(folder, tmp_path):
    config = EvalConfig(tasks=("recall:20", "lm:unlabelled"), data=str(folder), positions=(0.5,), limit=3)
    results = evaluate(config, tmp_path / "out")
    assert [task.name for task in results.tasks] == ["recall:20"]
    assert "question 2 cannot be scored: its label is None" in results.missing["lm:unlabelled"]
    assert len((tmp_path / "out" / "answers.jsonl").read_text().splitlines()) == 1 + 3
    with pytest.raises(TaskError, match="question 2 cannot be scored: its label is None"):
        evaluate(EvalConfig(tasks=("lm:unlabelled",), data=str(folder), limit=3), tmp_path / "alone")


def test_an_edited_score_is_refused(folder, tmp_path):
    config = EvalConfig(tasks=("lm:recall_small",), data=str(folder))
    evaluate(config, tmp_path / "out")
    path = tmp_path / "out" / "answers.jsonl"
    rewrite_journal(path, lambda records: records[0]["harness"].update(macro="high"))
    with pytest.raises(JournalError, match="Expected the scores of 'lm:recall_small' under untouched"):
        evaluate(config, tmp_path / "out")
