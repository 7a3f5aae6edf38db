import numpy as np
import pytest
import torch

from lpes_evo.errors import TaskError
from lpes_evo.problems import (
    EncodedExample,
    answer_scores,
    batches,
    pack_rows,
    score_answers,
    sharing_is_sound,
)
from lpes_evo.rope import patch_rope, repair_frequencies
from samples import build_llama


def random_rows(n_rows=9, n_vocabulary=258, seed=0, n_answer=4):
    rng = np.random.default_rng(seed)
    return [
        EncodedExample(
            f"e{number}",
            tuple(map(int, rng.integers(2, n_vocabulary, rng.integers(1, 40)))),
            tuple(map(int, rng.integers(2, n_vocabulary, rng.integers(1, n_answer + 1)))),
        )
        for number in range(n_rows)
    ]


@torch.no_grad()
def reference(model, rows):
    """Score row by row and token by token from the full logits."""
    means, correct = [], []
    for row in rows:
        logits = model(torch.tensor([row.prompt_ids + row.answer_ids])).logits[0].double()
        steps = [logits[len(row.prompt_ids) - 1 + step] for step in range(len(row.answer_ids))]
        wanted = row.answer_ids
        means.append(
            np.mean([float(step.log_softmax(-1)[token]) for step, token in zip(steps, wanted, strict=True)])
        )
        correct.append(all(int(step.argmax()) == token for step, token in zip(steps, wanted, strict=True)))
    return np.array(means), np.array(correct)


def with_greedy_answers(model, rows, n_answer=3):
    """Replace the answers by what the model generates."""
    changed = []
    for row in rows:
        generated = model.generate(
            torch.tensor([row.prompt_ids]),
            max_new_tokens=n_answer,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
        changed.append(
            EncodedExample(row.id, row.prompt_ids, tuple(generated[0, len(row.prompt_ids) :].tolist()))
        )
    return changed


@pytest.mark.parametrize("padding_side", ["right", "left"])
@pytest.mark.parametrize("batch_tokens", [1, 60, 10_000])
def test_scores_equal_the_full_logits_for_every_batch_size_and_padding(padding_side, batch_tokens):
    model = build_llama()
    rows = random_rows() + with_greedy_answers(model, random_rows(3, seed=1))
    means, correct = reference(model, rows)
    scores = score_answers(model, rows, batch_tokens=batch_tokens, padding_side=padding_side, pad_id=1)
    np.testing.assert_allclose(scores.log_probability, means, atol=1e-5)
    assert scores.correct.tolist() == correct.tolist()
    assert scores.correct.any()
    assert not scores.correct.all()


def test_correct_means_that_greedy_generation_gives_the_answer():
    model = build_llama()
    rows = with_greedy_answers(model, random_rows())
    assert score_answers(model, rows).correct.all()
    wrong = [
        EncodedExample(row.id, row.prompt_ids, (*row.answer_ids[:-1], row.answer_ids[-1] ^ 1)) for row in rows
    ]
    assert not score_answers(model, wrong).correct.any()


def family(name):
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = {
        "vocab_size": 64,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 16,
        "pad_token_id": 0,
        "initializer_range": 0.2,
    }
    special = {
        "gemma2": {"final_logit_softcapping": 2.0, "sliding_window": 8},
        "cohere": {"logit_scale": 0.3},
        "gptj": {"rotary_dim": 8},
    }
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(
        AutoConfig.for_model(name, **sizes, **special.get(name, {}))
    ).eval()


@pytest.mark.parametrize("name", ["gemma2", "cohere", "gpt_neox", "qwen2"])
@pytest.mark.parametrize("padding_side", ["right", "left"])
def test_what_a_family_does_to_its_logits_is_kept(name, padding_side):
    model = family(name)
    rows = random_rows(5, n_vocabulary=64)
    means, correct = reference(model, rows)
    scores = score_answers(model, rows, padding_side=padding_side)
    np.testing.assert_allclose(scores.log_probability, means, atol=1e-5)
    assert scores.correct.tolist() == correct.tolist()


def test_models_without_logits_to_keep_are_scored_from_all_logits():
    class Old(torch.nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model = model
            self.device = model.device

        def forward(self, input_ids, use_cache=False):
            return self.model(input_ids, use_cache=use_cache)

    model, rows = build_llama(), random_rows()
    expected = score_answers(model, rows).log_probability
    np.testing.assert_allclose(score_answers(Old(model), rows).log_probability, expected, atol=1e-5)


def test_only_logits_near_the_answers_are_computed():
    model, rows = build_llama(), [EncodedExample("e", tuple(range(2, 40)), (3, 4))]
    seen = []
    model.lm_head.register_forward_hook(lambda module, inputs, output: seen.append(tuple(output.shape)))
    score_answers(model, rows)
    assert seen == [(1, 2, 258)]


def rows_about_texts(n_texts=3, n_questions=4, n_vocabulary=64, seed=0):
    rng = np.random.default_rng(seed)

    def words(low, high):
        return tuple(map(int, rng.integers(2, n_vocabulary, rng.integers(low, high))))

    texts = [words(20, 30) for _ in range(n_texts)]
    rows = [
        EncodedExample(f"e{text}-{question}", texts[text] + words(1, 6), words(1, 4))
        for question in range(n_questions)
        for text in range(n_texts)
    ]
    return [*rows, EncodedExample("alone", words(5, 9), words(1, 4))]


@pytest.mark.parametrize("name", ["llama", "qwen2", "cohere", "gpt_neox", "phi3", "gemma2"])
@pytest.mark.parametrize("batch_tokens", [1, 90, 10_000])
def test_rows_about_one_text_share_its_run_and_keep_their_scores(name, batch_tokens):
    model, rows = family(name), rows_about_texts()
    assert sharing_is_sound(model, rows)
    plain = score_answers(model, rows)
    shared = score_answers(model, rows, share_prefixes=True, batch_tokens=batch_tokens)
    np.testing.assert_allclose(shared.log_probability, plain.log_probability, atol=1e-5)
    assert shared.correct.tolist() == plain.correct.tolist()


def test_sharing_holds_under_scales_and_with_eager_attention():
    model, rows = family("llama"), rows_about_texts()
    for attention in ("sdpa", "eager"):
        model.set_attn_implementation(attention)
        with patch_rope(model, [0.6, 1.7]):
            plain = score_answers(model, rows)
            shared = score_answers(model, rows, share_prefixes=True)
        np.testing.assert_allclose(shared.log_probability, plain.log_probability, atol=1e-5)


def test_a_text_is_forwarded_once_for_all_its_questions():
    rows = rows_about_texts(n_texts=2, n_questions=5)
    packs = pack_rows(rows, share_prefixes=True)
    assert sorted(len(pack.rows) for pack in packs) == [1, 5, 5]
    assert sum(pack.n_tokens for pack in packs) < 0.5 * sum(row.n_tokens for row in rows)
    assert sorted(index for pack in packs for index in pack.indices) == list(range(len(rows)))
    for pack in packs:
        assert len({row.prompt_ids[: pack.n_prefix] for row in pack.rows}) == 1


def test_log_softmax_is_float32_in_half_precision():
    model, rows = build_llama().to(torch.bfloat16), random_rows()
    scores = score_answers(model, rows, batch_tokens=1)
    logits = [model(torch.tensor([row.prompt_ids + row.answer_ids])).logits[0].float() for row in rows]
    for row, score, values in zip(rows, scores.log_probability, logits, strict=True):
        steps = values[len(row.prompt_ids) - 1 :][: len(row.answer_ids)].log_softmax(-1)
        assert score == pytest.approx(
            float(steps.gather(1, torch.tensor(row.answer_ids)[:, None]).mean()), abs=1e-2
        )


def test_scores_that_are_not_finite_are_passed_on_and_never_correct():
    model, rows = build_llama(), random_rows(3)
    model.lm_head.weight[:] = float("nan")
    scores = score_answers(model, rows)
    assert np.isnan(scores.log_probability).all()
    assert not scores.correct.any()


def test_gradients_flow_through_the_scores_of_a_batch():
    model, rows = build_llama().requires_grad_(True), random_rows(2)
    mean, _ = answer_scores(model, pack_rows(rows, share_prefixes=False))
    mean.sum().backward()
    assert float(model.lm_head.weight.grad.abs().sum()) > 0


def test_batches_hold_rows_of_similar_length_longest_first():
    rows = random_rows(30)
    groups = [batch.packs for batch in batches(pack_rows(rows, share_prefixes=False), 80)]
    lengths = [[pack.n_tokens for pack in group] for group in groups]
    assert sorted(index for group in groups for pack in group for index in pack.indices) == list(range(30))
    assert all(max(group) * len(group) <= 80 for group in lengths)
    assert sum(lengths, []) == sorted((row.n_tokens for row in rows), reverse=True)  # noqa: RUF017


@pytest.mark.parametrize("n_candidates", [1, 2, 3, 7, 12])
@pytest.mark.parametrize("batch_tokens", [1, 80, 300, 10_000])
def test_every_candidate_meets_every_pack_once_in_batches_of_one_shape(n_candidates, batch_tokens):
    packs = pack_rows(rows_about_texts(), share_prefixes=True)
    met = {candidate: [] for candidate in range(n_candidates)}
    for batch in batches(packs, batch_tokens, n_candidates):
        n_entries = len(batch.packs) * len(batch.candidates)
        assert n_entries == 1 or n_entries * batch.packs[0].n_tokens <= batch_tokens
        for candidate in batch.candidates:
            met[candidate] += [(pack, n_entries, batch.packs[0].n_tokens) for pack in batch.packs]
    assert [pack for pack, _, _ in met[0]] == packs
    assert all(companies == met[0] for companies in met.values())


def test_candidates_that_fit_share_one_forward_pass():
    packs = pack_rows(random_rows(4), share_prefixes=False)
    (batch,) = batches(packs, 5 * 4 * packs[0].n_tokens, 5)
    assert (batch.packs, batch.candidates) == (tuple(packs), range(5))
    in_three_passes = batches(packs[:1], 2 * packs[0].n_tokens, 6)
    assert [batch.candidates for batch in in_three_passes] == [range(2), range(2, 4), range(4, 6)]


CURVES = np.array([[1.0, 1.0], [0.6, 1.7], [1.3, 0.8], [2.5, 0.4], [0.6, 1.7]])


@pytest.mark.parametrize("name", ["llama", "qwen2", "cohere", "gpt_neox", "phi3", "gemma2", "gptj"])
@pytest.mark.parametrize("batch_tokens", [1, 90, 230, 10_000])
def test_candidates_in_one_forward_pass_score_what_they_score_alone(name, batch_tokens):
    model, rows = family(name), rows_about_texts()
    assert sharing_is_sound(model, rows)
    together = score_answers(model, rows, scales=CURVES, batch_tokens=batch_tokens, share_prefixes=True)
    assert together.log_probability.shape == together.correct.shape == (5, len(rows))
    for candidate, curve in enumerate(CURVES):
        with patch_rope(model, curve):
            means, correct = reference(model, rows)
        np.testing.assert_allclose(together.log_probability[candidate], means, atol=1e-5)
        assert together.correct[candidate].tolist() == correct.tolist()
    assert np.abs(np.diff(together.log_probability[:4], axis=0)).max(axis=1).min() > 1e-3


@pytest.mark.parametrize("padding_side", ["right", "left"])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_candidates_share_passes_under_every_padding_and_attention(padding_side, attention):
    model, rows = family("llama"), random_rows(n_vocabulary=64)
    model.set_attn_implementation(attention)
    scores = score_answers(model, rows, scales=CURVES, batch_tokens=400, padding_side=padding_side)
    for candidate, curve in enumerate(CURVES):
        alone = score_answers(model, rows, scales=curve[None], batch_tokens=1)
        np.testing.assert_allclose(
            scores.log_probability[candidate], alone.log_probability[0], atol=1e-5, strict=True
        )


def test_equal_candidates_of_one_call_score_alike_in_half_precision():
    model, rows = family("llama").to(torch.bfloat16), rows_about_texts()
    repair_frequencies(model)
    for batch_tokens in (90, 230, 10_000):
        scores = score_answers(
            model, rows, scales=CURVES, batch_tokens=batch_tokens, share_prefixes=True
        ).log_probability
        assert scores[1].tolist() == scores[4].tolist()
        assert scores[1].tolist() != scores[2].tolist()


def test_a_batch_without_tokens_is_refused():
    with pytest.raises(TaskError, match="batch_tokens to be an integer of at least 1, but got 0"):
        score_answers(build_llama(), random_rows(1), batch_tokens=0)


def test_an_unknown_padding_side_is_refused():
    with pytest.raises(
        TaskError, match="padding_side to be right, or left without share_prefixes, but got 'both'"
    ):
        score_answers(build_llama(), random_rows(1), padding_side="both")
