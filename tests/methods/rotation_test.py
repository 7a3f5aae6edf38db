"""How layers rotate: found out from probes, and followed without copying by indices where there is a rule."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from lpes_evo.errors import ModelError, UnsupportedModelError
from lpes_evo.methods.takeover import Rotation, find_rotation, find_rotations, n_probes, probe_tables
from method_promises import CASES, neutral_setting_is_bit_equal
from rope_families import CONFIG_MAPPING, tiny_model

Rotate = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def halves(states: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    one, other = states.chunk(2, dim=-1)
    return states * cosines + torch.cat((-other, one), dim=-1) * sines


def narrow_halves(states: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    return halves(states, *(torch.cat((table, table), dim=-1) for table in (cosines, sines)))


def neighbours(states: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    pairs = torch.stack((-states[..., 1::2], states[..., ::2]), dim=-1).flatten(-2)
    return states * cosines + pairs * sines


def narrow_neighbours(states: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    return neighbours(states, *(table.repeat_interleave(2, dim=-1) for table in (cosines, sines)))


def part(states: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    width = cosines.shape[-1]
    return torch.cat((halves(states[..., :width], cosines, sines), states[..., width:]), dim=-1)


def shuffled(states: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    order = torch.randperm(16, generator=torch.Generator().manual_seed(3))
    return halves(states[..., order], cosines, sines)[..., order.argsort()]


def rotation_of(rotate: Rotate, width: int, dtype: torch.dtype = torch.float32) -> Rotation | None:
    generator = torch.Generator().manual_seed(0)
    queries, keys = (
        torch.randn(1, heads, 8, 16, generator=generator).to(dtype).expand(n_probes(width), -1, -1, -1)
        for heads in (4, 2)
    )
    cosines, sines = (table[:, None] for table in probe_tables(torch.ones(1, 8, width, dtype=dtype)))
    return find_rotation(rotate(queries, cosines, sines), rotate(keys, cosines, sines), width, "Layer")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("rotate", "width", "n_runs"),
    [
        (halves, 16, 2),
        (narrow_halves, 8, 2),
        (neighbours, 16, 2),
        (narrow_neighbours, 8, 2),
        (part, 8, 2),
        (shuffled, 16, None),
    ],
)
def test_a_rotation_is_followed_bit_by_bit(
    rotate: Rotate, width: int, n_runs: int | None, dtype: torch.dtype
) -> None:
    rotation = rotation_of(rotate, width, dtype)
    assert rotation is not None
    assert (rotation.head_dim, rotation.n_heads, rotation.n_key_heads) == (16, 4, 2)
    if n_runs is None:
        assert all(isinstance(run.dims, torch.Tensor) for run in rotation.runs)
    else:
        assert len(rotation.runs) == n_runs
        assert all(type(run.dims) is type(run.partner) is slice for run in rotation.runs)
    generator = torch.Generator().manual_seed(1)
    states = torch.randn(2, 4, 5, 16, generator=generator).to(dtype)
    cosines, sines = torch.randn(2, 2, 1, 5, width, generator=generator).to(dtype)
    before = states.clone()
    assert torch.equal(rotation.rotate(states, cosines, sines), rotate(states, cosines, sines))
    assert torch.equal(states, before)


def test_gradients_flow_through_a_rotation() -> None:
    for rotate, width in ((halves, 16), (part, 8), (shuffled, 16)):
        rotation = rotation_of(rotate, width)
        assert rotation is not None
        tables = torch.randn(2, 5, width, generator=torch.Generator().manual_seed(1))
        found = []
        for function in (rotation.rotate, rotate):
            states = torch.arange(80.0).view(1, 1, 5, 16).requires_grad_()
            function(states, *tables).square().sum().backward()
            found.append(states.grad)
        assert torch.allclose(*found)


def test_a_layer_that_does_not_rotate_has_no_rotation() -> None:
    assert rotation_of(lambda states, _cosines, _sines: states, 16) is None


def test_a_layer_that_does_otherwise_is_refused() -> None:
    def otherwise(states: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
        return states * cosines + states.square() * sines

    with pytest.raises(UnsupportedModelError, match="rotated pair by pair, but Layer does otherwise"):
        rotation_of(otherwise, 16)


@pytest.mark.parametrize("model_type", ["cohere", "glm", "ernie4_5"])
@pytest.mark.parametrize("name", ["ms-poe", "moice"])
def test_families_that_rotate_neighbours_are_followed(model_type: str, name: str, tmp_path: Path) -> None:
    if model_type not in CONFIG_MAPPING:
        pytest.skip(f"this transformers has no {model_type}")
    model = tiny_model(model_type)
    assert all(len(rotation.runs) == 2 for _, rotation in find_rotations(model).values())
    neutral_setting_is_bit_equal(model, CASES[name], tmp_path)


def test_weights_that_are_not_finite_are_not_taken_for_another_way_to_rotate() -> None:
    model = tiny_model("llama")
    with torch.no_grad():
        model.model.layers[1].self_attn.k_proj.weight.fill_(torch.nan)
    with pytest.raises(
        ModelError, match="finite queries and keys, but a layer LlamaAttention computes others"
    ):
        find_rotations(model)
