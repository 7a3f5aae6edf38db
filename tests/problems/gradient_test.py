"""Gradients of scores with respect to the scales, against central differences, and what has none."""

import numpy as np
import pytest
import torch

from lpes_evo.errors import EvaluationError, TaskError
from lpes_evo.problems import (
    BrachistochroneProblem,
    DataRequest,
    EncodedExample,
    ModelProblem,
    NeedleTask,
    Problem,
    TargetCurveProblem,
    answer_gradient,
    score_answers,
)
from rope_families import tiny_model
from samples import build_llama

FAMILIES = (
    "llama",
    "qwen2",
    "qwen3",
    "gemma2",
    "gemma3_text",
    "gpt_neox",
    "phi",
    "olmo2",
    "stablelm",
    "gptj",
    "cohere",
)
WEIGHTS = np.array([0.5, 0.3, 0.2])


def rows(n=3, length=12, n_vocabulary=60):
    rng = np.random.default_rng(4)
    shared = rng.integers(3, n_vocabulary, length - 4).tolist()
    return [
        EncodedExample(
            str(number),
            tuple(shared + rng.integers(3, n_vocabulary, 2 + number).tolist()),
            tuple(rng.integers(3, n_vocabulary, 2).tolist()),
        )
        for number in range(n)
    ]


def differences(score, scales, step=4e-3):
    """Central differences with Richardson's extrapolation: the error falls with the fourth power of the step."""
    eye = np.eye(len(scales))

    def central(step):
        curves = np.concatenate([scales + step * eye, scales - step * eye])
        high, low = np.split(score(curves), 2)
        return (high - low) / (2 * step)

    return (4 * central(step) - central(2 * step)) / 3


@pytest.mark.parametrize("family", FAMILIES)
def test_the_gradient_of_a_family_is_that_of_differences_in_float64(family):
    model = tiny_model(family, torch.float64).requires_grad_(False)
    for name, weight in model.named_parameters():
        # Weights this small hardly look at positions.
        weight.mul_(5.0 if any(part in name for part in ("q_proj", "k_proj", "query_key")) else 1.0)
    scales = np.linspace(0.8, 1.3, 3)
    scores, gradient = answer_gradient(model, rows(), scales, WEIGHTS, batch_tokens=30)
    expected = differences(lambda s: score_answers(model, rows(), scales=s).log_probability @ WEIGHTS, scales)
    # Norms and angles are float32 in any model, so differences have noise.
    np.testing.assert_allclose(gradient, expected, atol=3e-3 * np.abs(expected).max(), rtol=0)
    assert np.abs(expected).min() > 0
    np.testing.assert_allclose(scores, score_answers(model, rows(), scales=scales[None]).log_probability[0])


def examples():
    return NeedleTask(n_keys=3).examples(
        DataRequest(positions=(0.0, 0.5, 1.0), limit=2, seed=0, split="search")
    )


SCALES = np.array([1.3, 0.8, 1.1])


def test_neither_batches_nor_shared_prefixes_nor_checkpointing_change_a_gradient(tiny_loaded):
    expected = ModelProblem(tiny_loaded, examples(), batch_tokens=1, share_prefixes=False).gradient(SCALES)
    for options in (
        {"batch_tokens": 100_000},
        {"batch_tokens": 100_000, "share_prefixes": False},
        {"batch_tokens": 3000, "checkpointing": True},
    ):
        problem = ModelProblem(tiny_loaded, examples(), **options)
        scores, gradient = problem.gradient(SCALES)
        np.testing.assert_allclose(scores, expected[0], atol=1e-5)
        np.testing.assert_allclose(gradient, expected[1], atol=1e-4 * np.abs(expected[1]).max())
        np.testing.assert_allclose(scores, problem.score(SCALES), atol=1e-5)
        assert problem.gradient_cost == (4 if "checkpointing" in options else 3)


def test_chosen_examples_and_their_weights_add_up(tiny_loaded):
    problem = ModelProblem(tiny_loaded, examples(), batch_tokens=3000)
    chosen = problem.example_ids[4:1:-1]
    weights = np.array([2.0, 0.0, -1.0])
    scores, gradient = problem.gradient(SCALES, chosen, weights)
    alone = [problem.gradient(SCALES, [name]) for name in chosen]
    np.testing.assert_allclose(scores, [score[0] for score, _ in alone], atol=1e-5)
    total = sum(weight * slope for weight, (_, slope) in zip(weights, alone, strict=True))
    np.testing.assert_allclose(gradient, total, atol=1e-4 * np.abs(total).max())


@pytest.mark.parametrize("checkpointing", [False, True])
def test_a_gradient_leaves_the_model_as_it_was_and_gives_its_weights_none(tiny_loaded, checkpointing):
    model = tiny_loaded.model
    problem = ModelProblem(tiny_loaded, examples(), checkpointing=checkpointing)
    before = problem.score(SCALES)
    some = next(model.parameters()).requires_grad_(True)
    try:
        problem.gradient(SCALES)
        assert some.requires_grad
        assert not any(parameter.grad is not None for parameter in model.parameters())
    finally:
        some.requires_grad_(False)
    assert not any(module.training for module in model.modules())
    assert not any(getattr(module, "gradient_checkpointing", False) for module in model.modules())
    assert (problem.score(SCALES) == before).all()


def test_checkpointing_keeps_fewer_activations(tiny_loaded):
    def kept(checkpointing):
        problem = ModelProblem(tiny_loaded, examples(), batch_tokens=4000, checkpointing=checkpointing)
        sizes = []

        def pack(tensor):
            sizes.append(0 if isinstance(tensor, torch.nn.Parameter) else tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            problem.gradient(SCALES)
        return sum(sizes)

    assert kept(True) < 0.7 * kept(False)


def test_dropout_stays_off_under_checkpointing(tiny_loaded):
    import dataclasses

    model = build_llama()
    for layer in model.model.layers:
        layer.self_attn.attention_dropout = 0.5
    loaded = dataclasses.replace(tiny_loaded, model=model)
    kept, computed_twice = (
        ModelProblem(loaded, examples(), checkpointing=flag).gradient(SCALES)[1] for flag in (False, True)
    )
    np.testing.assert_allclose(kept, computed_twice, atol=1e-5 * np.abs(kept).max())


@pytest.mark.parametrize(
    ("family", "rates"),
    [
        ("starcoder2", {"embedding_dropout": 0.5, "residual_dropout": 0.5}),
        ("falcon", {"hidden_dropout": 0.5, "attention_dropout": 0.5}),
    ],
)
def test_families_whose_layers_drop_out_themselves_do_not_under_checkpointing(family, rates):
    model = tiny_model(family, torch.float64, **rates).requires_grad_(False)
    scales = np.linspace(0.8, 1.3, 3)
    kept = answer_gradient(model, rows(), scales, WEIGHTS)
    computed_twice = answer_gradient(model, rows(), scales, WEIGHTS, checkpointing=True)
    for ours, theirs in zip(computed_twice, kept, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6 * np.abs(theirs).max())


def test_a_forward_that_another_library_has_put_on_a_layer_is_there_again(tiny_loaded):
    import dataclasses

    model = build_llama()
    layer = model.model.layers[1]
    plain = layer.forward
    layer.forward = lambda *arguments, **options: plain(*arguments, **options)
    own = layer.forward
    ModelProblem(dataclasses.replace(tiny_loaded, model=model), examples(), checkpointing=True).gradient(
        SCALES
    )
    assert layer.forward is own
    assert "forward" not in model.model.layers[0].__dict__


def test_no_examples_have_no_gradient_and_inference_mode_takes_none_away(tiny_loaded):
    problem = ModelProblem(tiny_loaded, examples())
    scores, gradient = problem.gradient(SCALES, [])
    assert scores.shape == (0,)
    assert gradient.tolist() == [0.0] * 3
    expected = problem.gradient(SCALES)
    with torch.inference_mode():
        inside = problem.gradient(SCALES)
    for ours, theirs in zip(inside, expected, strict=True):
        assert (ours == theirs).all()


@pytest.mark.parametrize("kind", ["dynamic", "yarn", "llama3"])
def test_scaled_rotary_types_have_gradients_after_they_were_scored(tiny_loaded, kind):
    rope = {
        "dynamic": {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10000.0},
        "yarn": {
            "rope_type": "yarn",
            "factor": 4.0,
            "rope_theta": 10000.0,
            "original_max_position_embeddings": 32,
        },
        "llama3": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
            "rope_theta": 10000.0,
        },
    }[kind]
    model = tiny_model("llama", rope_parameters=rope, max_position_embeddings=64).requires_grad_(False)
    long = rows(length=90)
    scales = np.linspace(0.9, 1.2, 3)
    first = score_answers(model, long, scales=scales[None]).log_probability[0]
    scores, gradient = answer_gradient(model, long, scales, WEIGHTS)
    np.testing.assert_allclose(scores, first, atol=1e-5)
    assert np.abs(gradient).min() > 0


def test_analytic_problems_have_the_gradients_of_differences():
    scales = np.array([0.3, 0.5, 0.55, 0.8])
    for problem in (BrachistochroneProblem(4), TargetCurveProblem([0.2, 0.6, 0.4, 1.0])):
        weights = np.linspace(1.0, 2.0, len(problem.example_ids))
        scores, gradient = problem.gradient(scales, weights=weights)
        np.testing.assert_array_equal(scores, problem.score(scales))
        expected = differences(lambda s, p=problem, w=weights: p.score_many(s) @ w, scales)
        np.testing.assert_allclose(gradient, expected, rtol=1e-5)
    chosen = TargetCurveProblem([0.2, 0.6, 0.4, 1.0]).gradient(scales, ["layer-2", "layer-0"])[1]
    np.testing.assert_allclose(chosen, [-0.1, 0, -0.15, 0], atol=1e-12)


def test_accuracy_has_no_gradient(tiny_loaded):
    problem = ModelProblem(tiny_loaded, examples(), metric="accuracy")
    with pytest.raises(
        TaskError, match="Expected the metric log_probability for a gradient, but accuracy has none"
    ):
        problem.gradient(SCALES)


def test_a_problem_of_a_user_has_no_gradient_unless_it_says_so():
    class Mine(Problem):
        n_layers, example_ids, groups = 2, ("a",), ("a",)

        def score(self, scales, example_ids=None):
            return np.zeros(1)

    with pytest.raises(TaskError, match="Expected a problem with gradients, but Mine has none"):
        Mine().gradient(np.ones(2))


def test_weights_that_are_none_are_refused(tiny_loaded):
    problem = ModelProblem(tiny_loaded, examples())
    with pytest.raises(TaskError, match=r"weights of shape \(n_examples,\) = \(6,\), but got \(2,\)"):
        problem.gradient(SCALES, weights=np.ones(2))
    with pytest.raises(TaskError, match="with 5 finite ones"):
        problem.gradient(SCALES, weights=np.array([np.inf, 1, 1, 1, 1, 1]))


def test_a_gradient_that_is_not_finite_names_its_layer(tiny_loaded):
    problem = ModelProblem(tiny_loaded, examples())
    middle = tiny_loaded.model.model.layers[1]
    # A backward pass that overflows, behind a sound forward pass.
    handle = middle.register_full_backward_hook(
        lambda _module, _into, _out: (torch.full_like(_into[0], torch.inf),)
    )
    try:
        with pytest.raises(EvaluationError, match="Expected a finite gradient, but got .* for layer 0"):
            problem.gradient(SCALES)
    finally:
        handle.remove()


class NoBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, *slopes):
        raise NotImplementedError("fancy_attention has no backward")


@pytest.mark.parametrize("kind", ["cut off", "refuses"])
def test_an_attention_without_backward_is_named_in_one_line(tiny_loaded, kind):
    def spoil(_module, _args, output):
        states = output[0].detach() if kind == "cut off" else NoBackward.apply(output[0])
        return (states, *output[1:])

    handles = [layer.self_attn.register_forward_hook(spoil) for layer in tiny_loaded.model.model.layers]
    try:
        with pytest.raises(
            EvaluationError, match="Expected a model with a backward pass, but with .*'sdpa'"
        ) as caught:
            ModelProblem(tiny_loaded, examples()).gradient(SCALES)
    finally:
        for handle in handles:
            handle.remove()
    assert "\n" not in str(caught.value)


def test_a_model_that_cannot_checkpoint_is_refused_at_once(tiny_loaded, monkeypatch):
    monkeypatch.setattr(type(tiny_loaded.model), "supports_gradient_checkpointing", False)
    with pytest.raises(
        TaskError, match="Expected a model that can checkpoint activations, but LlamaForCausalLM"
    ):
        ModelProblem(tiny_loaded, examples(), checkpointing=True)
