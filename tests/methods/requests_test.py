"""Where prompts end: told by generate, by the caller, or by the first forward pass."""

from typing import Any

import pytest
import torch

from lpes_evo.errors import ModelError
from lpes_evo.methods import make_method
from method_promises import next_step
from rope_families import tiny_model
from rope_promises import IDS, SHORT, close, logits, padded_batch

CHOOSING = ["ntk:4:original=4", "ms-poe:first_layer=0", "ms-poe:first_layer=0:order=released"]


@pytest.fixture(scope="module")
def llama() -> Any:
    model = tiny_model("llama")
    with torch.no_grad():
        for values in model.parameters():
            # Weights of this size make a wrong choice show.
            values.mul_(3 if values.dim() > 1 else 1)
    return model


def said(
    model: Any, ids: torch.Tensor, mask: torch.Tensor | None = None, n_tokens: int = 4, **settings: Any
) -> torch.Tensor:
    output = model.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids) if mask is None else mask,
        max_new_tokens=n_tokens,
        min_new_tokens=n_tokens,
        do_sample=False,
        output_logits=True,
        return_dict_in_generate=True,
        pad_token_id=0,
        **settings,
    )
    return torch.stack(output.logits)


@pytest.mark.parametrize("spec", CHOOSING)
def test_generation_without_a_cache_says_what_it_says_with_one(spec: str, llama: Any) -> None:
    ids, mask = padded_batch()
    with make_method(spec).apply(llama):
        expected = said(llama, ids, mask)
        assert close(said(llama, ids, mask, use_cache=False), expected)
        embeddings = llama.get_input_embeddings()(ids)
        by_embeddings = llama.generate(inputs_embeds=embeddings, attention_mask=mask, max_new_tokens=4,
                                       min_new_tokens=4, do_sample=False, use_cache=False, output_logits=True,
                                       return_dict_in_generate=True, pad_token_id=0)  # fmt: skip
        assert close(torch.stack(by_embeddings.logits), expected)
        beams = {"num_beams": 2, "num_return_sequences": 2}
        assert close(said(llama, ids, mask, use_cache=False, **beams), said(llama, ids, mask, **beams))


@pytest.mark.parametrize("spec", CHOOSING)
def test_guessing_ahead_changes_nothing_though_guesses_run_beside_the_prompt(spec: str, llama: Any) -> None:
    ids = IDS[:1].repeat(1, 2)
    with make_method(spec).apply(llama):
        lengths = []
        hook = llama.model.register_forward_pre_hook(
            lambda _m, _a, inputs: lengths.append(inputs["input_ids"].shape[1]), with_kwargs=True
        )
        guessed = said(llama, ids, n_tokens=20, prompt_lookup_num_tokens=2)
        hook.remove()
        assert lengths[0] > ids.shape[1]
        assert max(lengths[1:]) > 1
        assert close(guessed, said(llama, ids, n_tokens=20))


@pytest.mark.parametrize("spec", CHOOSING)
def test_prompts_in_pieces_are_refused(spec: str, llama: Any) -> None:
    with make_method(spec).apply(llama) as handle, torch.no_grad():
        with pytest.raises(ModelError, match=r"got 7 of 12 columns\. Leave out prefill_chunk_size"):
            said(llama, IDS, prefill_chunk_size=7)
        output = llama(input_ids=IDS[:, :SHORT], use_cache=True)
        with pytest.raises(ModelError, match="but 5 more tokens of each row follow"):
            next_step(llama, output, IDS[:, SHORT:])
        # Where the end of the prompt is told, several tokens may follow it.
        with handle.prompts([SHORT, SHORT]):
            output = llama(input_ids=IDS[:, :SHORT], use_cache=True)
            following = next_step(llama, output, IDS[:, SHORT:]).logits
            assert close(following, logits(llama)[:, SHORT:])


def test_a_method_that_needs_no_prompt_takes_it_in_pieces(llama: Any) -> None:
    for spec in ("ntk:4:original=4:length=9", "ms-poe:order=normal:first_layer=0"):
        with make_method(spec).apply(llama):
            assert close(said(llama, IDS, prefill_chunk_size=7), said(llama, IDS))


@pytest.mark.parametrize("spec", CHOOSING)
def test_lengths_beyond_the_tokens_of_a_row_are_refused(spec: str, llama: Any) -> None:
    ids, mask = padded_batch()
    with make_method(spec).apply(llama) as handle:
        wanted = "at most the 12 tokens of row 1 in the first forward pass, but 13 were told"
        with handle.prompts([12, 13]), pytest.raises(ModelError, match=wanted):
            logits(llama)
        wanted = "at most the 7 tokens of row 0 .* but 8 were told"
        with handle.prompts([8, 12]), pytest.raises(ModelError, match=wanted):
            logits(llama, ids, attention_mask=mask)
        with handle.prompts([SHORT, 12]):
            both = logits(llama, ids, attention_mask=mask)
        assert torch.equal(both, logits(llama, ids, attention_mask=mask))


@pytest.mark.parametrize("spec", CHOOSING)
def test_a_static_cache_beside_padding_is_refused_by_name(spec: str) -> None:
    # A model of its own, since transformers 4 keeps the cache of a generation that failed on it.
    model = tiny_model("llama")
    with make_method(spec).apply(model), pytest.raises(ModelError, match="and no static cache"):
        said(model, *padded_batch(), cache_implementation="static")


def test_generate_is_restored_and_keeps_its_signature(llama: Any) -> None:
    import inspect

    before = inspect.signature(llama.generate)
    with make_method(CHOOSING[0]).apply(llama):
        assert inspect.signature(llama.generate) == before
    assert "generate" not in llama.__dict__
