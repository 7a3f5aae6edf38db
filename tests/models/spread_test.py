"""What a model computes that is spread over several devices: the same as on one."""

import re
from contextlib import contextmanager

import numpy as np
import pytest
import torch
import transformers
from torch._subclasses import fake_tensor

from lpes_evo import load_model
from lpes_evo.accelerators import device_kind, devices_of, input_device
from lpes_evo.analysis import AnalysisInput, measure_attention, measure_drift
from lpes_evo.errors import ModelError
from lpes_evo.models import place_model, resolve_device, spread, weights_hash
from lpes_evo.problems import (
    DataRequest,
    EncodedExample,
    ModelProblem,
    answer_gradient,
    generate_greedy,
    make_task,
    score_answers,
    sharing_is_sound,
)
from lpes_evo.rope import count_layers, decoder_layers, find_structure, patch_rope, rotary_layers
from rope_families import tiny_model

accelerate = pytest.importorskip("accelerate", reason="the extra [spread] is not installed")

GPUS = ("cuda:0", "cuda:1")
FAMILIES = ["llama", "qwen2", "gemma3_text", "gpt_neox", "gptj", "moshi", "phi3", "deepseek_v2", "mixtral"]
PROMISED = ("llama", "gemma3_text")
SLOWLY = [pytest.param(name, marks=() if name in PROMISED else pytest.mark.slow) for name in FAMILIES]
"""The families, of which two are tried in every run of the tests."""
"""Families with shared rotary modules, several of them, one in each layer, latent attention and experts."""

rng = np.random.default_rng(0)
SHARED = tuple(map(int, rng.integers(3, 60, 12)))
ROWS = [
    EncodedExample(
        f"e{number}",
        (*SHARED[: 12 if number < 4 else number], *map(int, rng.integers(3, 60, 3 + number))),
        tuple(map(int, rng.integers(3, 60, 1 + number % 3))),
    )
    for number in range(6)
]
INPUTS = [AnalysisInput(f"i{number}", "text", ROWS[number].prompt_ids) for number in range(2)]


def curves(model, n):
    return np.random.default_rng(1).uniform(0.7, 2.5, (n, count_layers(model)))


def kept_on_disk(model_type, folder):
    """Return a tiny model whose second half is read from the disk in every forward pass."""
    model = tiny_model(model_type).requires_grad_(False)
    places = spread(model, ("cpu", "disk"))
    assert set(places.values()) == {"cpu", "disk"}
    return accelerate.dispatch_model(
        model,
        places,
        main_device="cpu",
        offload_dir=str(folder),
        skip_keys=model._skip_keys_device_placement,
        force_hooks=True,
    )


def test_every_device_gets_consecutive_layers_and_about_as_many_bytes():
    model = tiny_model("llama", num_hidden_layers=8, vocab_size=512, tie_word_embeddings=False)
    places = spread(model, GPUS)
    assert places["model.embed_tokens"] == places["model.rotary_emb"] == "cuda:0"
    assert places["model.norm"] == places["lm_head"] == "cuda:1"
    assert [places[f"model.layers.{layer}"] for layer in range(8)] == ["cuda:0"] * 4 + ["cuda:1"] * 4


def test_a_large_embedding_takes_the_place_of_layers():
    model = tiny_model("llama", num_hidden_layers=4, vocab_size=2048, tie_word_embeddings=True)
    places = spread(model, GPUS)
    # The head has the weights of the embedding, and stands beside it.
    assert places["model.embed_tokens"] == places["lm_head"] == places["model.layers.0"] == "cuda:0"
    assert {places[f"model.layers.{layer}"] for layer in (1, 2, 3)} == {places["model.norm"]} == {"cuda:1"}


def test_every_device_of_a_group_gets_a_layer():
    model = tiny_model("llama", num_hidden_layers=3)
    places = spread(model, ("cuda:0", "cuda:1", "cuda:2"))
    assert [places[f"model.layers.{layer}"] for layer in range(3)] == ["cuda:0", "cuda:1", "cuda:2"]
    with pytest.raises(
        ModelError, match=r"^Expected at most as many devices as layers, which are 3, but got 4\."
    ):
        spread(model, ("cuda:0",) * 4)


@pytest.mark.parametrize("model_type", FAMILIES)
def test_every_weight_has_a_place(model_type):
    model = tiny_model(model_type)
    places = spread(model, GPUS)
    inside = tuple(f"{name}." for name in places)
    assert [name for name, _ in model.named_parameters() if not name.startswith(inside)] == []
    assert list(dict.fromkeys(places[name] for name, _ in _named_layers(model, places))) == list(GPUS)


def _named_layers(model, places):
    return [(name, None) for name in places if model.get_submodule(name) in decoder_layers(model)]


@pytest.mark.parametrize("model_type", SLOWLY)
def test_scores_and_gradients_are_those_of_the_model_on_one_device(model_type, tmp_path):
    plain, model = tiny_model(model_type).requires_grad_(False), kept_on_disk(model_type, tmp_path)
    scales = curves(plain, 3)
    assert rotary_layers(model) == rotary_layers(plain)
    assert weights_hash(model) == weights_hash(plain)
    shares = sharing_is_sound(plain, ROWS).is_sound
    assert sharing_is_sound(model, ROWS).is_sound == shares

    for share in {False, shares}:
        options = {"batch_tokens": 96, "share_prefixes": share}
        expected = score_answers(plain, ROWS, scales=scales, **options)
        found = score_answers(model, ROWS, scales=scales, **options)
        np.testing.assert_allclose(found.log_probability, expected.log_probability, rtol=1e-5, atol=1e-5)

    weights = np.full(len(ROWS), 1 / len(ROWS))
    for checkpointing in {False, plain.supports_gradient_checkpointing}:
        expected = answer_gradient(plain, ROWS, scales[0], weights, checkpointing=checkpointing)
        found = answer_gradient(model, ROWS, scales[0], weights, checkpointing=checkpointing)
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    assert np.abs(expected[1]).max() > 0


@pytest.mark.parametrize("model_type", SLOWLY)
def test_answers_and_drift_are_those_of_the_model_on_one_device(model_type, tmp_path):
    plain, model = tiny_model(model_type).requires_grad_(False), kept_on_disk(model_type, tmp_path)
    scales = curves(plain, 2)
    prompts = [row.prompt_ids for row in ROWS[:3]]
    with patch_rope(plain, scales[0]), patch_rope(model, scales[0]):
        expected = generate_greedy(plain, prompts, [5] * 3, ends=())
        assert generate_greedy(model, prompts, [5] * 3, ends=()) == expected
    np.testing.assert_allclose(
        measure_drift(model, INPUTS, scales).values,
        measure_drift(plain, INPUTS, scales).values,
        rtol=1e-4,
        atol=1e-5,
    )
    np.testing.assert_allclose(
        measure_attention(model, INPUTS, scales[0]).scaled,
        measure_attention(plain, INPUTS, scales[0]).scaled,
        rtol=1e-4,
        atol=1e-5,
    )


@contextmanager
def two_pretended_devices(model):
    """Give a model weights without values on two devices, on which torch refuses to mix tensors, as on two GPUs."""
    places = spread(model, ("cpu", "cpu:1"))
    mode = fake_tensor.FakeTensorMode(allow_non_fake_inputs=True)

    def values(tensor):
        with fake_tensor.unset_fake_temporarily():
            return torch.zeros(tensor.shape, dtype=tensor.dtype)

    with pytest.MonkeyPatch.context() as patch, mode:
        for name, place in places.items():
            for module in model.get_submodule(name).modules():
                for entries, make in (
                    (module._parameters, torch.nn.Parameter),
                    (module._buffers, lambda t, **_: t),
                ):
                    for key, tensor in entries.items():
                        if tensor is not None:
                            new = torch.empty(tensor.shape, dtype=tensor.dtype, device=place)
                            entries[key] = make(new, requires_grad=False)

        accelerate.hooks.attach_align_device_hook_on_blocks(
            model,
            {"": torch.device("cpu"), **{name: torch.device(place) for name, place in places.items()}},
            offload=dict.fromkeys(places, False),
            skip_keys=model._skip_keys_device_placement,
        )
        # Results are read by these two alone.
        patch.setattr(fake_tensor.FakeTensor, "cpu", values, raising=False)
        patch.setattr(fake_tensor.FakeTensor, "numpy", lambda tensor: values(tensor).numpy(), raising=False)
        yield


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("model_type", ["llama", "gemma3_text", "moshi", "gpt_neox"])
def test_no_tensor_of_one_device_meets_one_of_another(model_type, share):
    model = tiny_model(model_type).requires_grad_(False)
    scales = curves(model, 3)
    # The frequencies are checked while they have values.
    with patch_rope(model, scales[0]), two_pretended_devices(model):
        assert input_device(model) == torch.device("cpu")
        assert next(decoder_layers(model)[-1].parameters()).device == torch.device("cpu:1")
        first, last = (next(decoder_layers(model)[place].parameters()) for place in (0, -1))
        with pytest.raises(RuntimeError, match=r"at least two devices|two different devices"):
            first + last

        found = score_answers(model, ROWS, scales=scales, batch_tokens=96, share_prefixes=share)
        assert found.log_probability.shape == (3, len(ROWS))


def test_drift_is_measured_where_layers_are_on_two_devices():
    model = tiny_model("llama").requires_grad_(False)
    scales = curves(model, 2)
    with patch_rope(model, scales[0]), two_pretended_devices(model):
        find_structure(model)
        assert measure_drift(model, INPUTS, scales).values.shape[1:] == (2, 2, 3)


def test_a_group_of_devices_is_loaded_and_scores_as_one_device():
    examples = make_task("recall").examples(DataRequest(positions=[0, 0.5, 1], limit=2, split="search"))
    plain, loaded = load_model("tiny", device="cpu"), load_model("tiny", device="cpu+cpu")
    assert (loaded.device, loaded.dtype) == ("cpu+cpu", plain.dtype)
    scales = curves(plain.model, 2)
    np.testing.assert_array_equal(
        ModelProblem(loaded, examples).score_many(scales), ModelProblem(plain, examples).score_many(scales)
    )


@pytest.mark.parametrize("name", ["cuda:0+cpu", "cpu+", "mps+mps", "cuda+cuda", "cpu+disk"])
def test_what_is_no_group_is_refused(name):
    with pytest.raises(ModelError, match=r"^Expected the device to be auto, cpu, .* or a group such as"):
        resolve_device(name)


def test_a_gpu_stands_in_a_group_once():
    with pytest.raises(
        ModelError, match=r"^Expected a group to name each GPU once, but got 'cuda:1\+cuda:1'"
    ):
        resolve_device("cuda:1+cuda:1")


def test_a_group_is_of_the_kind_of_its_devices():
    assert devices_of("cuda:2+cuda:0") == ("cuda:2", "cuda:0")
    assert device_kind("cuda:2+cuda:0") == "cuda"


def test_a_lack_of_memory_while_weights_are_placed_names_the_remedy(monkeypatch):
    model = tiny_model("llama")

    def fail(*_args):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    monkeypatch.setattr(torch.nn.Module, "to", fail)
    with pytest.raises(
        ModelError, match=r"GiB on cuda:0, but the memory ran out\. .*--devices cuda:0\+cuda:1"
    ):
        place_model(model, "cuda:0")


def test_the_harness_answers_alike_on_a_group():
    pytest.importorskip("lm_eval", reason="the extra [eval] is not installed")
    from lm_eval.api.instance import Instance

    from lpes_evo.evals.harness import LpesLM

    def answers(device):
        asked = [("3 17 8 25 ? 3", " 17"), ("3 17 8 25 9 9 ? 8", " 25")]
        requests = [Instance("loglikelihood", {}, pair, number) for number, pair in enumerate(asked)]
        generated = [Instance("generate_until", {}, (asked[0][0], {"until": [], "max_gen_toks": 3}), 0)]
        with LpesLM(load_model("tiny", device=device), [1.5] * 6, batch_size=2) as model:
            return model.loglikelihood(requests), model.generate_until(generated)

    assert answers("cpu+cpu") == answers("cpu")


def test_a_large_model_tells_how_much_of_it_is_loaded(monkeypatch):
    told = []
    monkeypatch.setattr("lpes_evo.models._progress.PERIOD_SECONDS", 0.0)
    monkeypatch.setattr("lpes_evo.models._progress.tell", told.append)
    load_model("tiny", device="cpu+cpu")
    assert any(re.fullmatch(r"has loaded \d+% of tiny \(0\.0 GiB\)", line) for line in told)
    shares = [int(line.split("%")[0].split()[-1]) for line in told if "loaded" in line]
    assert shares == sorted(shares)
    if hasattr(transformers.utils.logging, "set_tqdm_hook"):
        assert re.fullmatch(r"has read 0 of \d+ weights of tiny", told[0])


def test_a_small_model_tells_nothing(monkeypatch):
    told = []
    monkeypatch.setattr("lpes_evo.models._progress.tell", told.append)
    load_model("tiny", device="cpu")
    assert told == []
