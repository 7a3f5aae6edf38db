"""The order of asking and telling, and who is raced against whom."""

import random

import numpy as np
import pytest

from lpes_evo.config import SearchSettings
from lpes_evo.errors import ConfigError, SearchOrderError
from lpes_evo.operators import CurveSpace
from lpes_evo.search import Evaluation, Search

N_LAYERS = 12
SETTINGS = SearchSettings(
    algorithm="steady-state",
    population_size=12,
    offspring_size=8,
    generations=6,
    n_constants=5,
    in_flight=5,
)
GENERATIONAL = SETTINGS.model_copy(update={"algorithm": "ga"})
SPACE = CurveSpace(N_LAYERS, y_min=0.5, y_max=1.5, y_step=0.05, max_delta=0.5)
TARGET = 1 - 0.3 * np.linspace(0, 1, N_LAYERS) ** 2


def scored(genome, space=SPACE, target=TARGET):
    errors = -((space.decode([genome])[0] - target) ** 2)
    return Evaluation((float(errors.mean()),), tuple(errors.tolist()), 0.0)


def troubled(genome):
    """Score a genome, or fail or race it out by a rule that looks at the genome alone."""
    lot = random.Random(genome.key).random()
    if lot < 0.1:
        return Evaluation((), (), 0.0, "failed", "no luck")
    return Evaluation((), (-1.0,), 0.0, "raced", scored=(0,)) if lot < 0.3 else scored(genome)


def run(search, evaluate=scored, n_workers=1, seed=0):
    """Drive a search with workers that finish in random order; return the keys in the order of asking."""
    shuffler = random.Random(seed)
    genomes, done, n_told = [], {}, 0
    while search.can_ask() or search.outstanding:
        while search.can_ask() and len(genomes) - len(done) < n_workers:
            genomes += search.ask(n_workers - (len(genomes) - len(done)))
        busy = [index for index in range(len(genomes)) if index not in done]
        if busy:
            index = shuffler.choice(busy)
            done[index] = evaluate(genomes[index])
        ready = []
        while n_told in done:
            ready.append(done[n_told])
            n_told += 1
        search.tell(ready)
    return [genome.key for genome in genomes]


def history(search):
    return [(genome.key, genome.fitness.values) for genome in search.population], list(search.logbook)


@pytest.mark.parametrize("evaluate", [scored, troubled])
def test_a_steady_state_search_is_the_same_for_any_number_of_workers_and_any_order_of_completion(evaluate):
    first = Search(SPACE, SETTINGS, seed=3)
    keys = run(first, evaluate)
    assert len(keys) == len(set(keys)) > 50
    for n_workers in (2, 3, 5, 9):
        search = Search(SPACE, SETTINGS, seed=3)
        assert run(search, evaluate, n_workers, seed=n_workers) == keys
        assert history(search) == history(first)
    assert run(Search(SPACE, SETTINGS, seed=4), evaluate) != keys


def test_a_candidate_is_bred_from_the_results_up_to_the_window_before_it_and_no_others():
    def asked(changed=None):
        search, keys, given = Search(SPACE, SETTINGS), [], []
        while search.can_ask() or search.outstanding:
            while search.can_ask():
                given += search.ask(1)
            number = len(keys)
            keys.append(given[number].key)
            search.tell([Evaluation((9.0,), (9.0,), 0.0) if number == changed else scored(given[number])])
        return keys

    keys = asked()
    lags = []
    for changed in range(13, 45, 4):
        other = asked(changed)
        lags += [number - changed for number, key in enumerate(keys) if other[number] != key][:1]
    assert min(lags) == SETTINGS.in_flight


def test_the_window_bounds_what_is_outstanding():
    search = Search(SPACE, SETTINGS)
    genomes = search.ask(2) + search.ask()
    assert (len(genomes), search.outstanding) == (5, 5)
    assert (search.can_ask(), search.ask(), search.stop()) == (False, [], None)
    search.tell([scored(genome) for genome in genomes[:3]])
    assert (search.can_ask(), search.outstanding) == (True, 2)
    assert (len(search.ask()), search.outstanding) == (3, 5)
    with pytest.raises(SearchOrderError, match="at most 5 evaluations.* but got 6"):
        search.tell([scored(genomes[0])] * 6)
    assert search.outstanding == 5


def test_a_steady_state_search_counts_its_rows_as_generations_and_ends_after_its_budget():
    search = Search(SPACE, SETTINGS)
    keys = run(search, troubled, 4)
    assert [record["generation"] for record in search.logbook] == list(range(SETTINGS.generations + 1))
    sizes = [record["evaluations"] + record["cached"] for record in search.logbook]
    assert sizes == [SETTINGS.population_size] + [SETTINGS.offspring_size] * SETTINGS.generations
    for status in ("failed", "raced"):
        counted = sum(record[status] for record in search.logbook)
        assert counted == sum(evaluation.status == status for evaluation in search.evaluations()) > 0
    assert len(search.evaluations()) == len(keys)
    assert "all 6 generations are done" in search.stop()
    with pytest.raises(SearchOrderError, match="it has stopped"):
        search.ask()


def test_the_steady_state_learns_more_than_random_search_at_equal_evaluations():
    def best(algorithm, seed):
        settings = SETTINGS.model_copy(update={"algorithm": algorithm, "generations": 10})
        search = Search(SPACE, settings, seed=seed)
        run(search, n_workers=4)
        return search.best.fitness.values

    wins = sum(best("steady-state", seed) >= best("random", seed) for seed in range(4))
    assert wins >= 3


def test_a_used_up_grid_and_a_window_beyond_the_population_end_a_steady_state_search():
    grid = CurveSpace(2, 2, y_min=0.8, y_max=1.2, y_step=0.1, max_delta=0.4)
    settings = SearchSettings(
        algorithm="steady-state",
        population_size=4,
        offspring_size=8,
        generations=40,
        n_constants=3,
        in_flight=16,
    )
    search = Search(grid, settings)
    keys = run(search, lambda genome: scored(genome, grid, np.ones(2)), 16)
    curves = [grid.decode([genome])[0].round(9).tobytes() for genome in search.population]
    assert len(set(curves)) == 4
    assert 4 < len(keys) <= grid.n_curves == 25
    assert sum(record["evaluations"] for record in search.logbook) == len(keys)
    assert "curves of the space are evaluated" in search.stop() or "no new curve" in search.stop()


@pytest.mark.parametrize("settings", [SETTINGS, GENERATIONAL])
def test_a_search_of_which_nothing_succeeds_ends(settings):
    search = Search(SPACE, settings)
    keys = run(search, lambda _: Evaluation((), (), 0.0, "failed", "no"), 3)
    assert search.stop() == "every evaluation failed"
    assert len(keys) <= settings.population_size + settings.in_flight
    assert not search.population


def test_a_generation_may_be_told_in_parts_and_is_selected_when_it_is_complete():
    whole, parts = Search(SPACE, GENERATIONAL), Search(SPACE, GENERATIONAL)
    while not whole.stop():
        whole.tell([troubled(genome) for genome in whole.ask()])
    assert run(parts, troubled, 3)
    assert history(parts) == history(whole)
    search = Search(SPACE, GENERATIONAL.model_copy(update={"racing": False}))
    genomes = search.ask(1)
    assert len(genomes) == GENERATIONAL.population_size
    search.tell([scored(genome) for genome in genomes[:-1]])
    assert not search.population
    assert not search.can_ask()
    with pytest.raises(SearchOrderError, match="but 1 are missing. Tell the evaluations first"):
        search.ask()
    search.tell([scored(genomes[-1])])
    assert len(search.population) == GENERATIONAL.population_size
    assert search.can_ask()


def test_raced_out_evaluations_are_recorded_and_never_become_parents_or_results():
    raced = set()

    def evaluate(genome):
        evaluation = troubled(genome)
        if evaluation.status == "raced":
            raced.add(genome.key)
        return evaluation

    for settings in (SETTINGS, GENERATIONAL):
        search = Search(SPACE, settings)
        run(search, evaluate, 2)
        assert len(raced) > 5
        assert not raced & {genome.key for genome in [*search.population, *search.hall_of_fame]}
    search = Search(SPACE, GENERATIONAL)
    raced_out = Evaluation((), (-1.0,), 0.0, "raced", scored=(0,))
    genomes = search.ask()
    is_constant = [len({y for _, y in genome}) == 1 for genome in genomes]
    search.tell(
        [
            raced_out if constant else scored(genome)
            for genome, constant in zip(genomes, is_constant, strict=True)
        ]
    )
    assert search.best_constant() is None
    assert len(search.population) == len(genomes) - sum(is_constant) < len(genomes)


@pytest.mark.parametrize(("against", "rank"), [("best", 0), ("median", 6), ("worst", 11)])
def test_the_reference_is_the_scores_of_the_parent_at_the_chosen_rank(against, rank):
    search = Search(SPACE, GENERATIONAL.model_copy(update={"race_against": against}))
    genomes = search.ask()
    assert search.reference() is None
    search.tell([scored(genome) for genome in genomes])
    search.tell([scored(genome) for genome in search.ask()])
    search.ask()
    assert search.reference() == scored(search.population[rank]).scores


def test_with_racing_the_starting_points_come_first_so_that_the_rest_of_the_population_is_raced():
    search = Search(SPACE, GENERATIONAL)
    first = search.ask()
    assert search.reference() is None
    assert all(len({y for _, y in genome}) == 1 for genome in first)
    search.tell([scored(genome) for genome in first])
    assert len(search.logbook) == 0
    rest = search.ask()
    assert search.generation == 0
    assert search.reference() == max((scored(genome) for genome in first), key=lambda one: one.values).scores
    assert len(first) + len(rest) == GENERATIONAL.population_size
    search.tell([scored(genome) for genome in rest])
    assert [record["evaluations"] for record in search.logbook] == [GENERATIONAL.population_size]


def test_the_genomes_of_one_steady_state_ask_share_a_reference_made_when_they_were():
    search = Search(SPACE, SETTINGS.model_copy(update={"race_against": "best"}))
    given, references = [], []
    for _ in range(40):
        while search.can_ask():
            new = search.ask()
            given += new
            references += [search.reference()] * len(new)
        search.tell([scored(given[len(search.evaluations())])])
    assert references[: SETTINGS.in_flight] == [None] * SETTINGS.in_flight
    for number in range(SETTINGS.in_flight, len(references)):
        told = [scored(genome) for genome in given[: number - SETTINGS.in_flight + 1]]
        assert references[number] == max(told, key=lambda evaluation: evaluation.values).scores


def test_without_racing_there_is_no_reference():
    for settings in (SETTINGS, GENERATIONAL):
        search = Search(SPACE, settings.model_copy(update={"racing": False}))
        while not search.stop():
            genomes = search.ask()
            assert search.reference() is None
            search.tell([scored(genome) for genome in genomes])


def test_the_reference_of_several_objectives_is_a_member_of_the_population():
    settings = GENERATIONAL.model_copy(update={"algorithm": "nsga2", "race_against": "best"})
    search = Search(SPACE, settings, n_objectives=2)

    def halves(genome):
        scores = scored(genome).scores
        return Evaluation((float(np.mean(scores[:6])), float(np.mean(scores[6:]))), scores, 0.0)

    for _ in range(3):
        search.tell([halves(genome) for genome in search.ask()])
    search.ask()
    best = max(search.population, key=lambda genome: np.mean(genome.fitness.values))
    assert search.reference() == halves(best).scores


def test_a_steady_state_search_has_one_objective():
    with pytest.raises(ConfigError, match="n_objectives = 1 for the algorithm 'steady-state', but got 3"):
        Search(SPACE, SETTINGS, n_objectives=3)
