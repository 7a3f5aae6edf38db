import numpy as np
import pytest

from lpes_evo import Search, SearchSettings
from lpes_evo.operators import CurveSpace
from lpes_evo.search import Evaluation, Surrogate, TrainingSet

TARGET = np.linspace(0.8, 1.2, 12)


def fitness(curves):
    return -((np.atleast_2d(curves) - TARGET) ** 2).mean(axis=1)


def drawn(n, seed=0):
    rng = np.random.default_rng(seed)
    return rng.uniform(0.5, 1.5, (n, 1)) + np.linspace(-0.2, 0.2, 12) * rng.uniform(-1, 1, (n, 1))


def test_it_finds_the_better_of_new_curves_from_few_that_are_known():
    known, new = drawn(30), drawn(200, seed=1)
    surrogate = Surrogate(known, fitness(known), np.zeros(30))
    chosen = new[surrogate.best_of(new)]
    assert (fitness(new) > fitness(chosen)).mean() < 0.05


def test_it_trusts_certain_values_and_explores_around_uncertain_ones():
    curves = np.ones((3, 12)) * np.array([[0.8], [1.0], [1.2]])
    values = np.array([0.0, 0.1, 1.0])
    candidates = np.ones((2, 12)) * np.array([[0.82], [1.18]])
    assert Surrogate(curves, values, np.zeros(3)).best_of(candidates) == 1
    # The value at 1.2 says nothing any more, so that a curve beside it is no better than it is unknown.
    vague = Surrogate(curves[:2], values[:2], np.zeros(2))
    assert Surrogate(curves, values, np.array([0, 0, 1e9])).best_of(candidates) == vague.best_of(candidates)


@pytest.mark.parametrize("n", [1, 4])
def test_equal_values_choose_the_first(n):
    curves = drawn(n)
    assert Surrogate(curves, np.ones(n), np.zeros(n)).best_of(drawn(5)) == 0


def test_a_choice_that_is_on_its_way_moves_the_next_one_away_from_it():
    known, new = drawn(8), drawn(200, seed=1)
    surrogate = Surrogate(known, fitness(known), np.zeros(8))
    chosen = []
    for _ in range(6):
        chosen.append(surrogate.expecting(new[chosen]).best_of(new))
    assert len(set(chosen)) == 6
    # Without that, all would be beside the first one.
    distances = np.sqrt(((new - new[chosen[0]]) ** 2).mean(axis=1))
    assert np.median(distances[chosen[1:]]) > 2 * np.sort(distances)[5]
    # What is expected is what the model says already: it learns nothing from it but where not to look.
    assert surrogate.best_of(new) == chosen[0]


def test_a_model_that_knows_nothing_expects_nothing():
    flat = Surrogate(drawn(3), np.ones(3), np.zeros(3))
    assert flat.expecting(drawn(2, seed=1)).best_of(drawn(5)) == 0


def test_a_raced_out_curve_counts_by_its_difference_to_its_reference():
    reference = (1.0, 2.0, 3.0, 4.0)
    curves = drawn(3)
    training_set = TrainingSet("mean")
    assert training_set.surrogate() is None
    for curve, value in zip(curves[:2], (2.0, 3.0), strict=True):
        training_set.add(curve.tobytes(), Evaluation((value,), (value,) * 4, 0.0), None)
    raced = Evaluation((), (0.5, 1.0), 0.0, "raced", scored=(0, 1))
    training_set.add(curves[2].tobytes(), raced, reference)
    training_set.add(drawn(1, seed=3)[0].tobytes(), Evaluation((), (), 0.0, "failed", error="x"), reference)
    variance = np.var([-0.5, -1.0], ddof=1) / 2 * (1 - 2 / 4)
    # A curve that comes again teaches nothing new.
    training_set.add(curves[0].tobytes(), Evaluation((2.0,), (2.0,) * 4, 0.0), None)
    expected = Surrogate(curves, np.array([2.0, 3.0, 2.5 - 0.75]), np.array([0, 0, variance]))
    new = drawn(50, seed=4)
    assert training_set.surrogate().best_of(new) == expected.best_of(new)
    of_minimum = TrainingSet("min")
    of_minimum.add(curves[2].tobytes(), raced, reference)
    assert of_minimum.surrogate() is None


def test_preselection_reaches_a_fitness_in_fewer_evaluations_on_most_seeds():
    space = CurveSpace(12, y_min=0.5, y_max=1.5, y_step=0.02, max_delta=0.5)

    def best(preselection, seed):
        settings = SearchSettings(
            population_size=12, offspring_size=8, generations=5, n_constants=5, preselection=preselection
        )
        search = Search(space, settings, seed=seed)
        while search.can_ask():
            curves = space.decode(search.ask())
            search.tell([Evaluation((value,), (value,), 0.0) for value in fitness(curves).tolist()])
        return search.best.fitness.values

    assert sum(best(16, seed) >= best(1, seed) for seed in range(10)) >= 8
