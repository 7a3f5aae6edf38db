import functools
import json
import os
import random
import subprocess
import sys

import numpy as np
import pytest
import torch
import yaml

pytest.importorskip("lm_eval", reason="the extra [eval] is not installed")

from lpes_evo import Scales, load_model
from lpes_evo.errors import ConfigError, ModelError, ScalesError, TaskError
from lpes_evo.evals.harness import (
    HARNESS_TASKS,
    LpesLM,
    is_harness_task,
    macro_average,
    run_harness,
    score_subject,
)
from lpes_evo.models import LoadedModel
from lpes_evo.operators import CurveSpace
from lpes_evo.problems import DataRequest, RecallTask
from samples import build_llama, build_tokenizer

ABSURD = [1000.0] * 6


def questions(n, n_wrong=0):
    """Recall prompts that the embedded model answers, with four values of the prompt to choose from.

    Even without positions the causal mask tells the first words of a prompt from the last, and with them some keys
    from values. So the gold pair and the other choices stand among the last eight of 16 pairs, all places alike.
    """
    draw = random.Random(0)
    positions = [slot / 15 for slot in range(8, 16)]
    examples = RecallTask(16).examples(
        DataRequest(positions=positions, limit=-(-n // 8), seed=n, split="search")
    )
    rows = []
    for example in draw.sample(examples, n):
        values = example.prompt.split()[17:32:2]
        choices = draw.sample([value for value in values if value != example.answer], 3)
        place = draw.randrange(4)
        choices.insert(place, example.answer)
        label = place if len(rows) >= n_wrong else (place + 1) % 4
        rows.append({"prompt": example.prompt, "choices": choices, "label": label})
    return rows


def write_task(folder, name, rows, **changes):
    data = folder / f"{name}.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = {
        "task": name,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(data)}, "cache_dir": str(folder / "cache")},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "{{prompt}}",
        "doc_to_choice": "choices",
        "doc_to_target": "label",
        "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
        "metadata": {"version": 3},
    }
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(settings | changes))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Task files of two subjects and their group, and some with faults."""
    folder = tmp_path_factory.mktemp("tasks")
    write_task(folder, "recall_small", questions(4))
    write_task(folder, "recall_large", questions(12, n_wrong=6))
    group = {
        "group": "recall_both",
        "task": ["recall_small", "recall_large"],
        "aggregate_metric_list": [{"metric": "acc", "weight_by_size": True}],
    }
    (folder / "recall_both.yaml").write_text(yaml.safe_dump(group))
    write_task(folder, "shots", questions(6), fewshot_split="test", fewshot_config={"sampler": "first_n"})
    write_task(folder, "no_shots", questions(2), num_fewshot=0)
    unlabelled = questions(4)
    unlabelled[2]["label"] = None
    write_task(folder, "unlabelled", unlabelled)
    outside = questions(4)
    outside[1]["label"] = 4
    write_task(folder, "outside", outside)
    letters = [row | {"answer": letter} for row, letter in zip(questions(3), "AB-", strict=True)]
    write_task(folder, "letters", letters, doc_to_target="{{['A', 'B', 'C', 'D'].index(answer)}}")
    write_task(folder, "likelihood", questions(3), metric_list=[{"metric": "brier_score"}])
    write_task(folder, "no_data", questions(1), dataset_kwargs={"data_files": str(folder / "nowhere.jsonl")})
    write_task(folder, "on_the_hub", questions(1), dataset_path="cais/mmlu", dataset_kwargs=None)
    write_task(
        folder,
        "spoken",
        [{"prompt": row["prompt"], "answer": row["choices"][row["label"]]} for row in questions(3)]
        + [{"prompt": " ".join(map(str, range(150))) * 4, "answer": "1"}],
        output_type="generate_until",
        doc_to_choice=None,
        doc_to_target="answer",
        generation_kwargs={"until": ["?"], "max_gen_toks": 1},
        metric_list=[{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
    )
    return folder


@pytest.fixture
def own_tasks(monkeypatch):
    """Keep the harness from reading its own 14,000 task files, which takes longer than all tests here."""
    import lm_eval.tasks

    quick = functools.partial(lm_eval.tasks.TaskManager, include_defaults=False)
    monkeypatch.setattr(lm_eval.tasks, "TaskManager", quick)


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """Keep the client of the hub from trying for half a minute."""
    import datasets
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)


@pytest.fixture(scope="module")
def embedded():
    return load_model("tiny")


def run(loaded, scales, task, folder, **options):
    return run_harness(loaded, scales, [f"lm:{task}"], include_path=folder, **options)[f"lm:{task}"]


def save_scales(path, model="tiny", n_layers=6, value=1.0):
    space = CurveSpace(n_layers, 4, y_min=0.6, y_max=3.0)
    points = [[x, value] for x in np.linspace(0, n_layers - 1, 4)]
    scales = space.decode([points])[0]
    Scales(model, tuple(scales), tuple(map(tuple, points)), "recall", (0.0,)).save(path)
    return path


def logits(loaded):
    tokens = torch.arange(40).reshape(1, -1) + 3
    with torch.no_grad():
        return loaded.model(tokens).logits


@pytest.mark.usefixtures("own_tasks")
def test_scales_of_one_and_no_scales_score_as_the_plain_model_type_of_the_harness(embedded, folder):
    from lm_eval import simple_evaluate
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    plain = simple_evaluate(
        model=HFLM(pretrained=embedded.model, tokenizer=embedded.tokenizer, backend="causal"),
        tasks=["recall_both"],
        task_manager=TaskManager(include_path=str(folder)),
        bootstrap_iters=0,
    )
    expected = {
        (subject, answer["doc_id"]): answer["resps"]
        for subject, answers in plain["samples"].items()
        for answer in answers
    }
    for scales in (None, [1.0] * 6):
        with LpesLM(embedded, scales) as model:
            ours = simple_evaluate(
                model=model,
                tasks=["recall_both"],
                task_manager=TaskManager(include_path=str(folder)),
                bootstrap_iters=0,
            )
        found = {
            (subject, answer["doc_id"]): answer["resps"]
            for subject, answers in ours["samples"].items()
            for answer in answers
        }
        assert found == expected
        assert ours["groups"]["recall_both"]["acc,none"] == plain["groups"]["recall_both"]["acc,none"]
        assert ours["config"]["lpes_scales"] == scales


@pytest.mark.usefixtures("own_tasks")
def test_absurd_scales_bring_the_score_to_chance_and_are_off_afterwards(embedded, folder, tmp_path):
    write_task(tmp_path, "recall_many", questions(96))
    before = logits(embedded)
    untouched = run(embedded, None, "recall_many", tmp_path)
    absurd = run(embedded, ABSURD, "recall_many", tmp_path)
    assert untouched.macro == 1.0
    assert absurd.macro_interval[0] < 0.25 < absurd.macro_interval[1]
    assert absurd.macro_interval[1] < 0.5
    assert absurd.scales == tuple(ABSURD)
    assert untouched.scales is None
    assert torch.equal(logits(embedded), before)
    assert absurd.values.keys() == untouched.values.keys()
    assert (absurd.data_sha256, absurd.prompt_sha256) == (untouched.data_sha256, untouched.prompt_sha256)


@pytest.mark.usefixtures("own_tasks")
def test_the_headline_weighs_subjects_alike_and_the_micro_average_questions(embedded, folder):
    score = run(embedded, None, "recall_both", folder)
    assert {name: (part.mean, part.n) for name, part in score.subjects.items()} == {
        "recall_small": (1.0, 4),
        "recall_large": (0.5, 12),
    }
    assert score.macro == pytest.approx(0.75)
    assert score.micro == pytest.approx(10 / 16)
    assert score.n == len(score.values) == 16
    assert score.macro_interval[0] < 0.75 < score.macro_interval[1]
    assert score.macro_stderr == pytest.approx(np.sqrt(0.25 / 11) / 2)
    assert score.micro_stderr == pytest.approx(np.sqrt(10 / 16 * 6 / 16 / 15))
    assert (score.metric, score.n_shots, score.n_cut) == ("acc", 0, 0)
    assert score.prompt.startswith("task version 3, without chat template, lm-eval ")


@pytest.mark.usefixtures("own_tasks")
def test_limits_and_shots_change_what_is_asked_and_are_told(embedded, folder):
    few = run(embedded, None, "recall_both", folder, limit=3)
    assert {name: part.n for name, part in few.subjects.items()} == {"recall_small": 3, "recall_large": 3}
    plain, shown = (run(embedded, None, "shots", folder, n_shots=n) for n in (0, 2))
    assert (plain.n_shots, shown.n_shots) == (0, 2)
    assert plain.data_sha256 == shown.data_sha256
    assert plain.prompt_sha256 != shown.prompt_sha256
    assert few.data_sha256 != run(embedded, None, "recall_both", folder).data_sha256


@pytest.mark.usefixtures("own_tasks")
def test_generated_answers_are_scored_and_prompts_beyond_the_window_are_counted(embedded, folder):
    score = run(embedded, None, "spoken", folder)
    assert list(score.values.values())[:3] == [1.0, 1.0, 1.0]
    assert score.n_cut == 1


@pytest.mark.usefixtures("own_tasks")
def test_prompts_of_choices_beyond_the_window_are_counted(embedded, folder, tmp_path):
    rows = questions(3)
    rows[1]["prompt"] = " ".join(["7"] * 600)
    write_task(tmp_path, "long", rows)
    assert run(embedded, None, "long", tmp_path).n_cut == 1


@pytest.mark.usefixtures("own_tasks")
@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("unlabelled", "question 2 cannot be scored: its label is None"),
        ("outside", "question 1 cannot be scored: its label is 4"),
        ("letters", "question 2 cannot be scored: ValueError"),
        (
            "no_data",
            "data of task 'no_data' from the hub or the disk.*nowhere.jsonl.*--data of lpes-evo eval",
        ),
        (
            "nothing",
            "Expected a task that lm-evaluation-harness or a task file in the data folder has, but 'nothing' is none",
        ),
        ("likelihood", "a metric that is a mean over questions, but it has none"),
    ],
)
def test_a_task_that_cannot_be_scored_is_refused_in_one_line_before_anything_is_asked(
    embedded, folder, task, message, monkeypatch
):
    monkeypatch.setattr(LpesLM, "loglikelihood", lambda *_: pytest.fail("a question was asked"))
    before = logits(embedded)
    with pytest.raises(TaskError, match=message) as caught:
        run(embedded, ABSURD, task, folder)
    assert "\n" not in str(caught.value)
    assert torch.equal(logits(embedded), before)


@pytest.mark.usefixtures("own_tasks")
def test_options_that_nothing_would_come_of_are_refused(embedded, folder):
    with pytest.raises(TaskError, match="its task file allows none"):
        run(embedded, None, "no_shots", folder, n_shots=3)
    with pytest.raises(TaskError, match="mean over questions, 'acc_norm', but it has only acc"):
        run(embedded, None, "recall_small", folder, metric="acc_norm")
    with pytest.raises(ConfigError, match="limit to be a positive integer, but got 0"):
        run(embedded, None, "recall_small", folder, limit=0)
    with pytest.raises(ConfigError, match="number of shots to be an integer from 0, but got -1"):
        run(embedded, None, "recall_small", folder, n_shots=-1)
    with pytest.raises(ConfigError, match="a model with a chat template, but tiny has none"):
        run(embedded, None, "recall_small", folder, chat_template=True)
    with pytest.raises(TaskError, match="a folder with task files at .*nowhere"):
        run(embedded, None, "recall_small", folder / "nowhere")
    with pytest.raises(TaskError, match="Expected mmlu, ceval-valid, or lm: .* but got 'kv'"):
        run_harness(embedded, None, ["kv"])


@pytest.mark.usefixtures("own_tasks")
def test_the_chat_template_is_part_of_the_prompt(tiny_loaded, folder):
    plain, chat = (run(tiny_loaded, None, "recall_small", folder, chat_template=on) for on in (False, True))
    assert "with chat template" in chat.prompt
    assert plain.prompt_sha256 != chat.prompt_sha256


@pytest.mark.usefixtures("own_tasks")
def test_the_random_generators_and_the_tokenizer_are_left_as_they_were(tiny_loaded, folder):
    random.seed(5), np.random.seed(5), torch.manual_seed(5)
    expected = random.random(), np.random.random(), float(torch.rand(1))
    random.seed(5), np.random.seed(5), torch.manual_seed(5)
    run(tiny_loaded, None, "recall_small", folder)
    assert (random.random(), np.random.random(), float(torch.rand(1))) == expected
    assert tiny_loaded.tokenizer.pad_token is None


@pytest.mark.usefixtures("own_tasks")
@pytest.mark.parametrize(("task", "n_subjects"), [("mmlu", 57), ("ceval-valid", 52)])
def test_the_harness_has_the_tasks_of_the_benchmarks_as_this_package_reads_them(
    embedded, task, n_subjects, monkeypatch
):
    """The data cannot be had without a network, so each subject gets two questions in its place."""
    from pathlib import Path

    import datasets
    import lm_eval

    def two_questions(path, name, **_):
        assert path in ("cais/mmlu", "ceval/ceval-exam")
        lettered = {letter: [f"{name} {letter}"] * 2 for letter in "ABCD"}
        rows = {"question": ["1 2 ? 1", "3 4 ? 3"], **lettered}
        if task == "mmlu":
            rows = {"question": rows["question"], "choices": [["1", "2", "3", "4"]] * 2, "answer": [1, 3]}
        else:
            rows["answer"] = ["A", "D"]
        table = datasets.Dataset.from_dict(rows)
        return datasets.DatasetDict(dict.fromkeys(("test", "val", "dev"), table))

    monkeypatch.setattr(datasets, "load_dataset", two_questions)
    folder = Path(lm_eval.__file__).parent / "tasks" / {"mmlu": "mmlu/default", "ceval-valid": "ceval"}[task]
    score = run_harness(embedded, None, [task], include_path=folder, n_shots=1, limit=1)[task]
    assert (len(score.subjects), score.n, score.metric, score.n_shots) == (n_subjects, n_subjects, "acc", 1)


def test_task_names_of_the_harness_are_told_from_others():
    assert HARNESS_TASKS == ("mmlu", "ceval-valid")
    assert [is_harness_task(name) for name in ("mmlu", "lm:hellaswag", "kv", "ceval-valid")] == [
        True,
        True,
        False,
        True,
    ]


def test_the_model_type_takes_files_and_folders_of_scales_and_writes_them_down(tmp_path):
    file = save_scales(tmp_path / "scales.json", value=1.5)
    for source in (file, str(file), tmp_path):
        with LpesLM("tiny", source) as model:
            info = model.get_model_info()
        assert info["lpes_scales"] == [1.5] * 6
        assert info["lpes_scales_source"] == f"{source} (found on tiny, task recall)"
        assert info["lpes_model"] == "tiny"
        assert len(info["lpes_weights_sha256"]) == 64
    with LpesLM("tiny", "none") as model:
        assert model.get_model_info()["lpes_scales"] is None


def test_arguments_of_the_command_line_reach_the_model(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    model = LpesLM.create_from_arg_string(
        "pretrained=tiny,scales=none", {"device": "cuda:0", "batch_size": 3}
    )
    assert (str(model.device), model.batch_size, model.scales) == ("cpu", 3, None)
    with pytest.raises(
        ModelError, match="Expected one of the 0 CUDA devices that torch sees, but got 'cuda:1'"
    ):
        LpesLM.create_from_arg_string("pretrained=tiny", {"device": "cuda:1"})
    chosen = LpesLM.create_from_arg_obj({"pretrained": "tiny", "device": "cpu"}, {"device": "cuda:1"})
    assert str(chosen.device) == "cpu"


def test_the_scales_stay_in_force_until_the_model_is_closed(embedded):
    before = logits(embedded)
    model = LpesLM(embedded, ABSURD)
    assert not torch.equal(logits(embedded), before)
    model.close()
    model.close()
    assert torch.equal(logits(embedded), before)


def test_wrong_model_arguments_are_refused_in_one_line(embedded, tmp_path):
    other = save_scales(tmp_path / "other.json", model="another/model")
    deep = save_scales(tmp_path / "deep.json", n_layers=7)
    with pytest.raises(
        ScalesError, match=r"found on tiny, but those of .*other.json were found on another/mod"
    ):
        LpesLM("tiny", other)
    LpesLM("tiny", other, check_model=False).close()
    with pytest.raises(ScalesError, match="n_layers = 6, but .*deep.json has 7"):
        LpesLM("tiny", deep)
    with pytest.raises(ScalesError, match=r"one scale for each layer, \(6,\), but got \(2, 6\)"):
        LpesLM(embedded, [ABSURD, ABSURD])
    with pytest.raises(ScalesError, match="Expected a scales file at nowhere"):
        LpesLM("tiny", "nowhere")
    with pytest.raises(ModelError, match="Expected the model argument pretrained, but got none"):
        LpesLM(scales="none")
    with pytest.raises(
        ConfigError, match=r"Expected model arguments among .*, but got parallelize, tp_plan\."
    ):
        LpesLM("tiny", parallelize=True, tp_plan="auto")
    with pytest.raises(ConfigError, match="Expected no device with a model that is loaded already"):
        LpesLM(embedded, device="cpu")


def test_answers_kept_under_other_scales_are_not_taken_for_ones_own(embedded, tmp_path):
    from lm_eval.api.instance import Instance
    from lm_eval.api.model import CachingLM

    request = Instance("loglikelihood", {}, ("1 2 3 4 ? 1", " 2"), 0)

    def ask(scales):
        with LpesLM(embedded, scales) as model:
            keeping = CachingLM(model, str(tmp_path / "answers.db"))
            try:
                return keeping.loglikelihood([request])
            finally:
                keeping.dbdict.close()

    first = ask(None)
    assert ask(None) == first
    with pytest.raises(ScalesError, match=r"under these scales in .*answers.db, but it holds others"):
        ask(ABSURD)


def test_a_single_question_has_an_interval_and_no_standard_error():
    alone, both = score_subject([1.0], 0), score_subject([1.0, 0.0], 0)
    assert alone.stderr is None
    assert alone.interval[0] < 0.5
    average = macro_average({"alone": alone, "both": both})
    assert (average.mean, average.stderr, average.n) == (0.75, None, 3)
    assert 0.0 < average.interval[0] < 0.75 < average.interval[1] <= 1.0


def test_the_interval_of_the_macro_average_covers_the_truth_about_as_often_as_it_says():
    generator = np.random.default_rng(0)
    truth = np.array([0.95, 0.6, 0.3])
    sizes = (8, 20, 40)
    covered = 0
    for _ in range(400):
        subjects = {
            str(i): score_subject((generator.random(n) < p).astype(float), 0)
            for i, (n, p) in enumerate(zip(sizes, truth, strict=True))
        }
        low, high = macro_average(subjects).interval
        covered += low <= truth.mean() <= high
    assert 0.92 <= covered / 400 <= 0.985


def test_values_that_are_no_proportions_get_a_bootstrap_interval():
    score = score_subject([0.2, 0.4, 0.9, 0.5], 0)
    assert 0.2 <= score.interval[0] < score.mean < score.interval[1] <= 0.9


def environment(tmp_path):
    return os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hub"), "OMP_NUM_THREADS": "1"}


@pytest.mark.usefixtures("own_tasks")
def test_the_command_line_of_the_harness_knows_the_model_type(folder, tmp_path, monkeypatch, capsys):
    from lpes_evo.evals.harness.__main__ import main

    scales = save_scales(tmp_path / "scales.json", value=1.2)
    command = ["lpes-lm-eval", "--model", "lpes"]
    command += ["--model_args", f"pretrained=tiny,scales={scales}", "--tasks", "recall_both"]
    command += ["--include_path", str(folder), "--output_path", str(tmp_path / "out"), "--batch_size", "4"]
    monkeypatch.setattr(sys, "argv", command)
    monkeypatch.chdir(tmp_path)
    main()
    assert "recall_small" in capsys.readouterr().out
    (written,) = (tmp_path / "out").rglob("results_*.json")
    record = json.loads(written.read_text())
    assert record["config"]["lpes_scales"] == pytest.approx([1.2] * 6)
    assert record["config"]["model"] == "lpes"
    assert record["results"]["recall_small"]["acc,none"] == 1.0


@pytest.mark.usefixtures("own_tasks")
@pytest.mark.parametrize(
    ("arguments", "task", "message"),
    [
        ("pretrained=tiny,scales=nowhere.json", "recall_small", "Expected a scales file at nowhere.json"),
        ("scales=none", "recall_small", "Expected the model argument pretrained"),
        ("pretrained=tiny", "no_data", "Expected the files that the command and its task files name"),
        ("pretrained=tiny", "on_the_hub", "Expected the data of the harness's task from the hub or the disk"),
        (
            "pretrained=tiny",
            "no_such_task",
            "Expected lm-evaluation-harness to run, but it raised ValueError",
        ),
        (
            "pretrained=tiny,tokenizer=nowhere",
            "recall_small",
            "Expected tokenizer to name a tokenizer on the hub",
        ),
    ],
)
def test_the_command_line_of_the_harness_ends_with_one_line(
    arguments, task, message, folder, monkeypatch, capsys
):
    from lpes_evo.evals.harness.__main__ import main

    command = ["lpes-lm-eval", "--model", "lpes", "--model_args", arguments, "--tasks", task]
    monkeypatch.setattr(sys, "argv", [*command, "--include_path", str(folder)])
    with pytest.raises(SystemExit, match="2"):
        main()
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith(f"Error: {message}")


def test_the_program_starts_with_the_help_of_the_harness(tmp_path):
    result = subprocess.run(
        [sys.executable, "-m", "lpes_evo.evals.harness", "--help"],
        capture_output=True, text=True, cwd=tmp_path, env=environment(tmp_path), check=True,
    )  # fmt: skip
    assert "usage:" in result.stdout


def test_the_model_type_is_registered_beside_those_of_the_harness(tmp_path):
    script = (
        "from importlib.metadata import EntryPoint\n"
        "from lpes_evo.evals.harness._model import LpesLM, register\n"
        "from lm_eval.api.registry import get_model\n"
        "register(), register()\n"
        "assert get_model('lpes') is LpesLM and get_model('hf') is LpesLM.__base__\n"
        "entry = EntryPoint('lpes', 'lpes_evo.evals.harness:LpesLM', 'lm_eval.models')\n"
        "assert entry.load() is LpesLM"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=tmp_path, env=environment(tmp_path))


def test_the_harness_is_loaded_only_when_it_is_used(tmp_path):
    script = (
        "import sys, lpes_evo, lpes_evo.evals, lpes_evo.evals.harness as harness\n"
        "from lpes_evo.evals.harness import run_harness, HarnessScore\n"
        "print([name for name in ('lm_eval', 'torch', 'transformers', 'datasets') if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert result.stdout.strip() == "[]"


@pytest.mark.usefixtures("own_tasks")
def test_a_tokenizer_can_be_given_as_an_object_and_as_a_folder(embedded, tmp_path):
    with LpesLM(embedded, tokenizer=embedded.tokenizer) as model:
        assert model.tokenizer.get_vocab() == embedded.tokenizer.get_vocab()
    embedded.tokenizer.save_pretrained(tmp_path / "tokenizer")
    with LpesLM("tiny", tokenizer=str(tmp_path / "tokenizer")) as model:
        assert model.tokenizer.get_vocab() == embedded.tokenizer.get_vocab()


def test_a_package_that_a_task_of_the_harness_needs_is_named(embedded, monkeypatch):
    import lm_eval.tasks

    class Manager:
        task_index = ("needy",)

        def __init__(self, **_options):
            pass

        def load(self, _names):
            raise ImportError("Please install wonderwords")

    monkeypatch.setattr(lm_eval.tasks, "TaskManager", Manager)
    with pytest.raises(
        TaskError, match="Expected the packages that task 'needy' .* one is missing: Please install"
    ):
        run_harness(embedded, None, ["lm:needy"])


def test_batches_of_a_model_whose_frequencies_follow_the_length_are_refused():
    model = build_llama()
    model.config.rope_parameters = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}
    model.model.rotary_emb = type(model.model.rotary_emb)(model.config)
    loaded = LoadedModel(model, build_tokenizer(), "dynamic", None, 3, 1024, "float32", "cpu", "sdpa")
    for size in (8, "auto"):
        with pytest.raises(
            ConfigError, match=f"Expected batch_size=1 with dynamic, .* but got batch_size={size}"
        ):
            LpesLM(loaded, batch_size=size)
    with LpesLM(loaded, [1.2, 1.0, 0.9], batch_size=1) as lm:
        assert lm.batch_size == 1
