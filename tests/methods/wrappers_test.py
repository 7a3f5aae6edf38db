"""Every method on every wrapper: as on the model inside, or refused with the true reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from lpes_evo.errors import UnsupportedModelError
from lpes_evo.methods import TrainingSettings, make_method, train_routers
from method_promises import CASES, decoded, enter
from rope_families import tiny_model
from rope_promises import IDS, close, generated, logits
from wrapped_models import WRAPPERS, on_two_devices, prompt_tuned, wrapped_and_plain

SLOW = ("compiled", "compiled_and_adapted")


def answers(model: Any, wrapper: str) -> list[torch.Tensor]:
    """Return the logits of a forward pass, of cached decoding and of ``generate``."""
    found = [logits(model)]
    if wrapper not in SLOW:
        # Every other length and cache would be compiled for seconds.
        found.append(decoded(model))
    # DataParallel has none; that of a compiled model runs the model inside.
    return found + ([generated(model, IDS, torch.ones_like(IDS))] if hasattr(model, "generate") else [])


def all_close(some: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    return all(close(one, other) for one, other in zip(some, others, strict=False))


@pytest.mark.parametrize(
    ("wrapper", "name"),
    [
        pytest.param(wrapper, name, marks=[pytest.mark.slow] if wrapper in SLOW else [])
        for wrapper in WRAPPERS
        for name, case in CASES.items()
        # Compiling takes seconds, and a wrapper in another one is unwrapped before any method sees it.
        if wrapper not in SLOW or (wrapper == "compiled" and not case.variant)
    ],
)
def test_a_wrapped_model_runs_as_the_model_inside(name: str, wrapper: str, tmp_path: Path) -> None:
    wrapped, plain = wrapped_and_plain(wrapper, tmp_path)
    method = CASES[name].method(plain, tmp_path)
    untouched = answers(plain, wrapper)
    with method.apply(plain):
        expected = answers(plain, wrapper)
    assert not all_close(expected, untouched)
    # What was compiled before, inside or after the block must not run elsewhere.
    assert all_close(answers(wrapped, wrapper), untouched)
    with method.apply(wrapped):
        assert all_close(answers(wrapped, wrapper), expected)
    assert all_close(answers(wrapped, wrapper), untouched)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["buckets in groups"])
def test_compiled_streams_take_batches_and_prompts_of_any_size(name: str, tmp_path: Path) -> None:
    wrapped, plain = wrapped_and_plain("compiled", tmp_path)
    method = CASES[name].method(plain, tmp_path)
    with method.apply(plain), method.apply(wrapped):
        for n_rows, length in ((1, 5), (2, 6)):
            ids = IDS[:n_rows, :length]
            assert close(logits(wrapped, ids), logits(plain, ids))


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if not case.variant])
def test_what_is_more_than_a_wrapper_is_refused_with_the_reason(name: str, tmp_path: Path) -> None:
    method = CASES[name].method(tiny_model("llama"), tmp_path)
    with pytest.raises(UnsupportedModelError, match="PROMPT_TUNING puts virtual tokens in front"):
        enter(method, prompt_tuned(tiny_model("llama")))
    with pytest.raises(UnsupportedModelError, match="DataParallel runs 2 copies of it in threads"):
        enter(method, on_two_devices(tiny_model("llama")))


def test_a_method_on_a_wrapper_is_on_the_model_inside(tmp_path: Path) -> None:
    wrapped, _ = wrapped_and_plain("adapted", tmp_path)
    inside = wrapped.get_base_model()
    with make_method("attention-buckets:tool").apply(wrapped):
        assert close(logits(inside), logits(wrapped))
        # An adapter may be switched off inside of the block.
        with wrapped.disable_adapter():
            other = logits(wrapped)
    base = tiny_model("llama")
    with make_method("attention-buckets:tool").apply(base):
        assert close(other, logits(base))


@pytest.mark.parametrize("wrapper", ["adapted", "parallel"])
def test_routers_trained_on_a_wrapper_are_those_of_the_model_inside(wrapper: str, tmp_path: Path) -> None:
    wrapped, plain = wrapped_and_plain(wrapper, tmp_path)
    settings = TrainingSettings(bases=(10000.0, 20000.0), steps=1, sequences=1, held_out=1)
    texts = [IDS[0].tolist(), IDS[1].tolist()]
    of_wrapped = train_routers(wrapped, "tiny", texts, settings)
    of_plain = train_routers(plain, "tiny", texts, settings)
    assert of_wrapped.routers.facts == of_plain.routers.facts
    assert of_wrapped.after == pytest.approx(of_plain.after, rel=1e-5)
