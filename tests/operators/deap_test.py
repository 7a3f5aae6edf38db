import random
import subprocess
import sys
import warnings

import numpy as np
import pytest
from deap import algorithms, base, tools

from lpes_evo.operators import BezierGenome, CurveError, CurveSpace

TARGET = 1.0 + 0.3 * np.sin(np.arange(12) / 3)


@pytest.fixture
def space():
    return CurveSpace(12, 4)


@pytest.fixture
def toolbox(space):
    toolbox = base.Toolbox()
    space.register(toolbox, weights=(-1.0,))
    toolbox.register("evaluate", lambda genome: (float(((space.decode([genome])[0] - TARGET) ** 2).mean()),))
    toolbox.register("select", tools.selTournament, tournsize=3)
    random.seed(1)
    return toolbox


@pytest.fixture
def statistics():
    statistics = tools.Statistics(lambda genome: genome.fitness.values)
    statistics.register("best", np.min)
    statistics.register("mean", np.mean)
    return statistics


ALGORITHMS = {
    "eaSimple": lambda population, toolbox, **rest: algorithms.eaSimple(
        population, toolbox, 0.5, 0.4, 15, **rest
    ),
    "eaMuPlusLambda": lambda population, toolbox, **rest: algorithms.eaMuPlusLambda(
        population, toolbox, 20, 40, 0.5, 0.5, 15, **rest
    ),
    "eaMuCommaLambda": lambda population, toolbox, **rest: algorithms.eaMuCommaLambda(
        population, toolbox, 20, 40, 0.5, 0.5, 15, **rest
    ),
}


@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS.keys())
def test_the_algorithms_of_deap_run_and_improve(space, toolbox, statistics, algorithm):
    hall_of_fame = tools.HallOfFame(5)
    if algorithm is not ALGORITHMS["eaSimple"]:
        # These two do not clone what they select, and a tournament draws with replacement.
        toolbox.register("select", tools.selBest)
    population, logbook = algorithm(
        toolbox.population(n=20), toolbox, stats=statistics, halloffame=hall_of_fame, verbose=False
    )
    assert isinstance(logbook, tools.Logbook)
    assert len(logbook) == 16
    assert hall_of_fame[0].fitness.values[0] == min(logbook.select("best"))
    assert hall_of_fame[0].fitness.values[0] < 0.2 * logbook[0]["best"]
    assert len({id(genome) for genome in population}) == len(population)
    assert len({genome.key for genome in hall_of_fame}) == 5
    for genome in [*population, *hall_of_fame]:
        assert type(genome) is BezierGenome
        assert genome.fitness.weights == (-1.0,)
        assert genome.fitness.values == toolbox.evaluate(genome)
        space.check(genome)
    kept = [list(genome) for genome in hall_of_fame]
    for genome in population:
        genome[0] = (0.0, -1.0)
    assert list(hall_of_fame) == kept


def test_nsga2_finds_a_front_of_two_objectives(space):
    toolbox = base.Toolbox()
    space.register(toolbox, weights=(-1.0, 1.0))

    def evaluate(genome):
        values = space.decode([genome])[0]
        return float(((values - TARGET) ** 2).mean()), float(values.min())

    toolbox.register("evaluate", evaluate)
    toolbox.register("select", tools.selNSGA2)
    random.seed(2)
    front = tools.ParetoFront()
    population, _ = algorithms.eaMuPlusLambda(
        toolbox.population(n=24), toolbox, 24, 24, 0.4, 0.5, 10, halloffame=front, verbose=False
    )
    assert len(front) > 5
    assert not any(one.fitness.dominates(other.fitness) for one in front for other in front)
    parents = tools.selTournamentDCD(tools.selNSGA2(population, 24), 24)
    assert all(hasattr(toolbox.clone(parent).fitness, "crowding_dist") for parent in parents)


def test_history_records_the_genealogy(toolbox):
    history = tools.History()
    toolbox.decorate("mate", history.decorator)
    toolbox.decorate("mutate", history.decorator)
    population = toolbox.population(n=10)
    history.update(population)
    population, _ = algorithms.eaSimple(population, toolbox, 0.5, 0.5, 3, verbose=False)
    assert len(history.genealogy_history) > 10
    genealogy = history.getGenealogy(population[0])
    assert population[0].history_index in genealogy
    assert all(type(genome) is BezierGenome for genome in history.genealogy_history.values())


def test_a_loop_of_deap_is_reproduced_by_random_seed(toolbox):
    def run():
        random.seed(3)
        population, _ = algorithms.eaSimple(toolbox.population(n=20), toolbox, 0.5, 0.4, 5, verbose=False)
        return population

    assert run() == run()


def test_searches_in_opposite_directions_coexist_without_warnings(space):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        accuracy, perplexity = base.Toolbox(), base.Toolbox()
        space.register(accuracy, weights=(1.0,))
        first = accuracy.population(n=2)
        space.register(perplexity, weights=(-1.0,))
        second = perplexity.population(n=2)
        for population in (first, second):
            for value, genome in enumerate(population):
                genome.fitness.values = (float(value),)
        assert tools.selBest(first, 1)[0] is first[1]
        assert tools.selBest(second, 1)[0] is second[0]
        assert tools.selBest([accuracy.clone(genome) for genome in second], 1)[0] == second[0]


def test_a_failed_evaluation_stops_the_loop_instead_of_winning_it(toolbox):
    toolbox.register("evaluate", lambda genome: (float("nan"),))
    with pytest.raises(
        CurveError, match="Expected every fitness value to be a finite real number, but got nan"
    ):
        algorithms.eaSimple(toolbox.population(n=4), toolbox, 0.5, 0.4, 1, verbose=False)


def test_the_example_of_the_package_runs():
    import lpes_evo.operators

    example = lpes_evo.operators.__doc__.split("::\n\n")[1].split("\n\nRandomness")[0]
    lines = [line[4:] for line in example.splitlines()]
    names = {}
    exec("\n".join(lines), names)  # noqa: S102
    assert len(names["population"]) == 50


def test_importing_the_operators_loads_no_model_library(tmp_path):
    code = (
        "import sys, lpes_evo.operators as operators\n"
        "heavy = {'torch', 'transformers', 'matplotlib', 'pydantic'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "assert operators.__all__ == sorted(operators.__all__)\n"
        "assert all(hasattr(operators, name) for name in operators.__all__)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
