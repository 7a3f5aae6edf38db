import dataclasses

import numpy as np
import pytest
import torch

from lpes_evo.errors import EvaluationError, ScalesError, TaskError
from lpes_evo.problems import ModelProblem, NeedleTask, aggregate, data_hash, encode_examples, score_answers
from lpes_evo.rope import patch_rope
from tests.conftest import build_llama

SCALES = np.array([1.3, 0.8, 1.1])


def examples(n_per_position=2, positions=(0.0, 0.5, 1.0), **options):
    return NeedleTask(n_keys=3, **options).examples(
        positions=positions, n_per_position=n_per_position, seed=0, split="search"
    )


def test_scores_are_those_of_the_patched_model(tiny_loaded):
    problem = ModelProblem(tiny_loaded, examples())
    rows = encode_examples(examples(), tiny_loaded.tokenizer).rows
    with patch_rope(tiny_loaded.model, SCALES):
        expected = score_answers(tiny_loaded.model, rows)
    np.testing.assert_allclose(problem.score(SCALES), expected.log_probability, atol=1e-5)
    assert (problem.evaluate(SCALES).correct == expected.correct).all()
    assert not np.allclose(problem.score(np.ones(3)), expected.log_probability)


def test_the_problem_describes_its_examples(tiny_loaded):
    problem = ModelProblem(tiny_loaded, examples(), share_prefixes=False)
    assert problem.n_layers == 3
    assert problem.example_ids == tuple(example.id for example in examples())
    assert problem.positions == (0.0, 0.0, 0.5, 0.5, 1.0, 1.0)
    assert problem.groups == ("begin", "begin", "middle", "middle", "end", "end")
    rows = encode_examples(examples(), tiny_loaded.tokenizer).rows
    assert problem.n_tokens == sum(len(row.prompt_ids) + len(row.answer_ids) - 1 for row in rows)
    assert ModelProblem(tiny_loaded, examples()).n_tokens < 0.6 * problem.n_tokens
    assert problem.sources == tuple(example.source for example in examples())
    assert problem.data_hash == data_hash(examples())
    assert problem.skipped == 0


def test_scores_do_not_depend_on_the_batch_size(tiny_loaded):
    small = ModelProblem(tiny_loaded, examples(), batch_tokens=1).score(SCALES)
    large = ModelProblem(tiny_loaded, examples(), batch_tokens=100_000).score(SCALES)
    np.testing.assert_allclose(small, large, atol=1e-5)
    groups = ModelProblem(tiny_loaded, examples()).groups
    assert aggregate(small, groups) == pytest.approx(aggregate(large, groups), abs=1e-5)


def test_chosen_examples_are_scored_in_the_order_asked_for(tiny_loaded):
    problem = ModelProblem(tiny_loaded, examples(), batch_tokens=1)
    everything = dict(zip(problem.example_ids, problem.score(SCALES), strict=True))
    chosen = problem.example_ids[4:1:-1]
    expected = [everything[name] for name in chosen]
    np.testing.assert_allclose(problem.score(SCALES, chosen), expected, atol=1e-5)


def test_accuracy_is_one_where_greedy_decoding_is_right(tiny_loaded):
    problem = ModelProblem(tiny_loaded, examples(), metric="accuracy")
    assert problem.score(SCALES).tolist() == problem.evaluate(SCALES).correct.astype(float).tolist()


def test_the_model_is_untouched_after_a_score_and_after_an_error(tiny_loaded):
    ids = torch.arange(2, 40)[None]
    before = tiny_loaded.model(ids).logits
    problem = ModelProblem(tiny_loaded, examples())
    problem.score(SCALES)
    assert torch.equal(tiny_loaded.model(ids).logits, before)
    with pytest.raises(ScalesError, match=r"\(n_layers,\) = \(3,\)"):
        problem.score(np.ones(4))
    assert torch.equal(tiny_loaded.model(ids).logits, before)


@pytest.mark.parametrize(
    ("scales", "message"),
    [
        ([1.0, float("nan"), 1.0], "finite and positive, but got nan at layer 1"),
        ([1.0, 1.0, 0.0], "finite and positive, but got 0.0 at layer 2"),
        ([-1.0, 1.0, 1.0], "finite and positive, but got -1.0 at layer 0"),
        (1.0, r"shape \(n_layers,\) = \(3,\)"),
        ([[1.0, 1.0, 1.0]], r"but got \(1, 3\). Score one curve at a time"),
    ],
)
def test_bad_scales_are_refused(tiny_loaded, scales, message):
    with pytest.raises(ScalesError, match=message):
        ModelProblem(tiny_loaded, examples()).score(scales)


def test_output_that_is_not_finite_is_an_error_that_names_the_example(tiny_loaded):
    model = build_llama()
    model.lm_head.weight[:] = float("nan")
    problem = ModelProblem(dataclasses.replace(tiny_loaded, model=model), examples())
    with pytest.raises(EvaluationError, match="got nan for example 'needle/search/0/0/0/0.0' and 6 of 6"):
        problem.score(SCALES)


def test_long_examples_are_refused_or_skipped_and_counted(tiny_loaded):
    mixed = examples() + [
        dataclasses.replace(entry, id=f"long/{entry.id}") for entry in examples(n_filler=5, n_per_position=1)
    ]
    with pytest.raises(TaskError, match="window of 1024 tokens, but 'long/needle/search/0/0/0/0.0' has"):
        ModelProblem(tiny_loaded, mixed)
    problem = ModelProblem(tiny_loaded, mixed, over_length="skip")
    assert problem.skipped == 3
    assert problem.example_ids == tuple(example.id for example in examples())
    assert problem.data_hash == data_hash(examples())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "f1"}, "metric to be one of log_probability, accuracy, but got 'f1'"),
        ({"batch_tokens": 0}, "batch_tokens to be an integer of at least 1"),
        ({"batch_tokens": "a"}, "batch_tokens to be an integer of at least 1, but got 'a'"),
        ({"over_length": "cut"}, "over_length to be error or skip"),
    ],
)
def test_bad_options_are_refused(tiny_loaded, options, message):
    with pytest.raises(TaskError, match=message):
        ModelProblem(tiny_loaded, examples(), **options)


def test_an_unknown_example_id_is_refused(tiny_loaded):
    with pytest.raises(TaskError, match="among the 6 examples of this problem, but got 'x'"):
        ModelProblem(tiny_loaded, examples()).score(SCALES, ["x"])


def test_smollm2_is_worse_in_the_middle_than_at_the_ends(smollm2):
    drawn = NeedleTask().examples(positions=[0.0, 0.5, 1.0], n_per_position=2, seed=0, split="search")
    problem = ModelProblem(smollm2, drawn, batch_tokens=2048)
    begin, middle, end = aggregate(problem.score(np.ones(problem.n_layers)), problem.groups, "groups")
    assert middle < begin - 0.1
    assert middle < end - 0.1
    unshared = ModelProblem(smollm2, drawn, share_prefixes=False)
    assert 320 < unshared.n_tokens / len(drawn) < 480
    assert problem.n_tokens < 0.4 * unshared.n_tokens
