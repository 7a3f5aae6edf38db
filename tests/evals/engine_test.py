import functools
import json
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from tokenizers import processors

from lpes_evo.cli import evaluate as evaluate_command
from lpes_evo.errors import EvaluationError, JournalError, ModelError, ScalesError, TaskError
from lpes_evo.evals import (
    Arm,
    EvalConfig,
    EvalFolder,
    EvalTarget,
    answer_batch,
    compare_evaluations,
    draw_tasks,
    load_results,
    make_arms,
    markdown_table,
    run_evaluation,
    try_sharing,
)
from lpes_evo.methods import Baseline, Lpes
from lpes_evo.operators import CurveSpace
from lpes_evo.problems import DataRequest, ModelProblem, generate_greedy, make_task
from lpes_evo.reporting import Reporter
from lpes_evo.scales import Scales
from samples import build_llama, build_tokenizer, without_checksums

POINTS = ((0.0, 0.9), (0.0, 2.8), (5.0, 2.7), (5.0, 2.6))

TASKS = """
from lpes_evo.problems import Example, Task


class Base(Task):
    metric = "accuracy"

    def examples(self, request):
        return [
            Example(f"q{n}", prompt=" ".join(map(str, range(3, 9 + 2 * n))), answers=("5",), source=f"s{n}",
                        position=n % 2, max_new_tokens=3, cut=(2, 9))
            for n in range(6)
        ]

    def score(self, output, example):
        return (float(len(output) % 2),)


class Plain(Base):
    name = "plain"


class Trap(Base):
    name = "trap"

    def score(self, output, example):
        if example.id in ("q1", "q4"):
            raise KeyError("no such field")
        return (1.0,)


class Endless(Base):
    name = "endless"

    def score(self, output, example):
        return (float("nan"),)


class Text(Base):
    name = "text"
    metric = "nats per token"
    kind = "likelihood"
    parts = ("nats", "tokens")
    larger_is_better = False

    def examples(self, request):
        return [
            Example(f"t{n}", prompt="", answers=(" ".join(map(str, range(2, 150 + n))),), source=f"s{n}")
            for n in range(4)
        ]

    def headline(self, scores):
        return float(scores[:, 0].sum() / scores[:, 1].sum())


class Continued(Text):
    name = "continued"

    def examples(self, request):
        return [Example(f"t{n}", prompt="3 4", answers=("5 " * (3 if n else 90),)) for n in range(4)]


class Forced(Base):
    name = "forced"
    teacher_forcing = True

    def examples(self, request):
        from lpes_evo.problems import make_task

        return make_task("recall:20").examples(request)

    def score(self, output, example):
        return (float(output.split()[:1] == [example.answers[0]]),)


class Asked(Forced):
    name = "asked"

    def examples(self, request):
        texts = [" ".join(str((7 * n + 3 * m) % 90) for m in range(60 + n)) for n in range(3)]
        return [
            Example(f"{n}-{key}", prompt=f"{texts[n]} {key}", answers=(f"{key + 1} {key}",), source=f"s{n}")
            for key in range(4)
            for n in range(3)
        ]
"""


@pytest.fixture
def tasks_file(tmp_path):
    file = tmp_path / "my_tasks.py"
    file.write_text(TASKS)
    return file


@pytest.fixture
def scales_file(tmp_path):
    scales = CurveSpace(6, 4).draw([POINTS])[0]
    file = tmp_path / "found" / "scales.json"
    file.parent.mkdir()
    Scales("tiny", tuple(scales.tolist()), POINTS, "recall", (-0.1,)).save(file)
    return file


WITHOUT_POSITIONS = ("Text", "Continued", "Seen")


def configured(*tasks, **settings):
    places = any(not task.endswith(WITHOUT_POSITIONS) for task in tasks)
    chosen = {"limit": 4} | ({"positions": (0.0, 0.5)} if places else {})
    return EvalConfig(tasks=tasks, **(chosen | settings))


def evaluate(config, path, **options):
    folder = EvalFolder(path)
    folder.create(config)
    return run_evaluation(config, folder, devices="in-process", **options)


def lines(path):
    return [json.loads(line) for line in (path / "answers.jsonl").read_text().splitlines()[1:]]


def test_an_evaluation_gives_the_scores_that_the_search_problem_gives(tmp_path, scales_file):
    config = configured("recall:64", scales=str(scales_file), limit=12)
    results = evaluate(config, tmp_path / "out")
    (drawn,), _ = draw_tasks(config)
    task = make_task("recall", n_pairs=64)
    from lpes_evo.models import load_model

    examples = task.examples(DataRequest(positions=[0.0, 0.5], limit=12, seed=0, split="report"))
    problem = ModelProblem(load_model("tiny"), examples)
    (found,) = results.tasks
    assert found.n_examples == len(drawn.examples) == 24
    for name, scales in (("untouched", np.ones(6)), ("lpes", results.arms["lpes"]["scales"])):
        assert found.arms[name].overall.score == problem.evaluate(scales).correct.mean()
    gain = found.arms["lpes"].overall.score - found.arms["untouched"].overall.score
    assert found.arms["lpes"].overall.difference.value == pytest.approx(gain)
    assert gain > 0
    assert load_results(tmp_path / "out") == results
    assert (tmp_path / "out" / "positions-recall-64.png").read_bytes().startswith(b"\x89PNG")


def test_a_resumed_evaluation_does_only_what_is_missing_and_ends_the_same(tmp_path, scales_file, monkeypatch):
    config = configured("recall:20", scales=str(scales_file), batch_tokens=150)
    results = evaluate(config, tmp_path / "straight")
    whole = (tmp_path / "straight" / "answers.jsonl").read_text().splitlines(keepends=True)
    assert len(whole) == 1 + 2 * 8
    asked = []
    original = generate_greedy

    def counted(model, prompts, *arguments, **options):
        asked.append(len(prompts))
        return original(model, prompts, *arguments, **options)

    monkeypatch.setattr("lpes_evo.evals._engines.generate_greedy", counted)
    for n_kept in (1, 2, 6, 16, 17):
        asked.clear()
        path = tmp_path / f"cut-{n_kept}"
        EvalFolder(path).create(config)
        (path / "answers.jsonl").write_text("".join(whole[:n_kept]) + '{"key": "torn')
        again = run_evaluation(config, EvalFolder(path), devices="in-process")
        assert again.tasks == results.tasks
        assert (path / "answers.jsonl").read_text() == "".join(whole)
        # Batches of 3: an answer that is there keeps the others of its batch company at most.
        assert sum(asked) - (17 - n_kept) in range(3)


def test_all_arms_meet_an_example_in_the_same_batch(tmp_path, scales_file, monkeypatch):
    batches = {}
    original = answer_batch

    def noted(target, arm, examples, *arguments):
        batches.setdefault(arm.name, []).append([example.id for example in examples])
        return original(target, arm, examples, *arguments)

    monkeypatch.setattr("lpes_evo.evals._answers.answer_batch", noted)
    evaluate(configured("recall:20", scales=str(scales_file), batch_tokens=100), tmp_path / "out")
    assert batches["untouched"] == batches["lpes"]
    assert len(batches["lpes"]) == 4


def test_a_failing_example_is_written_down_and_ends_nothing(tmp_path, tasks_file):
    results = evaluate(configured(f"{tasks_file}:Trap"), tmp_path / "out")
    (task,) = results.tasks
    assert task.arms["untouched"].n_failed == 2
    assert (task.arms["untouched"].overall.n, task.arms["untouched"].overall.score) == (4, 1.0)
    assert any("2 examples have no answer" in note for note in task.notes)
    failed = [line for line in lines(tmp_path / "out") if line["status"] == "failed"]
    assert sorted(line["key"] for line in failed) == [
        "failure 1 of untouched/trap/q1",
        "failure 1 of untouched/trap/q4",
    ]
    assert all("KeyError: 'no such field'" in line["error"] for line in failed)
    tasks_file.write_text(TASKS.replace('("q1", "q4")', "()"))
    again = run_evaluation(
        configured(f"{tasks_file}:Trap"), EvalFolder(tmp_path / "out"), devices="in-process"
    )
    assert again.tasks[0].arms["untouched"].overall.n == 6
    assert again.tasks[0].arms["untouched"].n_failed == 0


def test_an_arm_that_answers_nothing_is_a_failed_run_that_says_why(tmp_path, tasks_file):
    with pytest.raises(
        EvaluationError,
        match=r"all 6 failed, first: .*score of Endless in .*my_tasks\.py.* 'q0' it gave \(nan,\)",
    ):
        evaluate(configured(f"{tasks_file}:Endless"), tmp_path / "out")


def test_a_batch_lost_with_its_worker_fails_alone(tmp_path, tasks_file, monkeypatch):
    def lost(target, arm, examples, *arguments):
        if examples[0].id == "q5":
            raise RuntimeError("the worker is gone")
        return answer_batch(target, arm, examples, *arguments)

    monkeypatch.setattr("lpes_evo.evals._answers.answer_batch", lost)
    results = evaluate(configured(f"{tasks_file}:Plain", batch_tokens=40), tmp_path / "out")
    assert results.tasks[0].arms["untouched"].n_failed == 2
    failed = {line["key"]: line["error"] for line in lines(tmp_path / "out") if line["status"] == "failed"}
    assert set(failed) == {"failure 1 of untouched/plain/q5", "failure 1 of untouched/plain/q4"}
    assert all("the worker is gone" in error for error in failed.values())


@pytest.mark.slow
def test_a_cause_that_is_not_in_the_examples_ends_the_run(tmp_path, monkeypatch):
    def broken(*arguments, **options):
        raise RuntimeError("no kernel for this device")

    monkeypatch.setattr("lpes_evo.evals._engines.generate_greedy", broken)
    message = "20 in a row failed, last .* under untouched: RuntimeError: no kernel for this device"
    with pytest.raises(EvaluationError, match=message):
        evaluate(configured("recall:20", limit=30), tmp_path / "out")
    monkeypatch.undo()
    config = EvalFolder(tmp_path / "out").load_config()
    assert (
        run_evaluation(config, EvalFolder(tmp_path / "out"), devices="in-process").tasks[0].n_examples == 60
    )


def test_a_batch_that_does_not_fit_is_answered_in_halves(tmp_path, tasks_file, monkeypatch):
    expected = evaluate(configured(f"{tasks_file}:Plain"), tmp_path / "whole")
    original = generate_greedy

    def short_of_memory(model, prompts, *arguments, **options):
        if len(prompts) > 2:
            raise RuntimeError("CUDA out of memory")
        return original(model, prompts, *arguments, **options)

    monkeypatch.setattr("lpes_evo.evals._engines.generate_greedy", short_of_memory)
    results = evaluate(configured(f"{tasks_file}:Plain"), tmp_path / "halves")
    arm = results.tasks[0].arms["untouched"]
    assert arm.overall == expected.tasks[0].arms["untouched"].overall
    assert (arm.n_failed, arm.n_in_smaller_batches) == (0, 6)
    assert any("6 examples were answered in smaller batches" in note for note in results.tasks[0].notes)
    assert {line["n_rows"] for line in lines(tmp_path / "halves")} == {1, 2}


def test_the_likelihood_of_texts_is_summed_over_their_windows(tmp_path, tasks_file):
    import torch

    from lpes_evo.models import load_model

    results = evaluate(configured(f"{tasks_file}:Text", max_length=64), tmp_path / "out")
    loaded = load_model("tiny")
    nats = tokens = 0
    for n in range(4):
        ids = loaded.tokenizer(" ".join(map(str, range(2, 150 + n))), add_special_tokens=False)["input_ids"]
        for start in range(0, len(ids), 63):
            window = torch.tensor([[loaded.tokenizer.bos_token_id, *ids[start : start + 63]]])
            logits = loaded.model(window).logits[0, :-1].log_softmax(-1)
            nats -= float(logits.gather(-1, window[0, 1:, None]).sum())
            tokens += window.shape[1] - 1
    (task,) = results.tasks
    assert task.arms["untouched"].overall.score == pytest.approx(nats / tokens, rel=1e-5)
    assert task.mode == "likelihood"
    assert sum(line["score"][1] for line in lines(tmp_path / "out")) == tokens
    assert not list((tmp_path / "out").glob("*.png"))


def test_teacher_forcing_stands_for_generation_only_where_the_metric_allows_it(tmp_path, tasks_file):
    tasks = (f"{tasks_file}:Forced", f"{tasks_file}:Plain")
    generated = evaluate(configured(*tasks, limit=8), tmp_path / "generated").tasks
    forced = evaluate(configured(*tasks, limit=8, teacher_forcing=True), tmp_path / "forced").tasks
    assert [task.mode for task in generated] == ["generation", "generation"]
    assert [task.mode for task in forced] == ["teacher forcing", "generation"]
    assert forced[0].arms["untouched"].overall == generated[0].arms["untouched"].overall
    assert "the metric does not allow teacher forcing" in forced[1].notes[0]
    first = lines(tmp_path / "forced")[0]
    assert first["nats"] > 0
    assert first["n_output"] == 1


@pytest.mark.parametrize(
    ("over_length", "n_skipped", "n_cut", "n_examples"), [("skip", 2, 0, 4), ("cut", 0, 2, 6)]
)
def test_long_examples_are_skipped_or_cut_and_counted(
    tmp_path, tasks_file, over_length, n_skipped, n_cut, n_examples
):
    # Prompts have 7 to 17 tokens, and 3 more are for the answer.
    config = configured(f"{tasks_file}:Plain", max_length=17, over_length=over_length)
    (task,) = evaluate(config, tmp_path / "out").tasks
    assert (task.n_skipped, task.n_cut, task.n_examples) == (n_skipped, n_cut, n_examples)
    assert task.notes
    assert sum(line["n_cut"] > 0 for line in lines(tmp_path / "out")) == n_cut


def test_a_long_example_is_refused_by_default(tmp_path, tasks_file):
    with pytest.raises(
        TaskError, match=r"but 2 of 6 do not, first 'q4': it is 1 tokens longer.*--over-length skip"
    ):
        evaluate(configured(f"{tasks_file}:Plain", max_length=17), tmp_path / "out")


@pytest.mark.parametrize(
    ("task", "window", "over_length", "message"),
    [
        ("Plain", 5, "error", "but 6 of 6 do not.* included. Cut their documents with --over-length cut"),
        ("Plain", 5, "skip", "but 6 of 6 do not.* included. Cut their documents with --over-length cut"),
        ("Plain", 5, "cut", "but 6 of 6 do not.*its document has only .*Make the task smaller"),
        ("Continued", 64, "error", "but 1 of 4 do not.* Skip such examples .*; no part of them may be cut"),
        ("Continued", 3, "cut", "but 4 of 4 do not.* Give texts of two tokens at least that fit the window"),
    ],
)
def test_the_remedy_for_a_long_example_is_one_that_helps(
    tmp_path, tasks_file, task, window, over_length, message
):
    config = configured(f"{tasks_file}:{task}", max_length=window, over_length=over_length)
    with pytest.raises(TaskError, match=message):
        evaluate(config, tmp_path / "out")


@pytest.mark.parametrize("task", ["Plain", "Text", "Forced"])
def test_the_size_of_batches_changes_no_table(tmp_path, tasks_file, task):
    settings = {"limit": 6, "teacher_forcing": task == "Forced", "max_length": 64 if task == "Text" else None}
    tables = [
        markdown_table(
            evaluate(
                configured(f"{tasks_file}:{task}", batch_tokens=budget, **settings), tmp_path / str(budget)
            )
        )
        for budget in (64, 8192)
    ]
    assert tables[0] == tables[1]
    assert {line["n_rows"] for line in lines(tmp_path / "8192")} != {
        line["n_rows"] for line in lines(tmp_path / "64")
    }


@pytest.mark.parametrize("spec", ["baseline", "pi:1.5", "attention-buckets:tool", "ms-poe"])
def test_questions_about_one_text_share_a_run_over_it_where_the_method_allows(tasks_file, spec):
    from lpes_evo.models import load_model

    config = configured(f"{tasks_file}:Asked", teacher_forcing=True)
    target = EvalTarget.of(load_model("tiny"), config)
    examples = draw_tasks(config)[0][0].examples
    arm = make_arms(None, [spec])[-1]
    alone = [answer_batch(target, arm, [example], "teacher forcing", 1024)[0] for example in examples]
    widths = []
    sharing = try_sharing(target, [arm], examples, 1024)[arm.name]
    assert sharing.is_sound == (spec != "ms-poe")
    target.loaded.model.model.register_forward_pre_hook(
        lambda _, __, inputs: widths.append(inputs["input_ids"].numel()), with_kwargs=True
    )
    together = answer_batch(target, arm, examples, "teacher forcing", 1024, sharing.is_sound)
    assert [answer.output for answer in together] == [answer.output for answer in alone]
    assert [answer.nats for answer in together] == pytest.approx(
        [answer.nats for answer in alone], rel=1e-4, abs=1e-4
    )
    n_apart = sum(answer.n_prompt + answer.n_output - 1 for answer in alone) * arm.record(6).get("streams", 1)
    assert sum(widths) == n_apart if spec == "ms-poe" else sum(widths) < n_apart / 2


class HeardReporter(Reporter):
    """Keeps the lines."""

    def __init__(self):
        self.lines = []

    def stage(self, text):
        self.lines.append(text)


def test_an_evaluation_says_first_whether_prefixes_are_shared_and_why_not(tmp_path, tasks_file):
    reporter = HeardReporter()
    methods = ("baseline", "pi:1.5", "ms-poe")
    config = configured(
        f"{tasks_file}:Asked",
        f"{tasks_file}:Forced",
        f"{tasks_file}:Plain",
        teacher_forcing=True,
        methods=methods,
        limit=12,
    )
    evaluate(config, tmp_path / "out", reporter=reporter)
    told = [line for line in reporter.lines if "prefixes are" in line]
    assert len(told) == 3
    assert re.fullmatch(
        r"asked: prefixes are shared, \d+ tokens instead of \d+ \(under untouched, pi:1\.5\)", told[0]
    )
    assert (
        told[1]
        == "asked: prefixes are not shared, since the method chooses by the prompt of each row (under ms-poe)"
    )
    assert told[2] == "forced: prefixes are not shared, since no two examples have their first half in common"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (torch.OutOfMemoryError("CUDA out of memory."), "OutOfMemoryError: CUDA out of memory."),
        (RuntimeError("no kernel\nfor this"), "RuntimeError: no kernel"),
    ],
)
def test_a_model_that_fails_while_sharing_is_tried_answers_without_it(tasks_file, monkeypatch, error, reason):
    from lpes_evo.models import load_model

    config = configured(f"{tasks_file}:Asked", teacher_forcing=True)
    target = EvalTarget.of(load_model("tiny"), config)
    arms = make_arms(None, ["baseline"])

    def failing(*arguments, **options):
        raise error

    monkeypatch.setattr("lpes_evo.problems._sharing.score_answers", failing)
    found = try_sharing(target, arms, draw_tasks(config)[0][0].examples, 1024)
    assert str(found["untouched"]) == f"prefixes are not shared, since the model failed on it ({reason})"


@pytest.fixture(scope="module")
def bare_model(tmp_path_factory):
    """The folder of a model that has no chat template, no padding, and nothing that begins or ends a text."""
    folder = tmp_path_factory.mktemp("models") / "bare"
    model = build_llama()
    for config in (model.config, model.generation_config):
        config.eos_token_id = config.bos_token_id = config.pad_token_id = None
    model.save_pretrained(folder)
    tokenizer = build_tokenizer()
    tokenizer.backend_tokenizer.post_processor = processors.Sequence([])
    tokenizer.bos_token = tokenizer.eos_token = None
    tokenizer.save_pretrained(folder)
    return folder


def test_a_model_without_special_tokens_or_template_answers_to_the_last_token_it_may(
    tmp_path, tasks_file, bare_model
):
    config = configured(
        f"{tasks_file}:Plain", f"{tasks_file}:Continued", model={"name": str(bare_model)}, batch_tokens=60
    )
    results = evaluate(config, tmp_path / "out")
    assert results.facts["ends"] == []
    assert [(task.n_examples, task.arms["untouched"].n_failed) for task in results.tasks] == [(6, 0), (4, 0)]
    answers = lines(tmp_path / "out")
    assert {line["n_output"] for line in answers if "/plain/" in line["key"]} == {3}
    assert 2 in {line["n_rows"] for line in answers if "/plain/" in line["key"]}
    # Bytes are the tokens, and nothing stands before them.
    assert [line["n_prompt"] for line in answers if "/plain/q0" in line["key"]] == [len("3 4 5 6 7 8")]


def test_a_chat_template_that_refuses_a_prompt_is_one_line(tmp_path, tasks_file, bare_model):
    import shutil

    folder = shutil.copytree(bare_model, tmp_path / "model")
    (folder / "chat_template.jinja").write_text("{{ raise_exception('no system role') }}")
    message = "chat template of the model to render the prompt of 'q0', but it raised .*no system role. Leave .*--no-ch"
    with pytest.raises(ModelError, match=message):
        evaluate(configured(f"{tasks_file}:Plain", model={"name": str(folder)}), tmp_path / "out")
    settings = {"model": {"name": str(folder)}, "chat_template": False}
    assert evaluate(configured(f"{tasks_file}:Plain", **settings), tmp_path / "without").tasks


def test_words_that_the_model_cannot_read_are_refused(tmp_path):
    with pytest.raises(TaskError, match="the embedded model knows only the task 'recall'"):
        evaluate(configured("needle:2"), tmp_path / "out")


def test_a_task_is_named_once(tmp_path):
    with pytest.raises(TaskError, match="'recall:48' is 'recall:48' again"):
        evaluate(configured("recall", "recall:48"), tmp_path / "out")


def test_a_curve_of_another_depth_is_read_off_anew_and_the_output_says_so(tmp_path):
    points = ((0.0, 0.9), (31.0, 1.4))
    scales = CurveSpace(32, 2).draw([points])[0]
    Scales("big", tuple(scales.tolist()), points, "needle", (0.0,)).save(tmp_path / "scales.json")
    results = evaluate(configured("recall:20", scales=str(tmp_path / "scales.json")), tmp_path / "out")
    assert results.arms["lpes"]["scales"] == pytest.approx(np.linspace(0.9, 1.4, 6))
    assert results.arms["lpes"]["found_at_depth"] == 32
    notes = " ".join(results.notes)
    assert "found on big (task needle) and are used on tiny" in notes
    assert "the curve of 32 layers is read off at the 6 of this model" in notes


def test_scales_that_do_not_go_with_the_model_are_refused_before_anything_is_asked(tmp_path):
    Scales("one", (1.2,), ((0.0, 1.2), (0.0, 1.2)), "needle", (0.0,)).save(tmp_path / "scales.json")
    with pytest.raises(ScalesError, match="at least 2 layers to carry a curve"):
        evaluate(configured("recall:20", scales=str(tmp_path / "scales.json")), tmp_path / "out")
    assert not (tmp_path / "out" / "answers.jsonl").exists()


@pytest.mark.parametrize(("split_seed", "overlap"), [("report", False), ("search", True)])
def test_examples_that_the_search_saw_are_refused(tmp_path, scales_file, tasks_file, split_seed, overlap):
    (scales_file.parent / "config.yaml").write_text(
        "task: {name: recall, options: {n_pairs: 20}}\nexamples: {n_per_position: 5}\nseed: 3\n"
    )
    tasks_file.write_text(
        TASKS
        + f"""
class Seen(Base):
    name = "seen"

    def examples(self, request):
        from lpes_evo.problems import DataRequest, make_task

        wanted = DataRequest(positions=[0.5], limit=2, seed=3, split={split_seed!r})
        drawn = make_task("recall", n_pairs=20).examples(wanted)
        return [Example(e.id, e.prompt, (e.answer,), source=e.source, max_new_tokens=1) for e in drawn]
"""
    )
    config = configured(f"{tasks_file}:Seen", scales=str(scales_file.parent))
    if overlap:
        with pytest.raises(
            TaskError, match="did not see, but 2 of 2 of the task 'seen' are made of material it used"
        ):
            evaluate(config, tmp_path / "out")
    else:
        notes = evaluate(config, tmp_path / "out").notes
        assert notes[0] == "None of the 15 examples of the search (task recall) is evaluated here"


def test_a_file_of_scales_alone_cannot_tell_what_the_search_saw(tmp_path, scales_file):
    results = evaluate(configured("recall:20", scales=str(scales_file)), tmp_path / "out")
    assert results.notes[0].startswith("Not checked whether the search saw these examples")


def test_other_scales_other_data_and_edited_scores_are_not_resumed(tmp_path, tasks_file):
    config = configured(f"{tasks_file}:Plain")
    evaluate(config, tmp_path / "out")
    path = tmp_path / "out" / "answers.jsonl"
    text = path.read_text()
    tasks_file.write_text(TASKS.replace("range(3, 9", "range(4, 9"))
    with pytest.raises(
        JournalError, match=r"to belong to this run, but its data of plain is another\. Resume with"
    ):
        run_evaluation(config, EvalFolder(tmp_path / "out"), devices="in-process")
    tasks_file.write_text(TASKS)
    path.write_text(text.replace('"score": [', '"score": ["a", ', 1))
    with pytest.raises(JournalError, match=r"line 2 of .*answers\.jsonl to have the checksum"):
        run_evaluation(config, EvalFolder(tmp_path / "out"), devices="in-process")
    without_checksums(path)
    with pytest.raises(JournalError, match=r"'untouched/plain/q.* to be an answer, but score\.0 is 'a'"):
        run_evaluation(config, EvalFolder(tmp_path / "out"), devices="in-process")


def test_two_evaluations_are_compared_example_by_example(tmp_path, scales_file):
    config = configured("recall:64", limit=12)
    evaluate(config, tmp_path / "first")
    evaluate(configured("recall:64", limit=12, scales=str(scales_file)), tmp_path / "second")
    (row,) = compare_evaluations(EvalFolder(tmp_path / "first"), EvalFolder(tmp_path / "second"))
    assert (row.task, row.arm, row.same_data) == ("recall:64", "untouched", True)
    assert (row.difference.value, row.difference.p_value, row.difference.n) == (0, 1, 24)
    evaluate(configured("recall:64", limit=12, seed=1), tmp_path / "other")
    with pytest.raises(
        JournalError, match="Expected scores of the same data, but the data of recall:64 differ"
    ):
        compare_evaluations(EvalFolder(tmp_path / "first"), EvalFolder(tmp_path / "other"))
    (row,) = compare_evaluations(EvalFolder(tmp_path / "first"), EvalFolder(tmp_path / "other"), force=True)
    assert (row.same_data, row.difference) == (False, None)
    evaluate(configured("recall:20"), tmp_path / "strange")
    with pytest.raises(JournalError, match="but they share none"):
        compare_evaluations(EvalFolder(tmp_path / "first"), EvalFolder(tmp_path / "strange"))


def test_a_comparison_of_other_data_is_refused_on_the_command_line_unless_it_is_forced(tmp_path, capsys):
    for seed in (0, 1):
        evaluate(configured("recall:20", seed=seed), tmp_path / str(seed))
    show = functools.partial(evaluate_command, resume=tmp_path / "0", against=tmp_path / "1")
    with pytest.raises(
        JournalError, match="the data of recall:20 differ: .* or --force to see the scores side by"
    ):
        show()
    show(force=True)
    shown = capsys.readouterr().out
    assert "different data" in shown
    assert "here minus there" in shown


def test_data_that_changed_after_an_evaluation_are_not_compared(tmp_path, tasks_file):
    config = configured(f"{tasks_file}:Trap")
    for name in ("first", "second"):
        evaluate(config, tmp_path / name)
    folders = EvalFolder(tmp_path / "first"), EvalFolder(tmp_path / "second")
    assert compare_evaluations(*folders)[0].difference.n == 4
    tasks_file.write_text(
        TASKS.replace('source=f"s{n}",\n                        position', 'source="",\n position')
    )
    with pytest.raises(
        JournalError, match="data of 'trap' to be as they were when .*first was made, but they have"
    ):
        compare_evaluations(*folders)


def test_a_folder_that_another_process_works_in_keeps_its_configuration(tmp_path):
    folder = EvalFolder(tmp_path / "evaluation")
    folder.create(configured("recall:20"))
    before = folder.config.read_bytes()
    with folder.locked(), pytest.raises(JournalError, match=r"alone, but another process works in it"):
        EvalFolder(folder.path).create(configured("recall:30"))
    assert folder.config.read_bytes() == before


def test_a_folder_with_another_evaluation_or_a_search_is_not_overwritten(tmp_path):
    (tmp_path / "answers.jsonl").write_text("")
    with pytest.raises(JournalError, match="is in use already"):
        EvalFolder(tmp_path).create(configured("recall:20"))
    (tmp_path / "answers.jsonl").rename(tmp_path / "journal.jsonl")
    with pytest.raises(JournalError, match="is in use already"):
        EvalFolder(tmp_path).create(configured("recall:20"))


def test_the_configuration_round_trips_through_its_folder(tmp_path):
    config = configured(
        "recall:20", scales="x.json", over_length="cut", model={"name": "tiny", "dtype": "float32"}
    )
    EvalFolder(tmp_path).create(config)
    assert EvalFolder(tmp_path).load_config() == config
    (tmp_path / "config.yaml").write_text("seed: 1\n")
    with pytest.raises(JournalError, match="configuration of an evaluation under the key eval"):
        EvalFolder(tmp_path).load_config()


def test_arms_leave_the_model_as_it_was(scales_file, tasks_file):
    from lpes_evo.models import load_model
    from lpes_evo.scales import load_scales

    loaded = load_model("tiny")
    config = configured(f"{tasks_file}:Plain")
    target = EvalTarget.of(loaded, config)
    examples = draw_tasks(config)[0][0].examples
    before = answer_batch(target, Arm("untouched", Baseline()), examples, "generation", 1024)
    changed = answer_batch(
        target, Arm("lpes", Lpes(scales=load_scales(scales_file))), examples, "generation", 1024
    )
    assert [answer.output for answer in changed] != [answer.output for answer in before]
    assert answer_batch(target, Arm("untouched", Baseline()), examples, "generation", 1024) == before


def test_the_driver_loads_no_torch(tmp_path):
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from lpes_evo.evals import EvalConfig, EvalFolder, run_evaluation\n"
        "if __name__ == '__main__':\n"
        "    config = EvalConfig(tasks=('recall:20',), limit=1, positions=(0.0,))\n"
        "    folder = EvalFolder(Path('out'))\n"
        "    folder.create(config)\n"
        "    run_evaluation(config, folder, devices='cpu')\n"
        "    print([name for name in ('torch', 'transformers') if name in sys.modules])\n"
    )
    (tmp_path / "script.py").write_text(script)
    result = subprocess.run(
        [sys.executable, "script.py"], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert result.stdout.strip() == "[]"
