"""Methods in evaluations: scoring, arms, and the command line."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from commands import run_here
from lpes_evo.cli import app
from lpes_evo.errors import ConfigError, JournalError
from lpes_evo.evals import EvalConfig, EvalFolder, make_arms, run_evaluation
from lpes_evo.methods import score_row_by_row
from lpes_evo.methods.moice import new_routers, save_routers
from lpes_evo.models import load_model
from lpes_evo.problems import EncodedExample, score_answers
from lpes_evo.scales import load_scales
from method_promises import CASES, IDS, SCALES, SHORT, model_of


@pytest.fixture(scope="module")
def llama() -> Any:
    return model_of("llama")


def greedy(model: Any, prompt: list[int], n_tokens: int) -> list[int]:
    ids = torch.tensor([prompt])
    said = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=n_tokens, min_new_tokens=n_tokens,
                          do_sample=False)  # fmt: skip
    return said[0, len(prompt) :].tolist()


def example(prompt: list[int], answer: list[int]) -> EncodedExample:
    return EncodedExample("one", tuple(prompt), tuple(answer))


@pytest.mark.parametrize("name", CASES)
def test_teacher_forcing_finds_what_generation_says(name: str, llama: Any, tmp_path: Path) -> None:
    method = CASES[name].method(llama, tmp_path)
    with method.apply(llama) as handle:
        prompts = [IDS[0].tolist(), IDS[1, :SHORT].tolist(), IDS[1].tolist()]
        answers = [greedy(llama, prompt, 3) for prompt in prompts]
        rows = [example(prompt, answer) for prompt, answer in zip(prompts, answers, strict=True)]
        wrong = [example(p, [(a[0] + 1) % 64, *a[1:]]) for p, a in zip(prompts, answers, strict=True)]
        if method.chooses_by_prompt:
            right = score_row_by_row(handle, llama, rows, prompts_end=True)
            other = score_row_by_row(handle, llama, wrong, prompts_end=True)
        else:
            right, other = score_answers(llama, rows), score_answers(llama, wrong)
            alone = [score_answers(llama, [row]).log_probability[0] for row in rows]
            assert np.allclose(right.log_probability, alone, rtol=0, atol=1e-5)
        assert right.correct.all()
        assert not other.correct.any()


def test_arms_are_the_untouched_model_and_what_is_named() -> None:
    arms = make_arms(SCALES, ["baseline", "lpes", "pi:2", "yarn:4+lpes"])
    assert [arm.name for arm in arms] == ["untouched", "lpes", "pi:2", "yarn:4+lpes"]
    assert [arm.found for arm in arms] == [None, SCALES, None, SCALES]
    assert arms[2].record(3) == {"method": "pi", "factor": 2.0, "streams": 1, "attention_passes": 1}


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        (["pi:2", "pi:2"], "every method once, but got pi:2 more than once"),
        (["pi:1.5", "pi:1.50"], "every method once, but got pi:1.50 more than once"),
        (["pi:2"], "a method that uses the given scales, but got pi:2. Add lpes"),
        (["lpes", "rival"], "Expected a method, one of"),
    ],
)
def test_wrong_lists_of_methods_are_refused(methods: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_arms(SCALES, methods)


COMMAND = ["eval", "tiny", "--tasks", "recall:64", "--positions", "0,1", "--limit", "2", "--teacher-forcing",
           "--devices", "in-process"]  # fmt: skip


def test_routers_are_trained_and_compared_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = "abcdefghij"
    lines = [{"text": letters[n:] + letters[:n]} for n in range(6)] + [{"prompt": "ab", "answer": "ba"}]
    (tmp_path / "data.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    train = ["train-moice", "tiny", "--data", "data.jsonl", "--steps", "1", "--sequences", "2", "--held-out", "2",
             "--output", "routers"]  # fmt: skip
    said = run_here(*train, cwd=tmp_path, check=0).stdout
    assert "step 1 of 1: loss" in said
    assert "use them with --methods moice:routers" in said
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="Expected a new file for the result, but routers exists"):
        CliRunner().invoke(app, train, catch_exceptions=False)
    for name, reason in (
        ("x" * 250, "the system refuses"),
        ("x" * 300, "the system refuses"),
        ("no/file", "there is none"),
    ):
        with pytest.raises(ConfigError, match=reason):
            CliRunner().invoke(app, [*train[:-1], name], catch_exceptions=False)
    methods = "baseline,ntk:2:original=32,attention-buckets:group=3,ms-poe,moice:routers"
    said = run_here(*COMMAND, "--methods", methods, "--output", "run", cwd=tmp_path, check=0).stdout
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert [*results["arms"]] == ["untouched", *methods.split(",")[1:]]
    assert results["arms"]["attention-buckets:group=3"]["combine_follows"] == "released code"
    assert results["arms"]["moice:routers"]["trained_for"]["model"] == "tiny"
    assert all(arm["overall"]["n"] == 4 for arm in results["tasks"][0]["arms"].values())
    for method in methods.split(",")[1:]:
        assert method in said
    for note in (
        "attention-buckets:group=3: combine logits as in the released code, 6 streams",
        "moice:routers: attention 7",
    ):
        assert note in said
    with pytest.raises(ConfigError, match="^Expected pi with its factor"):
        CliRunner().invoke(app, [*COMMAND, "--methods", "pi", "--output", "wrong"], catch_exceptions=False)
    assert not (tmp_path / "wrong").exists()


def test_scales_of_a_file_are_one_method_among_others(tmp_path: Path) -> None:
    SCALES.save(tmp_path / "scales.json")
    arms = make_arms(load_scales(tmp_path), ["lpes", f"pi:1.5+lpes:{tmp_path}"])
    assert arms[2].found == SCALES


def test_an_arm_that_answers_nothing_costs_the_others_no_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lpes_evo.methods._yarn.Yarn.change_rotation", _not_finite)
    config = EvalConfig(
        model={"name": "tiny"}, methods=("yarn:4", "ntk:2"), tasks=("recall:64",), positions=(0.0,), limit=2
    )
    folder = EvalFolder(tmp_path)
    results = run_evaluation(config, folder, devices="in-process")
    assert [*results.tasks[0].arms] == ["untouched", "ntk:2"]
    assert [*results.missing] == ["recall:64 under yarn:4"]
    assert "the model's output is not finite" in results.missing["recall:64 under yarn:4"]
    assert folder.results.exists()
    assert any(note.startswith("ntk:2: does nothing on recall:64") for note in results.notes)
    assert "recall:64 under yarn:4 has no result" in folder.markdown.read_text()


@contextmanager
def _not_finite(_method: Any, model: Any, _applied: Any, _scales: Any) -> Iterator[None]:
    """Make all logits infinite."""

    def spoil(_model: Any, _inputs: Any, output: Any) -> None:
        output.logits.fill_(torch.inf)

    handle = model.register_forward_hook(spoil)
    try:
        yield
    finally:
        handle.remove()


def test_routers_that_were_exchanged_do_not_go_on_with_an_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = load_model("tiny").model
    config = EvalConfig(
        model={"name": "tiny"}, methods=("moice:routers",), tasks=("recall:64",), positions=(0.0,), limit=1
    )
    (tmp_path / "run").mkdir()
    for seed in (0, 1):
        save_routers(new_routers(model, "tiny", (1.0, 2.0), 2, seed=seed, trained={}), tmp_path / "routers")
        if seed == 0:
            run_evaluation(config, EvalFolder(tmp_path / "run"), devices="in-process")
        else:
            with pytest.raises(JournalError, match="arms"):
                run_evaluation(config, EvalFolder(tmp_path / "run"), devices="in-process")
