import weakref

import numpy as np
import pytest
import torch

from lpes_evo.analysis import (
    MEASURES,
    AnalysisInput,
    Drift,
    cka_distance,
    cosine_distance,
    drift_arms,
    measure_drift,
    relative_l2,
    summarise_drift,
)
from lpes_evo.errors import ConfigError, EvaluationError, ScalesError, TaskError
from lpes_evo.operators import CurveSpace
from lpes_evo.problems import AnswerScores
from lpes_evo.rope import patch_rope

FAMILIES = ["llama", "gemma2", "gpt_neox", "qwen3", "deepseek_v3", "gptj", "qwen3_next"]
VECTORS = np.array([[1.0, 1.0, 1.0], [1.0, 1.0, 1.7], [0.6, 1.3, 2.0]])


@pytest.fixture
def llama():
    from rope_families import tiny_model

    return tiny_model("llama")


def layer_outputs(model, ids):
    """Outputs of all layers, kept, by hooks of the test's own."""
    layers = next(
        module for module in model.modules() if isinstance(module, torch.nn.ModuleList) and len(module) == 3
    )
    kept = []
    handles = [
        layer.register_forward_hook(
            lambda _module, _args, output: kept.append(output[0] if isinstance(output, tuple) else output)
        )
        for layer in layers
    ]
    with torch.no_grad():
        model(input_ids=ids, use_cache=False)
    for handle in handles:
        handle.remove()
    return kept


@pytest.mark.parametrize("family", FAMILIES)
def test_drift_is_that_of_two_passes_whose_hidden_states_are_kept(family, short_inputs):
    from rope_families import tiny_model

    model = tiny_model(family)
    drift = measure_drift(model, short_inputs, VECTORS)
    assert drift.values.shape == (3, 3, 3, 3)
    for number, entry in enumerate(short_inputs):
        ids = torch.tensor([entry.token_ids])
        untouched = layer_outputs(model, ids)
        for vector, scales in enumerate(VECTORS):
            with patch_rope(model, scales):
                moved = layer_outputs(model, ids)
            for layer in range(3):
                x, y = untouched[layer][0, 1:], moved[layer][0, 1:]
                measures = (relative_l2(x, y), cosine_distance(x, y), cka_distance(x, y))
                expected = [measure.mean().item() for measure in measures]
                assert drift.values[:, vector, number, layer] == pytest.approx(expected, rel=1e-3, abs=1e-6)


def test_untouched_layers_do_not_drift_and_those_behind_a_scale_do(llama, short_inputs):
    values = measure_drift(llama, short_inputs, VECTORS).values
    assert values[:, 0] == pytest.approx(0, abs=1e-6)
    assert values[:, 1, :, :2] == pytest.approx(0, abs=1e-6)
    assert (values[0, 1, :, 2] > 1e-3).all()
    assert (values[0, 2] > 1e-3).all()
    assert (values[1:, 2] > 1e-6).all()


def test_drift_does_not_depend_on_how_many_vectors_share_a_pass(llama, short_inputs):
    together = measure_drift(llama, short_inputs, VECTORS, batch_tokens=10_000)
    alone = measure_drift(llama, short_inputs, VECTORS, batch_tokens=1)
    assert alone.values == pytest.approx(together.values, rel=1e-4, abs=1e-6)
    assert alone.n_tokens == 12 + 19 + 8
    assert alone.sources == ("a", "a", "b")


def test_no_more_than_the_hidden_states_of_two_layers_are_alive_at_once(llama, short_inputs):
    seen, alive = [], []

    def watch(_module, _args, output):
        states = output[0] if isinstance(output, tuple) else output
        seen.append(weakref.ref(states))
        alive.append(sum(reference() is not None for reference in seen))

    for layer in llama.model.layers:
        layer.register_forward_hook(watch)
    measure_drift(llama, short_inputs, VECTORS, batch_tokens=1)
    assert len(seen) == 3 * 3 * 3
    # The output of a layer and its input, which is the output of the layer before.
    assert max(alive) <= 2
    assert not any(reference() is not None for reference in seen)


def test_the_model_is_untouched_afterwards(llama, short_inputs):
    ids = torch.tensor([short_inputs[0].token_ids])
    with torch.no_grad():
        before = llama(input_ids=ids).logits
        measure_drift(llama, short_inputs, VECTORS)
        assert torch.equal(llama(input_ids=ids).logits, before)
    assert not any(module._forward_hooks for module in llama.modules())


def test_hidden_states_that_are_not_finite_are_named(llama, short_inputs):
    with torch.no_grad():
        llama.model.layers[1].mlp.down_proj.weight.fill_(torch.inf)
    with pytest.raises(EvaluationError, match="those of layer 1 are not for input '0' under vector 0"):
        measure_drift(llama, short_inputs, VECTORS)


def test_wrong_arguments_of_the_measurement_are_refused(llama, short_inputs):
    with pytest.raises(ScalesError, match=r"\(n_layers,\) = \(3,\)"):
        measure_drift(llama, short_inputs, np.ones((2, 4)))
    with pytest.raises(TaskError, match="at least one input"):
        measure_drift(llama, [], VECTORS)
    with pytest.raises(TaskError, match="at least 4 tokens, but 'x' has 3"):
        measure_drift(llama, [AnalysisInput("x", "x", (1, 2, 3))], VECTORS)
    with pytest.raises(TaskError, match="batch_tokens to be an integer of at least 1"):
        measure_drift(llama, short_inputs, VECTORS, batch_tokens=0)


SPACE = CurveSpace(6, 4, y_min=0.5, y_max=2.0, y_step=0.1, max_delta=0.5)
CURVE = SPACE.decode([[(0, 0.6), (1, 0.9), (4, 1.3), (5, 1.8)]])[0]


def test_every_arm_keeps_what_it_should_of_the_curve():
    arms = drift_arms(CURVE, SPACE, n_draws=400, seed=3)
    assert {name: len(vectors) for name, vectors in arms.items()} == {
        "curve": 1,
        "shuffles": 400,
        "noise": 400,
        "constant": 1,
        "random": 400,
        "random curves": 400,
    }
    assert np.array_equal(arms["curve"][0], CURVE)
    assert np.array_equal(np.sort(arms["shuffles"]), np.tile(np.sort(CURVE), (400, 1)))
    assert len(np.unique(arms["shuffles"], axis=0)) > 200
    noise = np.log(arms["noise"] / CURVE)
    assert noise.std() == pytest.approx(np.log(CURVE).std(), rel=0.1)
    assert np.unique(arms["constant"]) == pytest.approx([CURVE.mean()])
    assert arms["random"].min() >= 0.5
    assert arms["random"].max() <= 2.0
    assert arms["random"].std() == pytest.approx(1.5 / np.sqrt(12), rel=0.1)

    def roughness(vectors):
        return np.abs(np.diff(vectors, n=2)).mean()

    assert roughness(arms["random curves"]) < 0.3 * roughness(arms["random"])


def test_arms_are_a_function_of_the_seed_and_leave_the_global_generators_alone():
    import random

    random.seed(1)
    expected = random.random()
    random.seed(1)
    first = drift_arms(CURVE, SPACE, n_draws=3, seed=0)
    assert random.random() == expected
    again, other = (drift_arms(CURVE, SPACE, n_draws=3, seed=seed) for seed in (0, 1))
    assert all(np.array_equal(first[name], again[name]) for name in first)
    for name in ("shuffles", "noise", "random", "random curves"):
        assert not np.array_equal(first[name], other[name])


def test_wrong_arguments_of_the_arms_are_refused():
    with pytest.raises(ConfigError, match="at least one draw"):
        drift_arms(CURVE, SPACE, n_draws=0)
    with pytest.raises(ScalesError, match=r"\(n_layers,\) = \(6,\)"):
        drift_arms(CURVE[:5], SPACE)


def made_up(rivals, n_sources=20, noise=0.01):
    """Drift and arms with a curve of drift 1 and rivals of given drifts, equal by every measure."""
    generator = np.random.default_rng(0)
    levels = {"curve": [1.0], **rivals}
    values = np.concatenate([np.asarray(level) for level in levels.values()])
    drift = values[None, :, None, None] + noise * generator.standard_normal((3, len(values), n_sources, 2))
    ids = tuple(map(str, range(n_sources)))
    arms = {name: np.ones((len(level), 2)) for name, level in levels.items()}
    return Drift(drift, ids, ids, n_sources), arms


def test_the_claim_holds_where_the_curve_drifts_less_than_every_rival():
    drift, arms = made_up({"shuffles": np.linspace(1.2, 1.4, 20), "constant": [1.1]})
    summary = summarise_drift(drift, arms)
    assert summary["claim"] == dict.fromkeys(MEASURES, "holds")
    row = summary["comparisons"]["cka"]["shuffles"]
    assert row["value"] == pytest.approx(0.3, abs=0.02)
    assert (row["n_more"], row["n_less"]) == (20, 0)
    assert row["low"] > 0.2
    assert row["p_vectors"] == pytest.approx(2**-19)
    assert summary["retrieval"] is None


def test_the_claim_fails_where_one_rival_drifts_less():
    drift, arms = made_up({"shuffles": np.linspace(1.2, 1.4, 20), "constant": [0.9]})
    summary = summarise_drift(drift, arms)
    assert summary["claim"] == dict.fromkeys(MEASURES, "fails")
    assert summary["comparisons"]["cosine"]["constant"]["curve_drifts"] == "more"


def test_the_claim_is_not_shown_where_half_of_the_shuffles_drift_less():
    drift, arms = made_up({"shuffles": np.linspace(0.8, 1.2, 20), "constant": [1.1]})
    summary = summarise_drift(drift, arms)
    assert summary["claim"] == dict.fromkeys(MEASURES, "not shown")
    assert summary["comparisons"]["cka"]["constant"]["curve_drifts"] == "less"


def test_the_claim_is_not_shown_on_too_few_inputs():
    drift, arms = made_up({"shuffles": np.linspace(1.2, 1.4, 20)}, n_sources=3)
    assert summarise_drift(drift, arms)["claim"] == dict.fromkeys(MEASURES, "not shown")


def test_random_curves_are_no_rivals_but_show_what_smoothness_does_alone():
    drift, arms = made_up(
        {
            "shuffles": np.linspace(1.2, 1.4, 20),
            "random": np.linspace(2.0, 2.2, 20),
            "random curves": np.linspace(0.5, 0.7, 20),
        }
    )
    summary = summarise_drift(drift, arms)
    assert summary["claim"] == dict.fromkeys(MEASURES, "holds")
    assert summary["comparisons"]["cka"]["random curves"]["curve_drifts"] == "more"
    found = summary["smoothness"]["relative_l2"]
    assert found["value"] == pytest.approx(1.5, abs=0.02)
    assert found["low"] > 1.3
    assert found["p_value"] < 1e-6


def test_drift_is_set_against_retrieval_in_each_arm_and_over_all():
    levels = np.linspace(1.2, 1.4, 10)
    drift, arms = made_up({"shuffles": levels, "constant": [1.1]}, noise=0)
    answers = -np.concatenate([[1.0], levels, [1.1]])[:, None] * np.ones(20)
    scores = AnswerScores(answers, np.ones_like(answers, dtype=bool))
    untouched = AnswerScores(np.full(20, -0.5), np.zeros(20, dtype=bool))
    summary = summarise_drift(drift, arms, scores, untouched)
    assert summary["untouched"]["log_probability"] == {"value": -0.5, "low": -0.5, "high": -0.5}
    of_all = summary["retrieval"]["cka"]["all"]
    assert of_all["log_probability"]["value"] == pytest.approx(-1)
    assert of_all["log_probability"]["n"] == 12
    assert of_all["accuracy"] is None
    assert set(summary["retrieval"]["cka"]) == {"all", "shuffles"}
    assert summary["arms"]["constant"]["log_probability"]["value"] == pytest.approx(-1.1)
    assert summary["vectors"][1]["accuracy"] == 1.0


def test_accumulation_names_what_each_layer_adds():
    drift, arms = made_up({"constant": [2.0]}, noise=0)
    drift.values[..., 0] = 0.25
    found = summarise_drift(drift, arms)["arms"]["constant"]["accumulation"]["cka"]
    assert found == {"added": [0.25, 1.75], "half_at_layer": 1}


def test_arms_that_do_not_fit_the_drift_are_refused():
    drift, arms = made_up({"constant": [2.0]})
    with pytest.raises(TaskError, match="Expected the drift of 3 vectors"):
        summarise_drift(drift, arms | {"random": np.ones((1, 2))})
    with pytest.raises(TaskError, match="with 0"):
        summarise_drift(drift, {"shuffles": arms["curve"], "constant": arms["constant"]})
