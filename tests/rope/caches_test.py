"""Cached keys: no forward pass mixes keys that were rotated in different ways."""

import copy
import pickle
from collections.abc import Callable
from inspect import signature
from typing import Any

import pytest
import torch
from transformers import DynamicCache, LlamaModel, StaticCache

from lpes_evo.errors import ModelError
from lpes_evo.methods import make_method
from lpes_evo.rope import patch_rope
from rope_families import tiny_model
from rope_promises import IDS, close, generated_together, logits

SCALES, OTHERS = [0.8, 1.3, 1.7], [1.1, 0.9, 1.4]
REFUSED = "filled under these scales, but it was filled"
KEY = next(name for name in ("cache", "past_key_values") if name in signature(LlamaModel.forward).parameters)


@pytest.fixture
def model() -> Any:
    return tiny_model("llama")


def dynamic(model: Any) -> Any:
    return DynamicCache(config=model.config)


def static(model: Any) -> Any:
    return StaticCache(config=model.config, max_cache_len=16)


def talkative() -> Any:
    """Return a model that says other tokens under other scales: its attention is six times as strong."""
    model = tiny_model("llama")
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("q_proj.weight", "k_proj.weight", "o_proj.weight")):
                weight.mul_(6)
    return model


CACHES = pytest.mark.parametrize("make", [dynamic, static])
Make = Callable[[Any], Any]


@torch.no_grad()
def run(model: Any, ids: torch.Tensor, cache: Any) -> torch.Tensor:
    return model(input_ids=ids, use_cache=True, **{KEY: cache}).logits


def filled(model: Any, make: Make, scales: Any = None) -> Any:
    """Return a cache of the first tokens, filled under scales or on the untouched model."""
    cache = make(model)
    if scales is None:
        run(model, IDS[:, :7], cache)
    else:
        with patch_rope(model, scales):
            run(model, IDS[:, :7], cache)
    return cache


@CACHES
@pytest.mark.parametrize("scales", [None, OTHERS, [SCALES, OTHERS]])
def test_a_cache_that_was_filled_otherwise_is_refused(model: Any, make: Make, scales: Any) -> None:
    cache = filled(model, make, scales)
    with patch_rope(model, SCALES), pytest.raises(ModelError, match=REFUSED):
        run(model, IDS[:, 7:8], cache)
    # A cache that the model made by itself.
    output = model(input_ids=IDS[:, :7], use_cache=True)
    with patch_rope(model, SCALES), pytest.raises(ModelError, match="on the untouched model"):
        run(model, IDS[:, 7:8], output[KEY])


@CACHES
def test_a_cache_that_was_filled_under_the_same_scales_goes_on(model: Any, make: Make) -> None:
    with patch_rope(model, SCALES):
        right = logits(model)[:, 7:]
    cache = filled(model, make, SCALES)
    with patch_rope(model, SCALES) as patch:
        assert close(run(model, IDS[:, 7:9], cache), right[:, :2])
        patch.set(OTHERS)
        with pytest.raises(ModelError, match=REFUSED):
            run(model, IDS[:, 9:10], cache)
        with patch_rope(model, SCALES):
            assert close(run(model, IDS[:, 9:10], cache), right[:, 2:3])
        patch.set(SCALES)
        assert close(run(model, IDS[:, 10:], cache), right[:, 3:])


@CACHES
def test_a_cache_is_free_again_when_it_is_empty(model: Any, make: Make) -> None:
    with patch_rope(model, SCALES):
        right = logits(model)
    cache = filled(model, make, OTHERS)
    cache.reset()
    with patch_rope(model, SCALES):
        assert close(run(model, IDS, cache), right)


def test_copies_and_cropped_caches_keep_what_is_known_of_them(model: Any) -> None:
    with patch_rope(model, SCALES):
        right = logits(model)[:, 7:8]
    cache = filled(model, dynamic, SCALES)
    twin, shallow = copy.deepcopy(cache), copy.copy(cache)
    stored = pickle.loads(pickle.dumps(cache))  # noqa: S301
    cropped = filled(model, dynamic, OTHERS)
    cropped.crop(-3)
    with patch_rope(model, SCALES) as patch:
        for same in (twin, stored, shallow):
            assert close(run(model, IDS[:, 7:8], same), right)
        with pytest.raises(ModelError, match=REFUSED):
            run(model, IDS[:, 4:5], cropped)
        twin = copy.deepcopy(twin)
        patch.set(OTHERS)
        with pytest.raises(ModelError, match=REFUSED):
            run(model, IDS[:, 8:9], twin)


def test_a_copy_of_the_model_knows_the_caches_of_its_scales(model: Any) -> None:
    cache = filled(model, dynamic, SCALES)
    with patch_rope(model, SCALES) as patch:
        right = logits(model)[:, 7:8]
        twin = copy.deepcopy(model)
        patch.set(OTHERS)
        assert close(run(twin, IDS[:, 7:8], cache), right)
        with pytest.raises(ModelError, match=REFUSED):
            run(model, IDS[:, 8:9], cache)


def test_live_scales_that_were_changed_in_place_are_other_scales(model: Any) -> None:
    live = torch.tensor(SCALES, requires_grad=True)
    with patch_rope(model, live):
        cache = dynamic(model)
        run(model, IDS[:, :7], cache)
        run(model, IDS[:, 7:8], cache)
        with torch.no_grad():
            live.mul_(1.5)
        with pytest.raises(ModelError, match=REFUSED):
            run(model, IDS[:, 8:9], cache)


@pytest.mark.parametrize("spec", ["pi:2", "yarn:4", "ntk:4:original=4", "ms-poe:first_layer=0"])
def test_methods_refuse_caches_of_others_and_of_scales(model: Any, spec: str) -> None:
    plain, scaled = filled(model, dynamic), filled(model, dynamic, SCALES)
    with make_method("pi:1.5").apply(model):
        other = dynamic(model)
        run(model, IDS[:, :7], other)
    with make_method(spec).apply(model):
        own = dynamic(model)
        run(model, IDS[:, :7], own)
        run(model, IDS[:, 7:8], own)
        for cache in (plain, scaled, other):
            with pytest.raises(ModelError, match="filled under this method, but it was filled"):
                run(model, IDS[:, 7:8], cache)
    with patch_rope(model, SCALES), pytest.raises(ModelError, match=REFUSED):
        run(model, IDS[:, 8:9], own)


def test_scales_on_top_of_a_method_are_another_rotation_than_either(model: Any) -> None:
    with make_method("pi:2").apply(model):
        alone = dynamic(model)
        run(model, IDS[:, :7], alone)
        with patch_rope(model, SCALES), pytest.raises(ModelError, match="under this method and these scales"):
            run(model, IDS[:, 7:8], alone)
        run(model, IDS[:, 7:8], alone)


GENERATION = {
    "sampling": {"do_sample": True, "top_k": 5},
    "beams": {"num_beams": 2, "num_return_sequences": 2},
    "pieces": {"prefill_chunk_size": 5},
    "a static cache": {"cache_implementation": "static"},
    "guesses from the prompt": {"prompt_lookup_num_tokens": 2},
    "no cache": {"use_cache": False},
}


@pytest.mark.parametrize("kind", GENERATION)
def test_generation_of_every_kind_works_before_and_after_other_scales(model: Any, kind: str) -> None:
    ids = IDS[:1] if kind.startswith("guesses") else IDS

    def said() -> torch.Tensor:
        torch.manual_seed(0)
        return model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=5,
                              min_new_tokens=5, **({"do_sample": False} | GENERATION[kind]))  # fmt: skip

    plain = said()
    with patch_rope(model, SCALES) as patch:
        scaled = said()
        patch.set([1.0] * 3)
        assert torch.equal(said(), plain)
        patch.set(SCALES)
        assert torch.equal(said(), scaled)
    assert torch.equal(said(), plain)


@pytest.mark.parametrize("kind", GENERATION)
def test_generation_of_every_kind_is_that_of_other_frequencies(model: Any, kind: str) -> None:
    ids = IDS[:1] if kind.startswith("guesses") else IDS
    settings = {"do_sample": False, "max_new_tokens": 5, "min_new_tokens": 5, "output_logits": True}
    settings |= {"attention_mask": torch.ones_like(ids), "return_dict_in_generate": True} | GENERATION[kind]

    def said(asked: Any) -> Any:
        torch.manual_seed(0)
        return asked.generate(input_ids=ids, **settings)

    plain = said(model)
    # The scale of a uniform vector is linear scaling, which divides the frequencies of the twin.
    twin = tiny_model("llama")
    twin.model.rotary_emb.inv_freq.div_(2.5)
    expected = said(twin)
    with patch_rope(model, [2.5] * 3):
        found = said(model)
    assert torch.equal(found.sequences, expected.sequences)
    assert close(torch.stack(found.logits), torch.stack(expected.logits))
    assert not close(torch.stack(plain.logits), torch.stack(expected.logits), 1e-3)


def test_an_assistant_may_have_scales_of_its_own_or_none() -> None:
    model, assistant = talkative(), talkative()
    ids = IDS[:1]
    settings = {"max_new_tokens": 8, "min_new_tokens": 8, "do_sample": False}
    plain = model.generate(input_ids=ids, **settings)
    with patch_rope(model, SCALES):
        alone = model.generate(input_ids=ids, **settings)
        assert not torch.equal(alone, plain)
        assert torch.equal(model.generate(input_ids=ids, assistant_model=assistant, **settings), alone)
        with patch_rope(assistant, OTHERS):
            assert torch.equal(model.generate(input_ids=ids, assistant_model=assistant, **settings), alone)


@pytest.mark.parametrize(("model_type", "changes"), [("mistral", {"sliding_window": 5}), ("gemma3_text", {})])
def test_sliding_caches_go_on_under_the_same_scales_alone(model_type: str, changes: Any) -> None:
    model = tiny_model(model_type, **changes)
    with patch_rope(model, SCALES) as patch:
        right, cache = logits(model)[:, 7:8], dynamic(model)
        run(model, IDS[:, :7], cache)
        assert close(run(model, IDS[:, 7:8], cache), right)
        patch.set(OTHERS)
        with pytest.raises(ModelError, match=REFUSED):
            run(model, IDS[:, 8:9], cache)


@pytest.mark.slow
def test_requests_of_generate_batch_are_those_of_generate() -> None:
    model = talkative()
    from transformers import GenerationConfig

    settings = GenerationConfig(max_new_tokens=4, do_sample=False, eos_token_id=None, pad_token_id=0)

    def said() -> list[list[int]]:
        rows = [model.generate(input_ids=row[None], generation_config=settings)[0] for row in IDS]
        return [row[IDS.shape[1] :].tolist() for row in rows]

    plain = said()
    with patch_rope(model, SCALES):
        alone = said()
        together = generated_together(model, IDS, settings)
    assert [found.error for found in together] == [None, None]
    assert [found.generated_tokens for found in together] == alone
    assert all(scaled != untouched for scaled, untouched in zip(alone, plain, strict=True))
