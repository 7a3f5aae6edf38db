"""The patch, and what is asked of a model, on wrapped models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from lpes_evo.errors import ModelError, UnsupportedModelError
from lpes_evo.models import weights_hash
from lpes_evo.rope import (
    check_frequencies,
    count_layers,
    decoder_layers,
    patch_rope,
    repair_frequencies,
    rotary_layers,
    unpatch_rope,
    unwrapped_model,
)
from rope_families import tiny_model
from rope_promises import IDS, close, logits, profile
from wrapped_models import WRAPPERS, adapted, on_two_devices, prompt_tuned, wrapped_and_plain


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_wrapped_model_is_scaled_like_the_model_inside(name: str, tmp_path: Path) -> None:
    wrapped, plain = wrapped_and_plain(name, tmp_path)
    untouched = logits(plain)
    assert close(logits(wrapped), untouched)
    with patch_rope(plain, profile(plain)):
        expected = logits(plain)
    assert not close(expected, untouched, 1e-3)
    with patch_rope(wrapped, profile(plain)) as patch:
        assert close(logits(wrapped), expected)
        patch.set([1.0] * patch.n_layers)
        assert close(logits(wrapped), untouched)
    assert close(logits(wrapped), untouched)
    patch_rope(wrapped, profile(plain))
    unpatch_rope(wrapped)
    assert close(logits(wrapped), untouched)


@pytest.mark.parametrize("name", WRAPPERS)
def test_questions_about_a_wrapped_model_are_answered_by_the_model_inside(name: str, tmp_path: Path) -> None:
    wrapped, _ = wrapped_and_plain(name, tmp_path)
    inside = unwrapped_model(wrapped)
    assert type(inside).__name__ == "LlamaForCausalLM"
    assert count_layers(wrapped) == 3
    assert decoder_layers(wrapped) == decoder_layers(inside)
    assert rotary_layers(wrapped) == (0, 1, 2)
    check_frequencies(wrapped)
    frequencies = inside.model.rotary_emb.inv_freq
    frequencies[1] = 7.0
    with pytest.raises(ModelError, match="they do not decrease"):
        check_frequencies(wrapped)
    repair_frequencies(wrapped)
    check_frequencies(wrapped)


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_wrapper_does_not_show_in_the_hash_of_the_weights(name: str, tmp_path: Path) -> None:
    wrapped, plain = wrapped_and_plain(name, tmp_path)
    assert weights_hash(wrapped) == weights_hash(plain)


def test_the_hash_tells_adapters_apart(tmp_path: Path) -> None:
    first, other = (adapted(tiny_model("llama"), tmp_path) for _ in range(2))
    assert weights_hash(first) == weights_hash(other)
    with torch.no_grad():
        next(weight for path, weight in other.named_parameters() if "lora_B" in path)[0, 0] += 1
    assert weights_hash(first) != weights_hash(other)


def test_a_model_without_a_wrapper_is_returned_as_it_is() -> None:
    model = tiny_model("llama")
    assert unwrapped_model(model) is model
    assert unwrapped_model(model.model) is model.model


def test_a_model_of_distributed_training_is_scaled_like_the_model_inside(tmp_path: Path) -> None:
    if not torch.distributed.is_available():
        pytest.skip("this build of torch has no distributed package")
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path / 'meeting'}", rank=0, world_size=1
    )
    try:
        plain = tiny_model("llama")
        wrapped = torch.nn.parallel.DistributedDataParallel(tiny_model("llama"))
        with patch_rope(plain, profile(plain)), patch_rope(wrapped, profile(plain)):
            assert close(logits(wrapped), logits(plain))
    finally:
        torch.distributed.destroy_process_group()


def test_copies_on_several_devices_are_refused() -> None:
    with pytest.raises(UnsupportedModelError, match=r"DataParallel runs 2 copies .*model\.module"):
        patch_rope(on_two_devices(tiny_model("llama")), [1.2] * 3)


@pytest.mark.parametrize("ask", [count_layers, rotary_layers, check_frequencies, weights_hash])
def test_virtual_tokens_are_refused(ask: Any) -> None:
    with pytest.raises(UnsupportedModelError, match="PROMPT_TUNING puts virtual tokens in front"):
        ask(prompt_tuned(tiny_model("llama")))


def test_an_adapter_put_on_a_patched_model_leaves_the_scales_in_force(tmp_path: Path) -> None:
    _, plain = wrapped_and_plain("adapted", tmp_path)
    with patch_rope(plain, profile(plain)):
        expected = logits(plain)
    model = tiny_model("llama")
    patch_rope(model, profile(model))
    assert close(logits(adapted(model, tmp_path), IDS), expected)
