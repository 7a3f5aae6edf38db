"""LoRA adapters of peft as the model."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from lpes_evo.config import load_config
from lpes_evo.errors import ModelError
from lpes_evo.evals import EvalConfig, EvalTarget, describe_target
from lpes_evo.models import load_model, weights_hash
from lpes_evo.runs import describe, prepare
from samples import SMALL_RUN, build_llama, build_tokenizer

peft = pytest.importorskip("peft")
IDS = torch.arange(2, 30)[None]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    folder = tmp_path / "base"
    build_llama().save_pretrained(folder)
    build_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def folder(tmp_path: Path, base: Path) -> Path:
    """Return the folder of an adapter on a saved base."""
    return save_adapter(tmp_path / "adapter", base)


def adapted(base: Path | str, **settings: Any) -> Any:
    """Return a model of peft with random LoRA weights, as training leaves it."""
    torch.manual_seed(3)
    model = load_model(base, device="cpu", dtype="float32").model
    settings = {"r": 2, "target_modules": ["q_proj", "down_proj"], "init_lora_weights": False} | settings
    return peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **settings)).eval()


def save_adapter(folder: Path, base: Path | str, **settings: Any) -> Path:
    adapted(base, **settings).save_pretrained(folder)
    edit_config(folder, base_model_name_or_path=str(base))
    return folder


def edit_config(folder: Path, **values: Any) -> None:
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def edit_weights(folder: Path, change: Any) -> None:
    from safetensors.torch import load_file, save_file

    path = folder / "adapter_model.safetensors"
    weights = load_file(path)
    change(weights)
    save_file(weights, path)


def load(name: Path | str, **options: Any) -> Any:
    return load_model(name, **{"device": "cpu", "dtype": "float32"} | options)


def refusal(name: Path | str, **options: Any) -> str:
    with pytest.raises(ModelError) as caught:
        load(name, **options)
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 900
    return text


def test_an_adapter_is_loaded_with_its_base(folder: Path, base: Path) -> None:
    loaded = load(folder)
    assert (loaded.name, loaded.base, loaded.revision) == (str(folder), str(base), None)
    assert (loaded.n_layers, loaded.max_length, loaded.dtype) == (3, 1024, "float32")
    assert type(loaded.model).__name__ == "LlamaForCausalLM"
    assert not loaded.model.training
    assert not any(weight.requires_grad for weight in loaded.model.parameters())
    expected = peft.PeftModel.from_pretrained(load(base).model, folder).eval()(IDS).logits
    assert torch.equal(loaded.model(IDS).logits, expected)
    assert not torch.allclose(load(base).model(IDS).logits, expected, atol=1e-3)
    assert load(base).base is None


@pytest.mark.parametrize(
    "settings",
    [
        {"modules_to_save": ["lm_head"]},
        {"use_dora": True},
        {"use_rslora": True, "rank_pattern": {"down_proj": 4}},
        {"trainable_token_indices": [3, 90]},
    ],
)
def test_kinds_of_lora_are_loaded_as_peft_does(settings: dict[str, Any], tmp_path: Path, base: Path) -> None:
    model = adapted(base, **settings)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "modules_to_save" in name or "trainable_tokens_delta" in name:
                weight += 0.5
    expected = model(IDS).logits
    model.save_pretrained(tmp_path / "adapter")
    edit_config(tmp_path / "adapter", base_model_name_or_path=str(base))
    loaded = load(tmp_path / "adapter")
    assert torch.allclose(loaded.model(IDS).logits, expected, atol=1e-5)
    assert weights_hash(loaded.model) == weights_hash(model)


def test_every_weight_has_the_dtype_that_is_asked_for(folder: Path) -> None:
    loaded = load(folder, dtype="bfloat16")
    assert {weight.dtype for weight in loaded.model.parameters()} == {torch.bfloat16}
    assert loaded.model.model.rotary_emb.inv_freq.dtype == torch.float32


def test_the_embedded_model_may_be_the_base(tmp_path: Path) -> None:
    folder = save_adapter(tmp_path / "adapter", "tiny", target_modules=["q_proj"])
    loaded = load_model(folder, device="cpu")
    # As for the embedded model without an adapter.
    assert (loaded.base, loaded.dtype, loaded.n_layers) == ("tiny", "float32", 6)


def test_the_hash_of_the_weights_depends_on_every_part_of_the_adapter(folder: Path, base: Path) -> None:
    hashes = {weights_hash(load(base).model), weights_hash(load(folder).model)}
    assert len(hashes) == 2
    edit_config(folder, lora_alpha=64)
    hashes.add(weights_hash(load(folder).model))
    assert len(hashes) == 3
    name = "base_model.model.model.layers.2.mlp.down_proj.lora_B.weight"
    edit_weights(folder, lambda weights: weights[name].add_(1))
    hashes.add(weights_hash(load(folder).model))
    assert len(hashes) == 4


def test_the_tokenizer_of_the_adapter_goes_before_that_of_the_base(folder: Path) -> None:
    template = "{% for message in messages %}own {{ message['content'] }}{% endfor %}"
    build_tokenizer(template).save_pretrained(folder)
    assert load(folder).tokenizer.chat_template == template


def test_a_tokenizer_with_tokens_that_the_base_does_not_embed_is_refused(folder: Path) -> None:
    tokenizer = build_tokenizer()
    tokenizer.add_tokens(["<new>"])
    tokenizer.save_pretrained(folder)
    assert "its tokenizer has 259 tokens and the base embeds 258" in refusal(folder)


def test_a_revision_of_a_folder_is_refused(folder: Path) -> None:
    assert "a revision only with a hub id, but got revision 'main'" in refusal(folder, revision="main")


def test_a_revision_of_a_base_on_this_disk_does_not_count(folder: Path) -> None:
    edit_config(folder, revision="main")
    assert load(folder).n_layers == 3


def test_without_peft_it_is_told_how(folder: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(
        "lpes_evo.models._adapters.importlib.util.find_spec",
        lambda name: None if name == "peft" else object(),
    )
    text = refusal(folder)
    assert (
        "loading it needs peft, not installed here. Run in the clone: pip install '.[peft]'; or merge" in text
    )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"peft_type": "PROMPT_TUNING", "num_virtual_tokens": 8},
            "of the type PROMPT_TUNING, which puts virtual tokens in front of every prompt and so shifts the positions",
        ),
        ({"peft_type": "PREFIX_TUNING", "num_virtual_tokens": 8}, "puts virtual tokens in front"),
        ({"peft_type": "IA3"}, "of the type IA3. Other kinds are not loaded: merge it into its base"),
        ({"peft_type": 5}, "to state the peft_type of an adapter, but it does not"),
        ({"alora_invocation_tokens": [3, 4]}, "waits for certain tokens of the prompt"),
        ({"base_model_name_or_path": None}, "to name its base in base_model_name_or_path, but got None"),
        ({"base_model_name_or_path": ""}, "to name its base in base_model_name_or_path, but got ''"),
        (
            {"base_model_name_or_path": "/no/such"},
            "as its adapter_config.json names it: .*'/no/such' does not exist",
        ),
        ({"target_modules": ["nothing_of_this_name"]}, "to fit its base .*nothing_of_this_name"),
        ({"r": 3}, "to fit its base .*size mismatch"),
        ({"r": "many"}, "to fit its base"),
        (
            {"target_modules": ["q_proj"]},
            r"but 6 weights of its file have no place in the base, first base_model\.",
        ),
        (
            {"target_modules": ["q_proj", "down_proj", "up_proj"]},
            "but 6 weights are not in its file, first base_model",
        ),
    ],
)
def test_an_adapter_that_cannot_be_used_is_one_line_that_names_the_fault(
    values: dict[str, Any], message: str, folder: Path
) -> None:
    edit_config(folder, **values)
    assert re.search(message, refusal(folder))


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 100_000, '"LORA"'])
def test_a_damaged_config_is_refused(text: str, folder: Path) -> None:
    (folder / "adapter_config.json").write_text(text)
    assert "adapter_config.json of" in refusal(folder)


def test_damaged_weights_are_refused(folder: Path) -> None:
    (folder / "adapter_model.safetensors").write_bytes(b"damaged")
    assert "to fit its base" in refusal(folder)


def test_pickled_and_missing_weights_are_refused(folder: Path) -> None:
    (folder / "adapter_model.safetensors").unlink()
    assert "in adapter_model.safetensors, but found none" in refusal(folder)
    torch.save({}, folder / "adapter_model.bin")
    assert "but found only adapter_model.bin. Pickles" in refusal(folder)


@pytest.mark.parametrize("changes", [{"n_layers": 2}, {"n_layers": 4}])
def test_an_adapter_of_a_base_of_another_depth_is_refused(
    changes: dict[str, int], folder: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    build_llama(**changes).save_pretrained(other)
    build_tokenizer().save_pretrained(other)
    edit_config(folder, base_model_name_or_path=str(other))
    text = refusal(folder)
    assert "names another model than it was trained on" in text


def test_several_adapters_are_refused_with_their_names(folder: Path, tmp_path: Path) -> None:
    for name in ("first", "second"):
        shutil.copytree(folder, tmp_path / "several" / name)
    text = refusal(tmp_path / "several")
    assert "holds folders of adapters: first, second. Name the folder of one" in text
    assert load(tmp_path / "several" / "second").n_layers == 3


def test_an_adapter_beside_a_whole_model_is_refused(folder: Path, base: Path) -> None:
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        shutil.copy(folder / name, base / name)
    assert "it holds both, and it cannot be told which is meant" in refusal(base)


def test_an_adapter_on_an_adapter_is_refused(folder: Path, tmp_path: Path) -> None:
    second = shutil.copytree(folder, tmp_path / "second")
    edit_config(second, base_model_name_or_path=str(folder))
    assert "which is an adapter itself. Merge that one into its base" in refusal(second)


def test_a_gguf_file_or_a_hub_id_may_be_the_base(folder: Path, monkeypatch: Any) -> None:
    import huggingface_hub

    edit_config(folder, base_model_name_or_path="absent.gguf")
    assert "Expected a GGUF file at absent.gguf, but there is none" in refusal(folder)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    edit_config(folder, base_model_name_or_path="nobody/no-such-model")
    assert "Expected a causal language model at 'nobody/no-such-model'" in refusal(folder)


def in_the_cache(cache: Path, name: str, content: Path, revision: str) -> None:
    """Lay a folder into the cache of the hub, as a model that was downloaded."""
    place = cache / f"models--{name.replace('/', '--')}"
    commit = format(sum(revision.encode()), "040x")
    (place / "refs").mkdir(parents=True, exist_ok=True)
    (place / "refs" / revision).write_text(commit)
    shutil.copytree(content, place / "snapshots" / commit)


def test_an_adapter_and_its_base_may_be_on_the_hub(
    folder: Path, base: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    import huggingface_hub

    in_the_cache(tmp_path / "hub", "nobody/base", base, "v2")
    edit_config(folder, base_model_name_or_path="nobody/base", revision="v2")
    expected = build_tokenizer()
    in_the_cache(tmp_path / "hub", "nobody/adapter", folder, "main")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("transformers.utils.hub.TRANSFORMERS_CACHE", str(tmp_path / "hub"), raising=False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    from_hub = load("nobody/adapter", revision="main")
    assert (from_hub.name, from_hub.base, from_hub.revision) == ("nobody/adapter", "nobody/base", "main")
    assert len(from_hub.tokenizer) == len(expected)
    in_folder = load(folder)
    assert weights_hash(from_hub.model) == weights_hash(in_folder.model)
    assert "a revision only with a hub id" in refusal(folder, revision="main")
    # The base has no other revision in the cache.
    edit_config(folder, revision="v1")
    assert "as its adapter_config.json names it: Expected a causal language model" in refusal(folder)


def test_a_run_on_an_adapter_records_its_base_and_scores_the_adapter(tmp_path: Path) -> None:
    folder = save_adapter(tmp_path / "adapter", "tiny", target_modules=["q_proj"], lora_alpha=64)
    of_adapter, of_base = (
        prepare(load_config(preset="demo", overrides=SMALL_RUN | {"model.name": str(name)}), "cpu")
        for name in (folder, "tiny")
    )
    facts, others = describe(of_adapter), describe(of_base)
    assert (facts.base, others.base) == ("tiny", None)
    assert facts.identity["weights"] != others.identity["weights"]
    curve = torch.linspace(0.8, 1.2, 6).double().numpy()
    gaps = of_adapter.search_problem.score(curve) - of_base.search_problem.score(curve)
    assert abs(gaps).max() > 1e-3
    config = EvalConfig(model={"name": str(folder)}, tasks=("recall:8",))
    assert describe_target(EvalTarget.of(of_adapter.loaded, config))["base"] == "tiny"
    assert "base" not in describe_target(EvalTarget.of(of_base.loaded, config))
