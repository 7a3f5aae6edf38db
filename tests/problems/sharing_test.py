"""Rows that begin alike share a run over their beginning, in every family and with every window."""

import re
from pkgutil import resolve_name

import numpy as np
import pytest
import torch

import rope_families
from lpes_evo.errors import UnsupportedModelError
from lpes_evo.execution import ProblemFacts
from lpes_evo.problems import (
    NOTHING_ALIKE,
    DataRequest,
    EncodedExample,
    ModelProblem,
    answer_gradient,
    make_task,
    pack_masks,
    pack_rows,
    score_answers,
    sharing_is_sound,
)
from lpes_evo.rope import count_layers, patch_rope, repair_frequencies
from samples import build_llama

WINDOW = 8
"""Tokens of a window or a chunk; all rows are several times longer."""

MASKS = "lpes_evo.problems._masks._MaskReader"
"""The class of the masks, in which tests put faults."""

SLIDING = {"sliding_window": WINDOW}
MIXED = {**SLIDING, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}

WINDOWED = {
    "afmoe": MIXED,
    "cohere2": MIXED,
    "cohere2_moe": MIXED,
    "cwm": MIXED,
    "doge": SLIDING,
    "exaone4": MIXED,
    "exaone_moe": MIXED,
    "flint": SLIDING,
    "gemma2": MIXED,
    "gemma3": MIXED,
    "gemma3_text": MIXED,
    "gemma3n_text": SLIDING,
    "gemma4_text": MIXED,
    "gpt_oss": MIXED,
    "granite_swa": SLIDING,
    "llama4_text": {
        "attention_chunk_size": WINDOW,
        "layer_types": ["chunked_attention", "full_attention", "chunked_attention"],
    },
    "mimo_v2_flash": SLIDING,
    "ministral": MIXED,
    "ministral3": SLIDING,
    "mistral": SLIDING,
    "mixtral": SLIDING,
    "modernbert-decoder": MIXED,
    "olmo3": MIXED,
    "phi3": SLIDING,
    "phimoe": SLIDING,
    "qwen2": {**MIXED, "use_sliding_window": True},
    "qwen3": {**MIXED, "use_sliding_window": True},
    "smollm3": {**MIXED, "use_sliding_window": True},
    "starcoder2": SLIDING,
    "vaultgemma": MIXED,
}
"""Families with sliding windows or chunks, and what their tiny config needs to have them."""

OTHERS = ["llama", "gpt_neox", "cohere", "falcon", "deepseek_v3"]
"""Families without windows."""


def tiny(model_type, dtype=torch.float32, **changes):
    if model_type not in rope_families.CONFIG_MAPPING:
        pytest.skip(f"this transformers has no {model_type}")
    return rope_families.tiny_model(model_type, dtype, **{**WINDOWED.get(model_type, {}), **changes})


def rows_about_texts(n_texts=2, n_questions=3, n_vocabulary=64, seed=0):
    """Return rows whose questions begin at other positions than they stand at in a pack."""
    rng = np.random.default_rng(seed)

    def words(low, high):
        return tuple(map(int, rng.integers(3, n_vocabulary, rng.integers(low, high))))

    texts = [words(25, 36) for _ in range(n_texts)]
    rows = [
        EncodedExample(f"e{text}-{question}", texts[text] + words(2, 14), words(1, 4))
        for question in range(n_questions)
        for text in range(n_texts)
    ]
    return [*rows, EncodedExample("alone", words(5, 9), words(1, 4))]


def row_by_row(model, rows, **options):
    """Score every row in a forward pass of its own."""
    return np.stack([score_answers(model, [row], **options).log_probability[..., 0] for row in rows], axis=-1)


def test_the_rows_of_these_tests_go_beyond_every_window():
    packs = pack_rows(rows_about_texts(), share_prefixes=True)
    assert [len(pack.rows) for pack in packs] == [3, 3, 1]
    assert all(pack.n_prefix > 3 * WINDOW for pack in packs[:2])


@pytest.mark.parametrize("model_type", WINDOWED)
def test_a_window_of_a_family_changes_its_scores(model_type):
    # Else the tests below would hold for a model that has no window at all.
    rows = rows_about_texts()
    wide = {"attention_chunk_size": 256} if model_type == "llama4_text" else {"sliding_window": 256}
    narrow, far = (score_answers(tiny(model_type, **size), rows).log_probability for size in ({}, wide))
    assert np.abs(narrow - far).max() > 1e-4


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("model_type", [*WINDOWED, *OTHERS])
def test_packs_longer_than_the_window_score_what_their_rows_score(model_type, attention):
    model, rows = tiny(model_type), rows_about_texts()
    if attention == "eager":
        model.set_attn_implementation("eager")
    expected = row_by_row(model, rows)
    sharing = sharing_is_sound(model, rows)
    assert sharing, sharing.reason
    for batch_tokens in (1, 200, 10_000):
        shared = score_answers(model, rows, share_prefixes=True, batch_tokens=batch_tokens)
        np.testing.assert_allclose(shared.log_probability, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("model_type", WINDOWED)
def test_candidates_share_passes_over_packs_longer_than_the_window(model_type):
    model, rows = tiny(model_type), rows_about_texts()
    scales = np.random.default_rng(1).uniform(0.6, 1.7, (3, count_layers(model)))
    expected = row_by_row(model, rows, scales=scales)
    for batch_tokens in (1, 400, 10_000):
        shared = score_answers(model, rows, scales=scales, share_prefixes=True, batch_tokens=batch_tokens)
        np.testing.assert_allclose(shared.log_probability, expected, rtol=0, atol=1e-4)
    with patch_rope(model, scales[1]):
        assert sharing_is_sound(model, rows)


@pytest.mark.parametrize("model_type", ["gemma3_text", "mistral", "llama4_text"])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_gradients_of_packs_longer_than_the_window_are_those_of_their_rows(model_type, checkpointing):
    model, rows = tiny(model_type), rows_about_texts()
    scales, weights = np.array([0.8, 1.1, 1.4]), np.linspace(0.5, 1.5, len(rows))
    plain = answer_gradient(model, rows, scales, weights, batch_tokens=1)
    shared = answer_gradient(
        model, rows, scales, weights, batch_tokens=10_000, share_prefixes=True, checkpointing=checkpointing
    )
    np.testing.assert_allclose(shared[0], plain[0], rtol=0, atol=1e-4)
    np.testing.assert_allclose(shared[1], plain[1], rtol=1e-3, atol=1e-4)
    assert np.abs(plain[1]).max() > 1e-3


def test_a_model_with_sliding_layers_forwards_each_text_once():
    model, rows = tiny("gemma3_text"), rows_about_texts(n_questions=5)
    forwarded = []
    model.model.register_forward_pre_hook(
        lambda _, __, inputs: forwarded.append(inputs["input_ids"].numel()), with_kwargs=True
    )
    counts = []
    for share in (False, True):
        forwarded.clear()
        score_answers(model, rows, share_prefixes=share, batch_tokens=1)
        counts.append(sum(forwarded))
    assert counts == [
        sum(pack.n_tokens for pack in pack_rows(rows, share_prefixes=share)) for share in (False, True)
    ]
    assert counts[1] < counts[0] / 2


def windows_wrong_by(monkeypatch, shift):
    """Let the masks of packs have windows that are wider or narrower than those of the model."""
    right = resolve_name(f"{MASKS}._of_packs")

    def wrong(reader, layer, mask):
        if mask is None or not layer.self_attn.is_sliding:
            return right(reader, layer, mask)
        text = torch.arange(mask.shape[-1])
        distance = text[:, None] - text[None, :]
        seen = (distance >= 0) & (distance < WINDOW + shift)
        return right(reader, layer, seen[None, None])

    monkeypatch.setattr(f"{MASKS}._of_packs", wrong)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shift", [-1, 1, 1000])
def test_a_wrong_window_is_caught_in_every_precision(monkeypatch, shift, dtype):
    model, rows = tiny("gemma3_text", dtype), rows_about_texts()
    repair_frequencies(model)
    windows_wrong_by(monkeypatch, 0)
    assert sharing_is_sound(model, rows)
    monkeypatch.undo()
    windows_wrong_by(monkeypatch, shift)
    assert sharing_is_sound(model, rows).reason == "layer 0 sees other tokens with sharing than without"


def test_a_window_counted_by_place_in_the_pack_is_caught(monkeypatch):
    model, rows = tiny("mistral", torch.bfloat16), rows_about_texts()
    repair_frequencies(model)
    right = resolve_name(f"{MASKS}.__init__")

    def by_place(reader, first, segments, positions, *others):
        right(reader, first, segments, np.zeros_like(positions) + np.arange(positions.shape[1]), *others)

    monkeypatch.setattr(f"{MASKS}.__init__", by_place)
    assert "sees other tokens with sharing" in sharing_is_sound(model, rows).reason


def test_questions_that_see_each_other_are_caught(monkeypatch):
    model, rows = tiny("llama", torch.bfloat16), rows_about_texts()
    repair_frequencies(model)
    right = resolve_name(f"{MASKS}.__init__")

    def one_segment(reader, first, segments, *others):
        right(reader, first, np.zeros_like(segments), *others)

    monkeypatch.setattr(f"{MASKS}.__init__", one_segment)
    assert "sees other tokens with sharing" in sharing_is_sound(model, rows).reason


def test_the_pack_with_the_longest_row_is_tried(monkeypatch):
    # The pack with the most tokens has short rows, within the window; only the other one can show a wrong window.
    rng = np.random.default_rng(2)
    words = rng.integers(3, 64, 200).tolist()
    short = [EncodedExample(f"s{n}", (*words[:14], n + 3), (5,)) for n in range(40)]
    long = [EncodedExample(f"l{n}", (*words[100:140], n + 3), (5,)) for n in range(2)]
    model = tiny("gemma3_text", sliding_window=20)
    right = resolve_name(f"{MASKS}._of_packs")
    monkeypatch.setattr(f"{MASKS}._of_packs", lambda reader, layer, _mask: right(reader, layer, None))
    assert sharing_is_sound(model, short)
    assert not sharing_is_sound(model, [*short, *long])


@pytest.mark.parametrize(
    ("model_type", "changes", "reason"),
    [
        ("bamba", {}, "layers with a convolution"),
        ("qwen3_next", {}, "layers with a convolution"),
        ("minimax", {}, r"refuses the masks of shared prefixes \(RuntimeError: The size of tensor"),
        ("jamba", {}, "Expected a model with rotary position embeddings"),
        (
            "deepseek_v4",
            {
                "layer_types": ["sliding_attention", "heavily_compressed_attention", "sliding_attention"],
                "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 4},
            },
            r"scores with and without sharing differ by 0\.\d+ nats",
        ),
    ],
)
def test_a_model_that_cannot_share_says_why(model_type, changes, reason):
    sharing = sharing_is_sound(tiny(model_type, **changes), rows_about_texts())
    assert not sharing.is_sound
    assert not sharing
    assert re.search(reason, sharing.reason)
    assert str(sharing) == f"prefixes are not shared, since {sharing.reason}"


def test_an_attention_backend_without_masks_is_named():
    model = tiny("llama")
    model.config._attn_implementation_internal = "flash_attention_2"
    assert (
        "attention backend flash_attention_2 takes no mask"
        in sharing_is_sound(model, rows_about_texts()).reason
    )


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_a_rope_type_that_tells_lengths_apart_is_named_where_it_matters(kind):
    factors = {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4} if kind == "longrope" else {}
    window = 34
    model = tiny(
        "llama",
        max_position_embeddings=window if kind == "dynamic" else 128,
        rope_parameters={
            "rope_type": kind,
            "rope_theta": 10000.0,
            "factor": 4.0,
            "original_max_position_embeddings": window,
            **factors,
        },
    )
    rng = np.random.default_rng(0)
    text = tuple(map(int, rng.integers(3, 64, 60)))

    def asked(*lengths):
        return [
            EncodedExample(f"e{n}", (*text[: length - 1], 3 + n), (5,)) for n, length in enumerate(lengths)
        ]

    assert sharing_is_sound(model, asked(28, 30))
    assert sharing_is_sound(model, asked(40, 40))
    assert (
        "the rope type gives questions of different lengths" in sharing_is_sound(model, asked(28, 40)).reason
    )
    assert sharing_is_sound(model, asked(38, 40)).is_sound == (kind == "longrope")


def test_memory_that_ends_while_sharing_is_tried_is_no_verdict_on_the_model():
    model, rows = tiny("llama"), rows_about_texts()

    def refuse_masks(_model, _arguments, options):
        if "attention_mask" in options:
            raise torch.OutOfMemoryError("CUDA out of memory.")

    model.register_forward_pre_hook(refuse_masks, with_kwargs=True)
    with pytest.raises(torch.OutOfMemoryError, match=r"CUDA out of memory\."):
        sharing_is_sound(model, rows)


def test_rows_with_nothing_in_common_are_not_shared():
    rng = np.random.default_rng(0)
    rows = [EncodedExample(f"e{n}", tuple(map(int, rng.integers(3, 64, 20))), (5,)) for n in range(5)]
    sharing = sharing_is_sound(build_llama(), rows)
    assert (sharing.is_sound, sharing.reason) == (False, NOTHING_ALIKE)


def test_scores_that_are_not_finite_are_no_agreement():
    model = build_llama()
    model.lm_head.weight.fill_(float("nan"))
    assert sharing_is_sound(model, rows_about_texts()).reason == "the scores are not finite"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "Expected a mask under the name attention_mask for every layer, but LlamaDecoderLayer got none"),
        ({"attention_mask": torch.ones(1, 5)}, r"shape \(batch, heads, 5, 5\).* got torch.float32 \(1, 5\)"),
        (
            {"attention_mask": {}},
            r"shape \(batch, heads, 5, 5\) for every layer, but LlamaDecoderLayer got dict",
        ),
    ],
)
def test_layers_that_get_no_mask_of_each_two_tokens_are_refused(given, message):
    model = tiny("llama")
    numbers = np.arange(5)[None]
    with (
        pytest.raises(UnsupportedModelError, match=message),
        pack_masks(model, np.zeros_like(numbers), numbers),
    ):
        model.model.layers[0](torch.zeros(1, 5, 32), **given)


def test_layers_that_are_not_called_are_refused():
    numbers = np.arange(5)[None]
    with (
        pytest.raises(UnsupportedModelError, match="LlamaForCausalLM to call its decoder layers as modules"),
        pack_masks(tiny("llama"), np.zeros_like(numbers), numbers),
    ):
        pass


def test_masks_and_hooks_are_gone_after_a_call_that_fails():
    model, rows = tiny("gemma3_text"), rows_about_texts()
    before = score_answers(model, rows).log_probability
    handle = model.model.layers[2].register_forward_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        score_answers(model, rows, share_prefixes=True)
    handle.remove()
    assert not any(layer._forward_pre_hooks for layer in model.model.layers)
    assert np.array_equal(score_answers(model, rows).log_probability, before)


def test_a_problem_and_its_facts_say_whether_prefixes_are_shared(tiny_loaded):
    drawn = make_task("needle", n_keys=4).examples(
        DataRequest(positions=[0.0, 1.0], limit=2, seed=0, split="search")
    )
    shared, apart = ModelProblem(tiny_loaded, drawn), ModelProblem(tiny_loaded, drawn, share_prefixes=False)
    assert str(apart.sharing) == "prefixes are not shared, since task.share_prefixes is off"
    assert ProblemFacts.of(apart).sharing == apart.sharing
    assert str(shared.sharing) == f"prefixes are shared, {shared.n_tokens} tokens instead of {apart.n_tokens}"
    assert ProblemFacts.of(shared).sharing == shared.sharing
