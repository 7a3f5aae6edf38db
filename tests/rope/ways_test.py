"""Ways of running a patched model: the scales are in force in each of them."""

from pathlib import Path
from typing import Any

import pytest
import torch

from lpes_evo.errors import ScalesError
from lpes_evo.rope import patch_rope
from rope_families import tiny_model
from rope_promises import IDS, close, generated_together, logits
from samples import build_llama, build_tokenizer
from wrapped_models import adapted

SCALES = [0.8, 1.3, 1.7]


@pytest.fixture
def model() -> Any:
    return tiny_model("llama")


def test_a_pipeline_says_what_generate_says() -> None:
    from transformers import pipeline

    model, tokenizer = build_llama(), build_tokenizer()
    prompt = "the key is 4711, and"
    settings = {"max_new_tokens": 8, "min_new_tokens": 8, "do_sample": False}
    asked = tokenizer(prompt, return_tensors="pt")
    run = pipeline("text-generation", model=model, tokenizer=tokenizer)
    plain = run(prompt, return_tensors=True, **settings)
    with patch_rope(model, SCALES):
        said = run(prompt, return_tensors=True, **settings)
        ids = model.generate(input_ids=asked["input_ids"], attention_mask=asked["attention_mask"], **settings)
    assert said[0]["generated_token_ids"] == ids[0].tolist()
    assert said != plain
    assert run(prompt, return_tensors=True, **settings) == plain


def test_positions_of_the_user_are_scaled(model: Any) -> None:
    positions = torch.arange(IDS.shape[1])[None].expand_as(IDS)
    # Without a mask, transformers takes positions with gaps for rows that are packed into one.
    ones = torch.ones_like(IDS)
    stretched = {"position_ids": positions * 2, "attention_mask": ones}
    with patch_rope(model, [1.3] * 3):
        expected = logits(model)
        assert close(logits(model, position_ids=positions, attention_mask=ones), expected)
        assert not close(logits(model, **stretched), expected)
    # Twice the positions under twice the scale are the same angles.
    with patch_rope(model, [2.6] * 3):
        assert close(logits(model, **stretched), expected)


def test_packed_rows_are_the_rows_alone(model: Any) -> None:
    lengths = (5, 7)
    row = IDS[:1]
    positions = torch.cat([torch.arange(length) for length in lengths])[None]
    blocks = torch.block_diag(*[torch.tril(torch.ones(length, length)) for length in lengths]).bool()
    mask = torch.zeros(blocks.shape).masked_fill(~blocks, torch.finfo(torch.float32).min)[None, None]
    with patch_rope(model, SCALES):
        packed = logits(model, row, position_ids=positions, attention_mask=mask)
        alone = torch.cat([logits(model, part) for part in row.split(lengths, dim=1)], dim=1)
    assert close(packed, alone)


@pytest.mark.parametrize("scales_first", [True, False])
def test_merging_an_adapter_leaves_the_scales_in_force(
    model: Any, tmp_path: Path, scales_first: bool
) -> None:
    plain = adapted(tiny_model("llama"), tmp_path)
    with patch_rope(plain, SCALES):
        expected = logits(plain)
    untouched = logits(plain)
    if scales_first:
        patch = patch_rope(model, SCALES)
        wrapped = adapted(model, tmp_path)
    else:
        wrapped = adapted(model, tmp_path)
        patch = patch_rope(wrapped, SCALES)
    merged = wrapped.merge_and_unload()
    assert close(logits(merged), expected)
    patch.remove()
    assert close(logits(merged), untouched)


@pytest.mark.slow
def test_scales_of_rows_are_refused_by_beams_and_by_requests_that_share_a_pass(model: Any) -> None:
    settings: dict[str, Any] = {"max_new_tokens": 3, "do_sample": False}
    with patch_rope(model, [SCALES, SCALES[::-1]]):
        with pytest.raises(ScalesError, match="Repeat the rows as generate does for beams"):
            model.generate(input_ids=IDS, attention_mask=torch.ones_like(IDS), num_beams=2, **settings)
        from transformers import GenerationConfig

        config = GenerationConfig(eos_token_id=None, pad_token_id=0, **settings)
        found = generated_together(model, IDS, config)
    # The requests run in a thread of their own, which hands on no error.
    assert all("scales of shape (batch, n_layers)" in str(request.error) for request in found)


def quantized_by_torchao(model: Any, kind: str) -> None:
    quantization = pytest.importorskip("torchao.quantization")
    config = (
        quantization.Int8WeightOnlyConfig()
        if kind == "int8"
        else quantization.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=quantization.PerGroup(8))
    )
    quantization.quantize_(model, config)


def quantized_by_quanto(model: Any, kind: str) -> None:
    quanto = pytest.importorskip("optimum.quanto")
    quanto.quantize(model, weights={"int8": quanto.qint8, "int4": quanto.qint4}[kind])
    quanto.freeze(model)


@pytest.mark.slow
@pytest.mark.parametrize("scales_first", [True, False])
@pytest.mark.parametrize(
    ("quantize", "kind"),
    # Four bits of quanto compile C++ for minutes on first use.
    [(quantized_by_torchao, "int8"), (quantized_by_torchao, "int4"), (quantized_by_quanto, "int8")],
)
def test_quantized_models_are_scaled_before_or_after(
    model: Any, quantize: Any, kind: str, scales_first: bool
) -> None:
    twin = tiny_model("llama")
    # The scale of a uniform vector is linear scaling, which divides the frequencies of the twin.
    twin.model.rotary_emb.inv_freq.div_(1.5)
    quantize(twin, kind)
    expected = logits(twin)
    if not scales_first:
        quantize(model, kind)
    with patch_rope(model, [1.5] * 3):
        if scales_first:
            quantize(model, kind)
        assert close(logits(model), expected, 1e-4)
    assert not close(logits(model), expected, 1e-4)
