"""Ms-PoE: ratios, the order of heads, and a reference computed by hand."""

from typing import Any

import pytest
import torch

from lpes_evo.errors import ModelError, UnsupportedModelError
from lpes_evo.methods import MsPoe, PositionInterpolation, head_numbers
from method_promises import IDS, SHORT, close, decoded, logits
from reference_model import reference_logits, rotate
from rope_families import tiny_model
from rope_promises import padded_batch


def test_the_largest_ratio_is_not_quite_reached() -> None:
    ratios = MsPoe().ratios(32)
    assert (ratios[0], ratios[-1]) == (1.2, 1.78125)


def test_heads_are_numbered_by_rank_or_as_the_released_code_does() -> None:
    scores = torch.tensor([0.1, 0.9, 0.5, 0.3])
    assert head_numbers(scores, "rank").tolist() == [3, 0, 1, 2]
    assert head_numbers(scores, "released").tolist() == [1, 2, 3, 0]


def sharpness(query: torch.Tensor, key: torch.Tensor) -> list[float]:
    """Return the share of keys above three times the mean for each head of one row, loop by loop."""
    shares = []
    for head in range(len(query)):
        scores = (
            torch.tensor([float(query[head, -1] @ vector) for vector in key[head]]) / query.shape[-1] ** 0.5
        )
        weights = scores.softmax(0)
        shares.append(float((weights > 3 * weights.mean()).float().mean()))
    return shares


def sharpened(model: Any) -> Any:
    """Make attention so sharp that the statistics tell the heads, and the prompts, apart."""
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        for layer in model.model.layers:
            weight = layer.self_attn.q_proj.weight
            weight.copy_(3 * torch.randn(weight.shape))
    return model


@pytest.mark.parametrize("order", ["rank", "released", "normal"])
@pytest.mark.parametrize("key_heads", [4, 2])
def test_logits_are_those_of_a_reference(order: str, key_heads: int) -> None:
    model = sharpened(tiny_model("llama", num_hidden_layers=1, num_key_value_heads=key_heads))
    numbers_seen = []

    def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        per_group = len(query) // key_heads
        shares = sharpness(query, key.repeat_interleave(per_group, 0))
        means = [sum(shares[g * per_group : (g + 1) * per_group]) / per_group for g in range(key_heads)]
        by_share = sorted(range(key_heads), key=lambda group: -means[group])
        number = {
            "rank": [by_share.index(group) for group in range(key_heads)],
            "released": by_share,
            "normal": list(range(key_heads))[::-1],
        }[order]
        numbers_seen.append(tuple(number))
        outputs = []
        for head in range(len(query)):
            ratio = 1.2 + 0.6 * number[head // per_group] / key_heads
            positions = torch.arange(query.shape[1]) / ratio
            scores = rotate(query[head], positions) @ rotate(key[head // per_group], positions).T
            hidden = torch.full_like(scores, -torch.inf).triu(1)
            outputs.append((scores / query.shape[-1] ** 0.5 + hidden).softmax(-1) @ value[head // per_group])
        return torch.stack(outputs)

    expected = reference_logits(model, IDS, attend)
    with MsPoe(order=order, first_layer=0).apply(model):
        assert close(logits(model), expected)
    if key_heads == 4:
        assert (
            numbers_seen[0] == {"rank": (2, 0, 3, 1), "released": (1, 3, 0, 2), "normal": (3, 2, 1, 0)}[order]
        )


@pytest.mark.parametrize("order", ["rank", "released"])
def test_the_order_of_heads_is_that_of_the_prompt_of_each_row_to_the_end(
    order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = sharpened(tiny_model("llama", num_key_value_heads=4))
    dealt: list[list[list[int]]] = []

    def watch(scores: torch.Tensor, order: str) -> torch.Tensor:
        numbers = head_numbers(scores, order)
        dealt.append(numbers.tolist())
        return numbers

    monkeypatch.setattr("lpes_evo.methods._ms_poe.head_numbers", watch)
    ids, mask = padded_batch()
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    with MsPoe(order=order, first_layer=0).apply(model) as handle:
        both = logits(model, ids, attention_mask=mask, position_ids=positions)
        in_batch = dealt.copy()
        # The suite of all methods has attention that is too even for rows to differ in their order.
        assert any(first != second for first, second in in_batch)
        dealt.clear()
        alone = logits(model, ids[:1, -SHORT:]), logits(model, ids[1:])
        assert [[one[0], other[0]] for one, other in zip(dealt[:3], dealt[3:], strict=True)] == in_batch
        assert close(both[0, -SHORT:], alone[0][0])
        assert close(both[1], alone[1][0])
        dealt.clear()
        steps = decoded(model)
        of_prompts = dealt.copy()
        assert len(of_prompts) == 3  # one choice in each layer, and none while decoding
        dealt.clear()
        by_all = logits(model)
        assert dealt != of_prompts
        assert not close(by_all[:, SHORT:], steps)
        with handle.prompts([SHORT, SHORT]):
            assert close(logits(model)[:, SHORT:], steps)


def test_equal_ratios_are_one_ratio() -> None:
    model = tiny_model("llama")
    with PositionInterpolation(factor=1.5).apply(model):
        interpolated = logits(model)
    with MsPoe(smallest=1.5, largest=1.5, first_layer=0).apply(model):
        assert close(logits(model), interpolated, 1e-6)


def test_layers_before_the_first_one_are_left_alone() -> None:
    model = tiny_model("llama", num_hidden_layers=4)

    def outputs() -> list[torch.Tensor]:
        found: list[torch.Tensor] = []
        handles = [
            layer.register_forward_hook(
                lambda _m, _a, out: found.append(out if torch.is_tensor(out) else out[0])
            )
            for layer in model.model.layers
        ]
        logits(model)
        for handle in handles:
            handle.remove()
        return found

    plain = outputs()
    with MsPoe().apply(model):
        changed = outputs()
    assert [torch.equal(one, other) for one, other in zip(plain, changed, strict=True)] == [
        True,
        True,
        False,
        False,
    ]


def test_a_model_without_layers_for_it_is_refused() -> None:
    model = tiny_model("llama", num_hidden_layers=2)
    with (
        pytest.raises(UnsupportedModelError, match="from layer 2 on .* got no such layers"),
        MsPoe().apply(model),
    ):
        pass


def test_two_methods_at_once_are_refused_and_the_first_stays_in_force() -> None:
    model = tiny_model("llama")
    plain = logits(model)
    with MsPoe(first_layer=0).apply(model):
        changed = logits(model)
        with pytest.raises(ModelError, match="under no other method"), MsPoe().apply(model):
            pass
        assert torch.equal(logits(model), changed)
    assert torch.equal(logits(model), plain)


def test_a_cache_from_outside_is_refused() -> None:
    model = tiny_model("llama")
    with torch.no_grad():
        cache = model(input_ids=IDS, use_cache=True).past_key_values
        with MsPoe().apply(model), pytest.raises(ModelError, match="filled under this method"):
            model(input_ids=IDS[:, :1], past_key_values=cache)


def test_prompts_must_fit_the_batch() -> None:
    model = tiny_model("llama")
    with MsPoe().apply(model) as handle:
        with handle.prompts([SHORT] * 3), pytest.raises(ModelError, match="lengths of 2 prompts, but got 3"):
            logits(model)
        with pytest.raises(ModelError, match="one positive number of prompt tokens"), handle.prompts([0]):
            pass


def test_other_attention_functions_serve_too() -> None:
    model = tiny_model("llama")
    with MsPoe(first_layer=1).apply(model):
        by_sdpa = logits(model)
    model.set_attn_implementation("eager")
    with MsPoe(first_layer=1).apply(model):
        assert close(logits(model), by_sdpa)


def test_half_precision_is_followed() -> None:
    model = tiny_model("llama", torch.bfloat16)
    plain = logits(model)
    with MsPoe(smallest=1, largest=1, first_layer=0).apply(model):
        assert torch.equal(logits(model), plain)
