"""Methods that take attention over: what they cannot give, and when they are switched off."""

from pathlib import Path
from typing import Any

import pytest
import torch

from lpes_evo.errors import ModelError
from method_promises import CASES
from rope_families import tiny_model
from rope_promises import IDS, logits

TAKING_OVER = ["ms-poe", "moice"]


@pytest.fixture
def llama() -> Any:
    model = tiny_model("llama")
    model.set_attn_implementation("eager")
    return model


@pytest.mark.parametrize("name", [*TAKING_OVER, "attention-buckets"])
def test_attention_weights_that_a_method_cannot_give_are_refused(
    name: str, llama: Any, tmp_path: Path
) -> None:
    assert len(llama(IDS, output_attentions=True).attentions) == 3
    wanted = "Expected no output_attentions under this method"
    with CASES[name].method(llama, tmp_path).apply(llama):
        with pytest.raises(ModelError, match=wanted):
            llama(IDS, output_attentions=True)
        with pytest.raises(ModelError, match=wanted):
            llama.generate(IDS, output_attentions=True, return_dict_in_generate=True, max_new_tokens=2)
        assert logits(llama).isfinite().all()
    llama.config.output_attentions = True
    with CASES[name].method(llama, tmp_path).apply(llama):
        with pytest.raises(ModelError, match=wanted):
            logits(llama)
        assert logits(llama, output_attentions=False).isfinite().all()


@pytest.mark.parametrize("name", TAKING_OVER)
def test_hidden_states_are_given(name: str, llama: Any, tmp_path: Path) -> None:
    with CASES[name].method(llama, tmp_path).apply(llama):
        assert len(llama(IDS, output_hidden_states=True).hidden_states) == 4


def test_streams_refuse_to_give_hidden_states(llama: Any, tmp_path: Path) -> None:
    with CASES["attention-buckets"].method(llama, tmp_path).apply(llama):
        with pytest.raises(ModelError, match="Expected no output_hidden_states under this method"):
            llama(IDS, output_hidden_states=True)
        assert logits(llama).isfinite().all()


@pytest.mark.parametrize("name", TAKING_OVER)
def test_another_attention_implementation_set_inside_is_refused(
    name: str, llama: Any, tmp_path: Path
) -> None:
    plain = logits(llama)
    with CASES[name].method(llama, tmp_path).apply(llama):
        llama.set_attn_implementation("sdpa")
        with pytest.raises(ModelError, match="another one was set inside the with block"):
            logits(llama)
    assert llama.config._attn_implementation == "eager"
    assert torch.equal(logits(llama), plain)
