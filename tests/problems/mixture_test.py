"""Mixtures: several tasks as one problem."""

import numpy as np
import pytest

from guarded import N_LAYERS, Wish
from lpes_evo.errors import ScalesError, TaskError
from lpes_evo.models import load_model
from lpes_evo.problems import DataRequest, MixtureProblem, ModelProblem, Problem, examples_of, make_task
from sheet import Sheet

CURVES = np.linspace(0.8, 1.2, N_LAYERS) * np.array([[1.0], [1.1]])


def mixture():
    return MixtureProblem(
        {"a": Wish(1.4), "b": Wish(0.9, n_texts=2)}, {"b": 2.0}, guarded={"c": Wish(1.0, 1)}
    )


def test_every_example_has_the_score_of_its_part_whatever_the_order():
    whole, parts = mixture(), {"a": Wish(1.4), "b": Wish(0.9, n_texts=2), "c": Wish(1.0, 1)}
    names = whole.example_ids[::-2]
    expected = [
        [parts[name.split("/", 1)[0]].score(curve, [name.split("/", 1)[1]])[0] for name in names]
        for curve in CURVES
    ]
    assert whole.score_many(CURVES, names).tolist() == expected
    assert whole.score(CURVES[1]).tolist() == whole.score_many(CURVES)[1].tolist()


def test_names_sources_and_sets_of_tasks_are_kept_apart():
    whole = mixture()
    assert len(set(whole.example_ids)) == 12 + 6 + 3
    assert whole.example_ids[0] == "a/0/b"
    assert set(whole.groups) == {f"{task}/{name}" for task in "abc" for name in ("begin", "middle", "end")}
    assert len(set(whole.sources)) == 4 + 2 + 1
    assert whole.mixture.tasks == ("a",) * 12 + ("b",) * 6 + ("c",) * 3
    assert set(whole.mixture.sets) == {"begin", "middle", "end"}
    assert whole.mixture.weights == {"a": 1.0, "b": 2.0}
    assert whole.mixture.guards == {"c": 0.02}


def test_the_gradient_is_that_of_the_weighted_sum_of_scores():
    whole, weights = mixture(), np.linspace(0.1, 1.0, 21)
    curve = CURVES[0]
    scores, slope = whole.gradient(curve, None, weights)
    assert scores.tolist() == whole.score(curve).tolist()
    for layer in range(N_LAYERS):
        step = np.eye(N_LAYERS)[layer] * 1e-6
        difference = weights @ (whole.score(curve + step) - whole.score(curve - step)) / 2e-6
        assert slope[layer] == pytest.approx(difference, abs=1e-6)


def test_costs_add_up_and_the_smallest_part_says_how_many_candidates_fit():
    whole = MixtureProblem({"a": Sheet(n_texts=2, n_fit=3), "b": Sheet(n_texts=3, n_fit=5)})
    assert whole.n_tokens_of(whole.example_ids) == 10 * 15
    assert whole.n_candidates_that_fit(whole.example_ids) == 3
    assert whole.n_candidates_that_fit([name for name in whole.example_ids if name.startswith("b/")]) == 5


def test_one_part_without_gradients_or_exactness_leaves_the_mixture_without_it():
    assert MixtureProblem({"a": Wish(1.0)}, guarded={"b": Sheet()}).has_gradient
    assert not MixtureProblem({"a": Wish(1.0), "b": Sheet()}).has_gradient
    assert not MixtureProblem({"a": Wish(1.0)}, guarded={"b": Sheet(is_exact=False)}).is_exact
    assert mixture().is_exact


class Halving(Wish):
    """A wish whose batch can be halved some times."""

    def __init__(self, times):
        super().__init__(1.0)
        self.times = times

    def smaller(self):
        return Halving(self.times - 1) if self.times else None


def test_every_part_that_can_halve_its_batch_does():
    whole = MixtureProblem({"a": Halving(2), "b": Halving(1)})
    times = []
    while whole is not None:
        times.append([part.times for part in whole.parts.values()])
        assert whole.score(np.ones(N_LAYERS)).shape == (24,)
        whole = whole.smaller()
    assert times == [[2, 1], [1, 0], [0, 0]]


def test_what_does_not_fit_together_is_refused_in_a_line():
    class Shallow(Wish):
        n_layers = 3

    with pytest.raises(TaskError, match="at least one task to search on, but got none"):
        MixtureProblem({}, guarded={"a": Wish(1.0)})
    with pytest.raises(TaskError, match="a guard to be no task of the search, but 'a' is both"):
        MixtureProblem({"a": Wish(1.0)}, guarded={"a": Wish(1.0)})
    with pytest.raises(TaskError, match="one number of layers, but a has 8, b has 3"):
        MixtureProblem({"a": Wish(1.0), "b": Shallow(1.0)})
    for weight in (0, -1, float("nan"), float("inf")):
        with pytest.raises(TaskError, match="the weight of a to be a finite number above 0"):
            MixtureProblem({"a": Wish(1.0)}, {"a": weight})
    with pytest.raises(TaskError, match="the tolerance of g to be a finite number of at least 0, but got -1"):
        MixtureProblem({"a": Wish(1.0)}, guarded={"g": Wish(1.0)}, tolerances={"g": -1})
    with pytest.raises(TaskError, match="a weight of a task among a, but got one of 'z'"):
        MixtureProblem({"a": Wish(1.0)}, {"z": 1.0})
    with pytest.raises(TaskError, match="ids among the 21 examples of this mixture, but got 'nobody'"):
        mixture().score(np.ones(N_LAYERS), ["nobody"])
    with pytest.raises(ScalesError):
        mixture().score(np.ones(3))


def test_a_mixture_of_model_problems_scores_like_its_parts_and_hashes_their_data():
    loaded = load_model("tiny", device="cpu")
    request = DataRequest(positions=(0.0, 0.5, 1.0), limit=2, seed=1, split="search", exact=True)
    parts = {
        name: ModelProblem(loaded, examples_of(make_task(name), request))
        for name in ("recall:8", "recall:12")
    }
    whole = MixtureProblem(parts)
    curve = np.full(loaded.n_layers, 1.1)
    expected = np.concatenate([part.score(curve) for part in parts.values()])
    assert np.array_equal(whole.score(curve), expected)
    assert whole.n_tokens == sum(part.n_tokens for part in parts.values())
    assert whole.positions == tuple(position for part in parts.values() for position in part.positions)
    assert whole.skipped == 0
    assert "recall:8: " in str(whole.sharing)
    hashes = {part.data_hash for part in parts.values()} | {whole.data_hash}
    assert len(hashes) == 3
    assert MixtureProblem({"recall:8": parts["recall:8"]}).data_hash != whole.data_hash
    assert isinstance(whole, Problem)
