"""Attention Buckets: weights, groups, and the search of bases."""

from typing import Any

import pytest
import torch

from lpes_evo.errors import ConfigError, ModelError
from lpes_evo.methods import BASE_SETS, AttentionBuckets, search_bases
from lpes_evo.methods.takeover import combine_streams, rotary_variant
from lpes_evo.rope import find_structure
from method_promises import IDS, close, decoded, logits
from rope_families import tiny_model


@pytest.fixture(scope="module")
def llama() -> Any:
    return tiny_model("llama")


def test_streams_weigh_by_the_softmax_of_their_largest_logits() -> None:
    streams = torch.tensor([[20.0, 0.0], [0.0, 18.0], [10.0, 5.0]])
    weights = torch.tensor([0.880762, 0.119198, 0.0000400])
    assert torch.allclose(combine_streams(streams, "logits"), weights @ streams, rtol=1e-4)
    mixed = (weights[:, None] * streams.softmax(-1)).sum(0)
    assert torch.allclose(combine_streams(streams, "probs").exp(), mixed, rtol=1e-4)
    assert float(combine_streams(streams, "probs").exp().sum()) == pytest.approx(1)


@pytest.mark.parametrize("combine", ["logits", "probs"])
def test_groups_of_any_size_give_the_same(llama: Any, combine: str) -> None:
    with AttentionBuckets(combine=combine).apply(llama):
        at_once, steps = logits(llama), decoded(llama)
    for group in (4, 2, 1):
        with AttentionBuckets(combine=combine, group=group).apply(llama):
            assert close(logits(llama), at_once)
            assert close(decoded(llama), steps)


def test_combined_logits_are_those_of_models_with_the_bases(llama: Any) -> None:
    streams = []
    for ratio in (1.0, 2.5):
        model = tiny_model("llama")
        model.model.rotary_emb = rotary_variant(find_structure(model).rotary_modules[0], base_ratio=ratio)
        streams.append(logits(model))
    with AttentionBuckets(bases=(10000, 25000)).apply(llama):
        assert close(logits(llama), combine_streams(torch.stack(streams), "logits"), 1e-6)


def test_a_base_that_is_listed_twice_counts_twice(llama: Any) -> None:
    plain = logits(llama)
    with AttentionBuckets(bases="10000/10000").apply(llama):
        assert close(logits(llama), plain, 1e-6)


def test_the_published_sets_are_those_of_the_released_code() -> None:
    assert BASE_SETS["tool"] == (10000, 17500, 18000, 19000, 20000, 25000)
    assert BASE_SETS["rag"] == (10000, 13000, 16000, 19000, 22000, 25000, 28000)
    # MoICE adds a base to the first.
    assert {*BASE_SETS["moice"]} - {*BASE_SETS["tool"]} == {22500}
    assert len(BASE_SETS["moice"]) == 7


def test_published_sets_follow_the_base_of_the_model() -> None:
    model = tiny_model("llama", rope_theta=100000.0)
    scaled = "/".join(str(base * 10) for base in BASE_SETS["rag"])
    with AttentionBuckets(bases="rag").apply(model):
        relative = logits(model)
    with AttentionBuckets(bases=scaled).apply(model):
        assert close(logits(model), relative, 1e-6)


def test_given_bases_are_refused_where_layer_types_have_their_own() -> None:
    method = AttentionBuckets(bases="10000")
    wanted = "one rotary base for given bases, but this one has 10000, 1e\\+06"
    with pytest.raises(ConfigError, match=wanted), method.apply(tiny_model("gemma3_text")):
        pass


def test_beam_search_is_refused_in_one_line(llama: Any) -> None:
    with AttentionBuckets(group=1).apply(llama), pytest.raises(ModelError, match="Set num_beams to 1"):
        llama.generate(IDS, max_new_tokens=3, num_beams=2, do_sample=False)


def test_a_cache_of_another_kind_is_refused(llama: Any) -> None:
    with torch.no_grad():
        cache = llama(input_ids=IDS, use_cache=True).past_key_values
        with (
            AttentionBuckets(group=2).apply(llama),
            pytest.raises(ModelError, match="Begin again with the prompt"),
        ):
            llama(input_ids=IDS[:, :1], past_key_values=cache)


def test_labels_are_refused(llama: Any) -> None:
    with AttentionBuckets().apply(llama), pytest.raises(ModelError, match="Expected no labels"):
        llama(input_ids=IDS, labels=IDS)


def test_the_search_gives_what_the_released_program_gives() -> None:
    assert search_bases() == (10000, 18000, 19000, 20500, 24000, 24500)
    assert search_bases((10000,)) == (10000, 15500, 16000, 18000, 19000, 20500)


def test_a_search_without_a_beginning_is_refused() -> None:
    with pytest.raises(ConfigError, match="a base to begin with"):
        search_bases(())
