import dataclasses
import gc
import weakref

import numpy as np
import pytest
import torch

from lpes_evo.errors import EvaluationError, ScalesError, TaskError
from lpes_evo.problems import (
    DataRequest,
    ModelProblem,
    NeedleTask,
    aggregate,
    data_hash,
    default_batch_tokens,
    encode_examples,
    score_answers,
)
from lpes_evo.rope import patch_rope, repair_frequencies
from samples import build_llama

SCALES = np.array([1.3, 0.8, 1.1])
CURVES = np.array([SCALES, np.ones(3), [0.7, 0.9, 2.0], [1.2, 1.2, 1.2]])


def examples(n_per_position=2, positions=(0.0, 0.5, 1.0), **options):
    return NeedleTask(n_keys=3, **options).examples(
        DataRequest(positions=positions, limit=n_per_position, seed=0, split="search")
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


@pytest.mark.parametrize("metric", ["log_probability", "accuracy"])
@pytest.mark.parametrize("share_prefixes", [True, False])
@pytest.mark.parametrize("batch_tokens", [1, 3000, 100_000])
def test_several_candidates_score_what_each_scores_alone(tiny_loaded, metric, share_prefixes, batch_tokens):
    options = {"metric": metric, "share_prefixes": share_prefixes}
    problem = ModelProblem(tiny_loaded, examples(), batch_tokens=batch_tokens, **options)
    alone = ModelProblem(tiny_loaded, examples(), batch_tokens=1, **options)
    scores = problem.score_many(CURVES)
    assert (scores.shape, scores.dtype) == ((4, 6), np.float64)
    np.testing.assert_allclose(scores, [alone.score(curve) for curve in CURVES], atol=1e-5)
    chosen = problem.example_ids[4:1:-1]
    np.testing.assert_allclose(problem.score_many(CURVES, chosen), scores[:, 4:1:-1], atol=1e-5)


def shapes_of_passes(loaded, call):
    shapes = []
    handle = loaded.model.register_forward_pre_hook(
        lambda _model, _arguments, options: shapes.append(tuple(options["input_ids"].shape)), with_kwargs=True
    )
    try:
        call()
    finally:
        handle.remove()
    return shapes


def test_forward_passes_depend_on_the_number_of_candidates_and_not_on_their_scales(tiny_loaded):
    problem = ModelProblem(tiny_loaded, examples(), batch_tokens=3000)
    chosen = problem.example_ids[:2]
    ordinary = shapes_of_passes(tiny_loaded, lambda: problem.score_many(CURVES, chosen))
    assert shapes_of_passes(tiny_loaded, lambda: problem.score_many(np.full((4, 3), 1.5), chosen)) == ordinary
    assert shapes_of_passes(tiny_loaded, lambda: problem.score_many(CURVES[:3], chosen)) != ordinary


def test_as_many_candidates_as_fit_share_one_forward_pass(tiny_loaded):
    problem = ModelProblem(tiny_loaded, examples(), batch_tokens=20_000)
    n_fit = problem.n_candidates_that_fit(problem.example_ids[:3])
    n_of_all = problem.n_candidates_that_fit(problem.example_ids)
    assert n_fit > n_of_all > 1
    for ids, n_candidates in ((problem.example_ids[:3], n_fit), (None, n_of_all)):
        for more in (0, 1):
            curves = np.ones((n_candidates + more, 3))
            shapes = shapes_of_passes(
                tiny_loaded, lambda curves=curves, ids=ids: problem.score_many(curves, ids)
            )
            assert (len(shapes) == 1) == (not more)
    assert (
        ModelProblem(tiny_loaded, examples(), batch_tokens=1).n_candidates_that_fit(problem.example_ids) == 1
    )


def test_the_tokens_of_a_block_are_those_that_are_forwarded(tiny_loaded):
    problem = ModelProblem(tiny_loaded, examples(), batch_tokens=1)
    block = problem.example_ids[::2]
    passes = shapes_of_passes(tiny_loaded, lambda: problem.score(SCALES, block))
    assert problem.n_tokens_of(block) == sum(width for _, width in passes)
    assert problem.n_tokens_of(problem.example_ids) == problem.n_tokens
    with pytest.raises(TaskError, match="among the 6 examples of this problem, but got 'x'"):
        problem.n_tokens_of(["x"])


def test_scores_are_exact_unless_the_model_is_in_half_precision(tiny_loaded):
    assert ModelProblem(tiny_loaded, examples()).is_exact
    half = build_llama().to(torch.bfloat16)
    repair_frequencies(half)
    assert not ModelProblem(
        dataclasses.replace(tiny_loaded, model=half, dtype="bfloat16"), examples()
    ).is_exact


def test_the_batch_suits_the_device_where_none_is_given(tiny_loaded):
    assert ModelProblem(tiny_loaded, examples()).batch_tokens == default_batch_tokens("cpu")
    assert default_batch_tokens("cuda") > default_batch_tokens("cpu")
    assert ModelProblem(tiny_loaded, examples(), batch_tokens=700).batch_tokens == 700


def test_a_smaller_problem_has_half_the_batch_and_runs_no_model_to_get_it(tiny_loaded):
    problem = ModelProblem(tiny_loaded, examples(), batch_tokens=8000)
    halves = []
    assert shapes_of_passes(tiny_loaded, lambda: halves.append(problem.smaller())) == []
    (half,) = halves
    assert (problem.batch_tokens, half.batch_tokens) == (8000, 4000)
    assert (half.example_ids, half.sources, half.data_hash) == (
        problem.example_ids,
        problem.sources,
        problem.data_hash,
    )
    clean = ModelProblem(tiny_loaded, examples(), batch_tokens=4000)
    assert half.score_many(CURVES).tolist() == clean.score_many(CURVES).tolist()
    largest = [
        max(
            rows * width
            for rows, width in shapes_of_passes(tiny_loaded, lambda p=p: p.score_many(np.ones((12, 3))))
        )
        for p in (problem, half)
    ]
    assert largest[1] < 0.6 * largest[0]


def test_a_batch_of_one_long_example_cannot_be_halved(tiny_loaded):
    problem = ModelProblem(tiny_loaded, examples(), batch_tokens=8000)
    sizes = [problem.batch_tokens]
    while (problem := problem.smaller()) is not None:
        sizes.append(problem.batch_tokens)
    assert sizes == [8000, 4000, 2000, 1000][: len(sizes)]
    assert len(sizes) > 1
    assert ModelProblem(tiny_loaded, examples(), batch_tokens=1).smaller() is None


def test_a_score_that_runs_out_of_memory_leaves_nothing_behind(tiny_loaded):
    ids = torch.arange(2, 40)[None]
    before = tiny_loaded.model(ids).logits
    problem = ModelProblem(tiny_loaded, examples(), batch_tokens=1)
    held = []

    def fill_memory(_layer, arguments, output):
        held.append(weakref.ref(output))
        if len(held) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    handle = tiny_loaded.model.model.layers[1].register_forward_hook(fill_memory)
    # What only the collector of cycles frees would still fill the device when the batch is tried again.
    gc.disable()
    try:
        with pytest.raises(
            torch.OutOfMemoryError, match=r"^CUDA out of memory\. Tried to allocate 2.00 GiB\.$"
        ):
            problem.score_many(CURVES)
        assert [reference() for reference in held] == [None, None]
    finally:
        gc.enable()
        handle.remove()
    assert torch.equal(tiny_loaded.model(ids).logits, before)


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
        ([[1.0, 1.0, 1.0]], r"but got \(1, 3\). Score one curve at a time, or several with score_many"),
    ],
)
def test_bad_scales_are_refused(tiny_loaded, scales, message):
    problem = ModelProblem(tiny_loaded, examples())
    with pytest.raises(ScalesError, match=message):
        problem.score(scales)
    with pytest.raises(ScalesError, match=message):
        problem.evaluate(scales)


@pytest.mark.parametrize(
    ("scales", "message"),
    [
        (
            [1.0, 1.0, 1.0],
            r"\(n_candidates, n_layers\) = \(n, 3\) with n >= 1, but got \(3,\). Score one curve with",
        ),
        (np.empty((0, 3)), r"but got \(0, 3\)"),
        ([[1.0, 1.0]], r"but got \(1, 2\)"),
        ([[1.0, 1.0, 1.0], [1.0, 0.0, 1.0]], "finite and positive, but got 0.0 at layer 1"),
    ],
)
def test_bad_scales_of_several_candidates_are_refused(tiny_loaded, scales, message):
    with pytest.raises(ScalesError, match=message):
        ModelProblem(tiny_loaded, examples()).score_many(scales)


def test_output_that_is_not_finite_is_an_error_that_names_the_example(tiny_loaded):
    model = build_llama()
    model.lm_head.weight[:] = float("nan")
    problem = ModelProblem(dataclasses.replace(tiny_loaded, model=model), examples())
    with pytest.raises(EvaluationError, match="got nan for example 'needle/search/0/0/0/0.0' and 6 of 6"):
        problem.score(SCALES)
    with pytest.raises(EvaluationError, match="'needle/search/0/0/0/0.0' under candidate 0 and 24 of 24"):
        problem.score_many(CURVES)


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
        ({"metric": "f1"}, "metric to be one of log_probability, accuracy, score, but got 'f1'"),
        ({"batch_tokens": 0}, "batch_tokens to be an integer of at least 1"),
        ({"batch_tokens": "a"}, "batch_tokens to be an integer of at least 1, but got 'a'"),
        ({"over_length": "trim"}, "over_length to be one of error, skip, cut"),
    ],
)
def test_bad_options_are_refused(tiny_loaded, options, message):
    with pytest.raises(TaskError, match=message):
        ModelProblem(tiny_loaded, examples(), **options)


def test_an_unknown_example_id_is_refused(tiny_loaded):
    with pytest.raises(TaskError, match="among the 6 examples of this problem, but got 'x'"):
        ModelProblem(tiny_loaded, examples()).score(SCALES, ["x"])


def test_smollm2_is_worse_in_the_middle_than_at_the_ends(smollm2):
    drawn = NeedleTask().examples(DataRequest(positions=[0.0, 0.5, 1.0], limit=2, seed=0, split="search"))
    problem = ModelProblem(smollm2, drawn, batch_tokens=2048)
    begin, middle, end = aggregate(problem.score(np.ones(problem.n_layers)), problem.groups, "groups")
    assert middle < begin - 0.1
    assert middle < end - 0.1
    unshared = ModelProblem(smollm2, drawn, share_prefixes=False)
    assert 320 < unshared.n_tokens / len(drawn) < 480
    assert problem.n_tokens < 0.4 * unshared.n_tokens
