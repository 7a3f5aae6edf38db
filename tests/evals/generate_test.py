import numpy as np
import pytest
import torch
from transformers import GenerationConfig

from lpes_evo.problems import end_ids, generate_greedy
from lpes_evo.rope import patch_rope
from samples import build_llama

PROMPTS = [list(range(2, 14)), list(range(30, 70)), [5, 9, 200]]


@pytest.fixture
def model():
    return build_llama()


def recomputed(model, prompt, n_tokens):
    """Greedy decoding without a cache: one whole forward pass for each token."""
    ids = list(prompt)
    for _ in range(n_tokens):
        ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return tuple(ids[len(prompt) :])


def test_a_padded_batch_gives_what_single_rows_give_without_a_cache(model):
    found = generate_greedy(model, PROMPTS, [8, 8, 8], ends=())
    assert [said.ids for said in found] == [recomputed(model, prompt, 8) for prompt in PROMPTS]
    assert all(said.is_finite for said in found)


def test_scales_stay_in_force_for_every_cached_step(model):
    plain = [recomputed(model, prompt, 8) for prompt in PROMPTS]
    with patch_rope(model, np.array([0.3, 5.0, 2.0])):
        expected = [recomputed(model, prompt, 8) for prompt in PROMPTS]
        found = generate_greedy(model, PROMPTS, [8, 8, 8], ends=())
    assert [said.ids for said in found] == expected
    assert expected != plain


def test_an_answer_ends_at_an_end_token_and_at_its_own_limit(model):
    whole = recomputed(model, PROMPTS[0], 8)
    end = whole[3]
    first = whole.index(end)
    found = generate_greedy(model, PROMPTS, [8, 2, 5], ends=(end,), pad_id=end)
    assert found[0].ids == whole[:first]
    other = recomputed(model, PROMPTS[1], 2)
    assert found[1].ids == other[: other.index(end) if end in other else 2]
    assert len(found[2].ids) <= 5


def test_the_models_own_generation_settings_neither_count_nor_change(model):
    expected = [said.ids for said in generate_greedy(model, PROMPTS, [8] * 3, ends=())]
    own = GenerationConfig(
        do_sample=True,
        temperature=3.0,
        repetition_penalty=5.0,
        no_repeat_ngram_size=1,
        min_new_tokens=4,
        num_beams=3,
    )
    model.generation_config = own
    assert [said.ids for said in generate_greedy(model, PROMPTS, [8] * 3, ends=())] == expected
    assert model.generation_config is own


def test_an_output_that_is_not_finite_is_told_apart_from_its_neighbours(model):
    # The rare token alone leads to a hidden state without a value.
    with torch.no_grad():
        model.get_input_embeddings().weight[257] = float("nan")
    found = generate_greedy(model, [[2, 3, 257], [4, 5, 6]], [3, 3], ends=())
    assert [said.is_finite for said in found] == [False, True]


def test_end_tokens_come_from_the_settings_and_the_tokenizer(model, tiny_loaded):
    assert end_ids(model, tiny_loaded.tokenizer) == (1,)
    model.generation_config.eos_token_id = [7, 1]
    assert end_ids(model, tiny_loaded.tokenizer) == (1, 7)
    model.generation_config.eos_token_id = None
    assert end_ids(model, tiny_loaded.tokenizer) == (1,)
