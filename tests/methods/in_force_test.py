"""One method at a time on a model, and none on its copies without a word."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

from lpes_evo.errors import ModelError
from lpes_evo.methods import make_method
from lpes_evo.rope import patch_rope, unpatch_rope
from method_promises import CASES, SCALES, generated, state
from rope_families import tiny_model
from rope_promises import IDS, close, logits

METHODS = [name for name, case in CASES.items() if not case.variant]


@pytest.fixture
def llama() -> Any:
    return tiny_model("llama")


@pytest.mark.parametrize("outer", METHODS)
def test_a_second_method_is_refused_by_name_and_the_first_stays_in_force(
    outer: str, llama: Any, tmp_path: Path
) -> None:
    methods = {name: CASES[name].method(llama, tmp_path) for name in METHODS}
    plain, before = logits(llama), state(llama)
    with methods[outer].apply(llama):
        changed = logits(llama)
        for inner, method in methods.items():
            wanted = f"under no other method for {inner}, but {outer} is in force. Leave its with block first"
            with pytest.raises(ModelError, match=wanted), method.apply(llama):
                pass
            # The decoder alone is the same model.
            with pytest.raises(ModelError, match=wanted), method.apply(llama.model):
                pass
        assert torch.equal(logits(llama), changed)
        with make_method("baseline").apply(llama):
            assert torch.equal(logits(llama), changed)
    assert torch.equal(logits(llama), plain)
    assert state(llama) == before


@pytest.mark.parametrize("name", METHODS)
def test_a_method_stands_inside_baseline_and_its_end_frees_the_model(
    name: str, llama: Any, tmp_path: Path
) -> None:
    method = CASES[name].method(llama, tmp_path)
    with make_method("baseline").apply(llama):
        for _ in range(2):
            with method.apply(llama):
                pass
        with pytest.raises(KeyError, match="planned"), method.apply(llama):
            raise KeyError("planned")
        with method.apply(llama):
            pass


def test_blocks_may_end_in_any_order(llama: Any) -> None:
    plain, before = logits(llama), state(llama)
    first, second, third = (make_method(spec).apply(llama) for spec in ("pi:2", "baseline", "ntk:2"))
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    third.__enter__()
    second.__exit__(None, None, None)
    third.__exit__(None, None, None)
    assert torch.equal(logits(llama), plain)
    assert state(llama) == before


@pytest.mark.parametrize("name", METHODS)
def test_a_patched_model_is_refused(name: str, llama: Any, tmp_path: Path) -> None:
    method = CASES[name].method(llama, tmp_path)
    patch = patch_rope(llama, [1.5] * 3)
    wanted = f"without scales for {name}, but scales of patch_rope are in force"
    with pytest.raises(ModelError, match=wanted), method.apply(llama):
        pass
    patch.remove()
    with method.apply(llama):
        pass


@pytest.mark.parametrize("spec", ["lpes", "pi:1.5+lpes"])
def test_scales_over_those_of_a_method_are_refused_until_they_are_removed(spec: str, llama: Any) -> None:
    with make_method(spec, scales=SCALES).apply(llama):
        changed = logits(llama)
        with (
            patch_rope(llama, [1.5] * 3),
            pytest.raises(ModelError, match="scales of .* to be the last ones"),
        ):
            logits(llama)
        assert torch.equal(logits(llama), changed)


@pytest.mark.parametrize("spec", ["pi:1.5", "ntk:2:original=4", "yarn:4"])
def test_scales_of_a_patch_on_top_are_those_of_the_method(spec: str, llama: Any) -> None:
    with make_method(f"{spec}+lpes", scales=SCALES).apply(llama):
        expected = logits(llama)
    with make_method(spec).apply(llama), patch_rope(llama, SCALES.scales):
        assert torch.equal(logits(llama), expected)


@pytest.mark.parametrize("name", ["ms-poe", "moice"])
def test_scales_over_a_method_that_rotates_by_itself_are_refused(
    name: str, llama: Any, tmp_path: Path
) -> None:
    with CASES[name].method(llama, tmp_path).apply(llama):
        changed = logits(llama)
        # As many rows as layers have tables that could be taken for those of all layers.
        for ids in (IDS, IDS[:1].repeat(3, 1)):
            with (
                patch_rope(llama, SCALES.scales),
                pytest.raises(ModelError, match="Expected no scales of patch_rope"),
            ):
                logits(llama, ids)
        assert torch.equal(logits(llama), changed)


def test_a_copy_made_inside_may_be_freed(llama: Any) -> None:
    plain = logits(llama)
    with make_method("lpes", scales=SCALES).apply(llama):
        inside, twin = logits(llama), copy.deepcopy(llama)
    assert torch.equal(logits(twin), inside)
    with pytest.raises(ModelError, match="with unpatch_rope"), make_method("pi:2").apply(twin):
        pass
    unpatch_rope(twin)
    assert torch.equal(logits(twin), plain)
    with make_method("pi:2").apply(twin):
        assert not torch.equal(logits(twin), plain)


FOLLOWED = ["lpes", "pi", "yarn"]
"""Methods whose parts are all modules and hooks that a copy has too."""


@pytest.mark.parametrize("name", FOLLOWED)
def test_a_copy_made_inside_keeps_the_method_by_its_own_weights(
    name: str, llama: Any, tmp_path: Path
) -> None:
    with CASES[name].method(llama, tmp_path).apply(llama):
        inside, twin = logits(llama), copy.deepcopy(llama)
        assert torch.equal(logits(twin), inside)
        with torch.no_grad():
            twin.lm_head.weight.mul_(2)
        assert close(logits(twin), 2 * inside)
        assert torch.equal(logits(llama), inside)
    assert close(logits(twin), 2 * inside)


@pytest.mark.parametrize("name", [name for name in METHODS if name not in FOLLOWED])
def test_a_copy_made_inside_is_refused_and_leaves_the_model_alone(
    name: str, llama: Any, tmp_path: Path
) -> None:
    plain, ones = logits(llama), torch.ones_like(IDS)
    method = CASES[name].method(llama, tmp_path)
    wanted = "Copy the model outside of it"
    with method.apply(llama):
        inside, twin = logits(llama), copy.deepcopy(llama)
        for _ in range(2):
            with pytest.raises(ModelError, match=wanted):
                logits(twin)
            with pytest.raises(ModelError, match=wanted):
                twin.forward(IDS)
            with pytest.raises(ModelError, match=wanted):
                generated(twin, IDS, ones)
        assert torch.equal(logits(llama), inside)
    with pytest.raises(ModelError, match=wanted):
        logits(twin)
    assert torch.equal(logits(llama), plain)
    twin = copy.deepcopy(llama)
    with method.apply(twin):
        assert torch.equal(logits(twin), inside)
