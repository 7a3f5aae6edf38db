"""Types whose frequencies follow the length of the input: no score depends on what ran before, or beside it."""

import copy
from typing import Any

import numpy as np
import pytest
import torch

from lpes_evo.errors import UnsupportedModelError
from lpes_evo.problems import (
    EncodedExample,
    answer_gradient,
    generate_greedy,
    score_answers,
    sharing_is_sound,
)
from lpes_evo.rope import forget_lengths, patch_rope
from rope_families import tiny_model

TYPES: dict[str, dict[str, Any]] = {
    "dynamic": {"factor": 4.0},
    "longrope": {
        "short_factor": [1.0, 1.1, 1.2, 1.3],
        "long_factor": [1.5, 2.0, 3.0, 4.0],
        "factor": 4.0,
        "original_max_position_embeddings": 64,
    },
}
CURVE = np.array([0.9, 1.2, 1.4])
LENGTHS = (150, 40, 90, 90, 64, 65, 30)


def build(kind: str) -> Any:
    parameters = {"rope_type": kind, "rope_theta": 10000.0, **TYPES[kind]}
    model = tiny_model("llama", rope_parameters=parameters, max_position_embeddings=64, initializer_range=0.3)
    return model.eval().requires_grad_(False)


def tokens(length: int, seed: int = 0) -> list[int]:
    return np.random.default_rng([length, seed]).integers(3, 64, length).tolist()


def rows() -> list[EncodedExample]:
    return [
        EncodedExample("r", tuple(tokens(length, seed)), (5, 9)[: 1 + seed % 2])
        for seed, length in enumerate(LENGTHS)
    ]


def logits(model: Any, length: int) -> torch.Tensor:
    with torch.inference_mode():
        found: torch.Tensor = model(torch.tensor([tokens(length)])).logits
    return found


@pytest.fixture(params=TYPES)
def kind(request: Any) -> str:
    return request.param


@pytest.mark.parametrize("scales", [None, CURVE])
def test_a_pass_has_the_logits_of_a_fresh_model_whatever_ran_before(kind: str, scales: Any) -> None:
    def expected(length: int) -> torch.Tensor:
        model = build(kind)
        if scales is not None:
            patch_rope(model, scales)
        return logits(model, length)

    model = build(kind)
    assert forget_lengths(model)
    if scales is not None:
        patch_rope(model, scales)
    # The original length itself, and one above it, are where the type of transformers does not go back.
    for length in (150, 100, 64, 65, 40, 150):
        assert torch.equal(logits(model, length), expected(length))


def test_without_it_a_long_input_shows_in_the_next() -> None:
    model = build("dynamic")
    fresh = logits(model, 64)
    logits(model, 150)
    assert not torch.equal(logits(model, 64), fresh)
    forget_lengths(model)
    assert torch.equal(logits(model, 64), fresh)
    assert torch.equal(logits(copy.deepcopy(model), 64), fresh)


def test_a_second_call_adds_no_second_hook() -> None:
    model = build("dynamic")
    for _ in range(3):
        assert forget_lengths(model)
    assert len(model.model.rotary_emb._forward_pre_hooks) == 1


def test_a_model_of_a_fixed_type_is_left_alone() -> None:
    model = tiny_model("llama")
    assert not forget_lengths(model)
    assert not model.model.rotary_emb._forward_pre_hooks


@pytest.mark.parametrize("scales", [None, CURVE[None], np.stack([CURVE, np.ones(3), 2 - CURVE])])
def test_scores_depend_neither_on_order_nor_on_company(kind: str, scales: Any) -> None:
    examples = rows()
    model = build(kind)
    alone = [score_answers(build(kind), [row], scales=scales).log_probability for row in examples]
    expected = np.concatenate(alone, axis=-1)
    for batch_tokens in (1, 200, 100000):
        found = score_answers(model, examples, scales=scales, batch_tokens=batch_tokens).log_probability
        np.testing.assert_allclose(found, expected, atol=1e-5)
        turned = score_answers(model, examples[::-1], scales=scales, batch_tokens=batch_tokens)
        np.testing.assert_allclose(turned.log_probability[..., ::-1], expected, atol=1e-5)


def test_rows_share_a_prefix_only_with_rows_that_are_rotated_alike(kind: str) -> None:
    model = build(kind)
    start = tokens(60)
    examples = [EncodedExample("r", tuple(start + tokens(n)), (5,)) for n in (2, 9, 30)]
    # The last two are both beyond the original window, where longrope has one set of frequencies.
    assert sharing_is_sound(model, examples).is_sound == (kind == "longrope")
    expected = [score_answers(build(kind), [row]).log_probability[0] for row in examples]
    found = score_answers(model, examples, share_prefixes=True).log_probability
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_gradients_depend_neither_on_order_nor_on_company(kind: str) -> None:
    examples = rows()
    weights = np.linspace(0.5, 1.5, len(examples))
    parts = [answer_gradient(build(kind), [row], CURVE, weights[[n]]) for n, row in enumerate(examples)]
    model = build(kind)
    score_answers(model, examples)
    scores, gradient = answer_gradient(model, examples, CURVE, weights, batch_tokens=100000)
    np.testing.assert_allclose(scores, np.concatenate([part[0] for part in parts]), atol=1e-5)
    np.testing.assert_allclose(gradient, sum(part[1] for part in parts), rtol=1e-4, atol=1e-4)
    assert np.abs(gradient).min() > 0


@pytest.mark.parametrize("scales", [None, CURVE])
def test_answers_are_those_of_a_lone_generate_on_a_fresh_model(kind: str, scales: Any) -> None:
    prompts = [tokens(length, seed) for seed, length in enumerate((150, 58, 63, 90, 58, 30))]
    limits = [9, 12, 4, 9, 5, 9]

    def made() -> Any:
        model = build(kind)
        if scales is not None:
            patch_rope(model, scales)
        return model

    expected = []
    for prompt, limit in zip(prompts, limits, strict=True):
        # Prompts of 58 and 63 tokens cross the original length of 64 while they are answered.
        said = made().generate(
            input_ids=torch.tensor([prompt]),
            max_new_tokens=limit,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
        expected.append(tuple(said[0, len(prompt) :].tolist()))
    model = made()
    for order in (range(6), range(5, -1, -1)):
        found = generate_greedy(model, [prompts[n] for n in order], [limits[n] for n in order], ends=())
        assert [said.ids for said in found] == [expected[n] for n in order]


def test_tables_that_grow_with_the_longest_row_do_so_row_by_row() -> None:
    # The rotary module of PhiMoE looks for the length itself.
    parameters = {"rope_type": "longrope", "rope_theta": 10000.0, **TYPES["longrope"]}
    model = tiny_model(
        "phimoe",
        rope_parameters=parameters | {"short_mscale": 1.0, "long_mscale": 1.5},
        max_position_embeddings=256,
        original_max_position_embeddings=64,
    )
    assert forget_lengths(model)
    examples = rows()
    expected = [score_answers(model, [row]).log_probability[0] for row in examples]
    found = score_answers(model, examples, batch_tokens=100000).log_probability
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_module_with_a_way_of_its_own_is_refused() -> None:
    model = tiny_model("llama")

    class OwnDynamicNTKScalingRotaryEmbedding(torch.nn.Module):
        def forward(self, x: Any, position_ids: Any) -> Any:
            raise NotImplementedError

    model.model.rotary_emb = OwnDynamicNTKScalingRotaryEmbedding()
    with pytest.raises(
        UnsupportedModelError, match="OwnDynamicNTKScalingRotaryEmbedding changes its frequencies"
    ):
        forget_lengths(model)
