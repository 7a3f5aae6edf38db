"""MoICE: routers, experts, their file and their training."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from lpes_evo.errors import ConfigError, ModelError, TaskError, UnsupportedModelError
from lpes_evo.methods import MethodHandle, Moice, TrainingSettings, train_routers
from lpes_evo.methods.moice import (
    Router,
    accumulate_gradients,
    balancing_loss,
    expert_weights,
    load_routers,
    mixed_experts,
    new_routers,
    read_sequences,
    save_routers,
)
from lpes_evo.methods.takeover import rotary_variant
from lpes_evo.rope import find_structure
from method_promises import IDS, close, enter, logits
from reference_model import reference_logits, rotate
from rope_families import tiny_model

BASES = (1.0, 1.75, 2.5)


@pytest.fixture(scope="module")
def llama() -> Any:
    return tiny_model("llama")


@pytest.fixture
def routers_file(llama: Any, tmp_path: Path) -> Path:
    path = tmp_path / "routers.safetensors"
    save_routers(new_routers(llama, "tiny", BASES, 2, seed=0, trained={}), path)
    return path


def texts() -> list[list[int]]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(1, 64, (length,), generator=generator).tolist() for length in range(8, 24)]


def test_a_router_has_the_published_size() -> None:
    assert sum(weight.numel() for weight in Router(128, 7, "silu").parameters()) == 1841


def test_kept_weights_sum_to_one() -> None:
    weights = expert_weights(torch.tensor([0.5, 0.3, 0.2]), 2)
    assert torch.allclose(weights, torch.tensor([0.625, 0.375, 0.0]))
    assert torch.equal(expert_weights(torch.tensor([0.5, 0.25, 0.25]), 3), torch.tensor([0.5, 0.25, 0.25]))


@pytest.mark.parametrize("expert", [0, 1, 2])
def test_a_router_that_is_forced_to_an_expert_gives_the_model_with_its_base(llama: Any, expert: int) -> None:
    routers = new_routers(llama, "tiny", BASES, 1, seed=0, trained={})
    with torch.no_grad():
        for router in routers.by_layer.values():
            router.gate_3.weight.copy_(router.gate_1.weight)
            # silu(z) * z is never negative, so that one row wins for every query.
            router.gate_2.weight.fill_(-1e6)
            router.gate_2.weight[expert] = 1e6
    model = tiny_model("llama")
    model.model.rotary_emb = rotary_variant(find_structure(model).rotary_modules[0], base_ratio=BASES[expert])
    with mixed_experts(llama, routers, MethodHandle(), top_k=1):
        assert close(logits(llama), logits(model), 1e-6)


@pytest.mark.parametrize("bases", [BASES, (2.5, 1.0, 1.75)])
def test_logits_are_those_of_a_reference(bases: tuple[float, ...]) -> None:
    model = tiny_model("llama", num_hidden_layers=1, num_key_value_heads=4)
    routers = new_routers(model, "tiny", bases, 2, seed=0, trained={}).requires_grad_(False)
    gates = dict(routers.of(0).named_parameters())

    def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(query.shape[1])
        outputs = []
        for one, other, content in zip(query, key, value, strict=True):
            # With the first base of the set, which need not be the model's own.
            first = rotate(one, positions, 10000 * bases[0])
            inner = torch.nn.functional.silu(first @ gates["gate_1.weight"].T) * (
                first @ gates["gate_3.weight"].T
            )
            share = (inner @ gates["gate_2.weight"].T).softmax(-1)
            share = torch.where(share == share.amin(-1, keepdim=True), 0.0, share)
            share = share / share.sum(-1, keepdim=True)
            mixed = torch.zeros_like(content)
            for number, ratio in enumerate(bases):
                scores = rotate(one, positions, 10000 * ratio) @ rotate(other, positions, 10000 * ratio).T
                hidden = torch.full_like(scores, -torch.inf).triu(1)
                part = (scores / one.shape[-1] ** 0.5 + hidden).softmax(-1) @ content
                mixed = mixed + share[:, number : number + 1] * part
            outputs.append(mixed)
        return torch.stack(outputs)

    expected = reference_logits(model, IDS, attend)
    with mixed_experts(model, routers, MethodHandle(), top_k=2):
        assert close(logits(model), expected)


def test_the_balancing_loss_is_constant_where_all_experts_are_kept() -> None:
    flat = torch.randn(50, 7).softmax(-1).requires_grad_()
    loss = balancing_loss([flat], 7)
    (gradient,) = torch.autograd.grad(loss, flat)
    assert float(loss.detach()) == pytest.approx(7)
    # Each entry adds the same to every expert's mean, and rows sum to 1.
    assert float((gradient - gradient.mean()).abs().max()) < 1e-6
    collapsed = torch.zeros(50, 7).index_fill(1, torch.tensor([0]), 9.0).softmax(-1)
    assert float(balancing_loss([collapsed], 1)) == pytest.approx(7, rel=2e-3)
    even = torch.eye(7).repeat(10, 1)
    assert float(balancing_loss([even], 1)) == pytest.approx(1)


@pytest.mark.parametrize("top_k", [3, 2])
def test_checkpointing_gives_the_same_gradients_in_two_steps(top_k: int) -> None:
    model = tiny_model("llama").requires_grad_(False)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found: list[list[torch.Tensor]] = []
    for checkpointing in (False, True):
        routers = new_routers(model, "tiny", BASES, top_k, seed=0, trained={})
        optimiser = torch.optim.AdamW(routers.parameters(), lr=0.01, weight_decay=0.0)
        seen: dict[int, torch.Tensor] = {}
        if checkpointing:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            model.train()
        gradients = []
        with mixed_experts(model, routers, MethodHandle(), top_k=top_k, seen=seen):
            for step in range(2):
                accumulate_gradients(model, texts()[2 * step : 2 * step + 2], seen, top_k, 0.3)
                gradients += [
                    gradient.clone()
                    for weight in routers.parameters()
                    if (gradient := weight.grad) is not None
                ]
                optimiser.step()
                optimiser.zero_grad()
        found.append(gradients)
    assert len(found[0]) == len(found[1]) == 2 * 3 * 3
    for plain, again in zip(*found, strict=True):
        assert plain.abs().max() > 0
        assert close(again / plain.abs().max(), plain / plain.abs().max())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("checkpointing", [True, False])
def test_training_lowers_the_loss_and_leaves_the_model_bit_equal(checkpointing: bool, tmp_path: Path) -> None:
    model = tiny_model("llama")
    with torch.no_grad():
        # Positions matter more with larger queries.
        for layer in model.model.layers:
            layer.self_attn.q_proj.weight.mul_(30)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    wanted = [parameter.requires_grad for parameter in model.parameters()]
    settings = TrainingSettings(
        bases=(10000, 17500, 10.0),
        steps=12,
        sequences=4,
        learning_rate=0.05,
        held_out=4,
        checkpointing=checkpointing,
    )
    data = texts()
    trained = train_routers(model, "tiny", [*data, *data], settings)
    assert trained.after < trained.before
    assert len(trained.losses) == 12
    after = model.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert [parameter.requires_grad for parameter in model.parameters()] == wanted
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not model.training
    assert not model.is_gradient_checkpointing
    path = tmp_path / "trained.safetensors"
    save_routers(trained.routers, path)
    with Moice(routers=str(path)).apply(model):
        from_file = logits(model)
    with mixed_experts(model, trained.routers, MethodHandle(), top_k=3):
        assert torch.equal(logits(model), from_file)
    assert load_routers(path).facts.trained["steps"] == 12


def test_too_few_sequences_are_refused(llama: Any) -> None:
    with pytest.raises(ConfigError, match="more than the 16 sequences that are held out, but got 1"):
        train_routers(llama, "tiny", [[1, 2, 3], [4]], TrainingSettings())


def test_routers_of_another_model_are_refused(routers_file: Path) -> None:
    other, deeper = tiny_model("llama"), tiny_model("llama", num_hidden_layers=4)
    with torch.no_grad():
        other.lm_head.weight.add_(1)
    for model in (other, deeper):
        with pytest.raises(ModelError, match="trained for this model, but those of .* for tiny: 3 layers"):
            enter(Moice(routers=str(routers_file)), model)


def test_architectures_with_a_fixed_table_are_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="keeps a fixed table|has no rotary module"):
        train_routers(tiny_model("gptj"), "tiny", texts(), TrainingSettings(held_out=1))


def test_damaged_files_are_refused_in_one_line(llama: Any, routers_file: Path, tmp_path: Path) -> None:
    truncated, other, wrong = (tmp_path / name for name in ("truncated", "other", "wrong"))
    truncated.write_bytes(routers_file.read_bytes()[:300])
    save_file({"weight": torch.zeros(2)}, other)
    facts = {"format": "lpes-evo/moice-routers", "version": 1, "weights": "", "model": "tiny", "layers": [0],
             "head_dim": 8, "bases": [1.0], "top_k": 1, "activation": "silu", "trained": {}}  # fmt: skip
    save_file({"weight": torch.zeros(2)}, wrong, {"lpes_evo": json.dumps(facts)})
    for path, reason in (
        (tmp_path / "missing", "cannot be read"),
        (truncated, "cannot be read"),
        (other, "it is another file"),
        (wrong, "do not fit each other"),
    ):
        with pytest.raises(ConfigError, match=f"Expected routers of MoICE in .*{reason}"):
            enter(Moice(routers=str(path)), llama)


def test_routers_that_were_exchanged_are_not_taken_for_the_first(
    llama: Any, routers_file: Path, tmp_path: Path
) -> None:
    path = tmp_path / "routers"
    path.write_bytes(routers_file.read_bytes())
    method = Moice(routers=str(path))
    record = method.record(2)
    save_routers(new_routers(llama, "tiny", BASES, 2, seed=1, trained={}), path)
    with pytest.raises(ConfigError, match="to stay what they were when the method was made"):
        enter(method, llama)
    assert Moice(routers=str(path)).record(2)["content"] != record["content"]


@pytest.mark.parametrize("line", ['{"text": "\\ud800"}', "[" * 100_000, "{"])
def test_lines_that_are_no_text_are_refused(line: str, tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text('\ufeff{"text": "ab"}\n' + line)
    with pytest.raises(TaskError, match="line 2, but it is no such text"):
        read_sequences(path, lambda text: {"input_ids": [*text.encode()]})


def test_top_k_is_checked(llama: Any, routers_file: Path) -> None:
    with pytest.raises(ConfigError, match="top_k of at most 3 bases, but got 4"):
        enter(Moice(routers=str(routers_file), top_k=4), llama)
    with pytest.raises(ConfigError, match="top_k between 1 and the 3 bases, but got 4"):
        new_routers(llama, "tiny", BASES, 4, seed=0, trained={})
    assert Moice(routers=str(routers_file)).attention_passes == 3
