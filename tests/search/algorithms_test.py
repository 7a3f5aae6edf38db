"""Algorithms of a user: a class that is passed to a search, or named in the settings by its file."""

import copy
import inspect
import random

import numpy as np
import pytest

from lpes_evo.config import ALGORITHM_NAMES, SearchSettings
from lpes_evo.errors import ConfigError, CurveError
from lpes_evo.execution import Evaluator, drive
from lpes_evo.operators import BezierGenome, CurveSpace, mut_point
from lpes_evo.problems import TargetCurveProblem
from lpes_evo.search import (
    ALGORITHMS,
    Algorithm,
    Candidate,
    Evaluation,
    GradientProbe,
    Search,
    curve_keys,
    find_algorithm,
)
from lpes_evo.storage import Journal
from lpes_evo.workers import DevicePool
from sheet import N_LAYERS, Sheet, Sloped

SPACE = CurveSpace(9, y_min=0.5, y_max=1.5, y_step=0.05, max_delta=0.5)
SETTINGS = SearchSettings(population_size=8, n_constants=3, offspring_size=6, generations=10)
BEND = TargetCurveProblem(1 - 0.3 * np.sin(np.linspace(0, 3, 9)))


class HillClimber(Algorithm):
    """Moves one control point of the best genome so far."""

    def propose(self, progress):
        if not progress.population:
            yield from map(Candidate, self.starting_points)
            return
        for _ in range(self.settings.offspring_size):
            child = copy.copy(progress.population[0])
            mut_point(child, space=self.space)
            yield Candidate(child, progress.reference)


FILE = (
    """
import copy
from lpes_evo.operators import mut_point
from lpes_evo.search import Algorithm, Candidate, GradientProbe

"""
    + inspect.getsource(HillClimber)
    + """

class Slope(Algorithm):
    takes_gradients = True
    slopes = []

    def propose(self, progress):
        yield from map(Candidate, self.starting_points) if not progress.n_candidates else []
        if progress.n_candidates and not self.slopes:
            yield GradientProbe([1.0] * self.space.n_layers, 0)

    def observe(self, request, evaluation):
        if isinstance(request, GradientProbe):
            self.slopes.append(evaluation.gradient)

    def finished(self):
        return "the slope is known" if self.slopes else None

class Broken(Algorithm):
    def propose(self, progress):
        return 1 / 0

class Leaving(Algorithm):
    def propose(self, progress):
        raise SystemExit(3)

class NoAlgorithm:
    pass
"""
)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "climber.py"
    path.write_text(FILE)
    return path


def searched(algorithm, settings=SETTINGS, seed=0, source=BEND, space=SPACE, journal=None):
    search = Search(space, settings, seed=seed, algorithm=algorithm)
    drive(search, Evaluator(source, space, settings), journal)
    return search


def outcome(search):
    return [evaluation.scores for evaluation in search.evaluations()], list(search.logbook)


def test_every_name_of_the_settings_is_an_algorithm():
    assert tuple(ALGORITHMS) == ALGORITHM_NAMES
    assert all(find_algorithm(name) is ALGORITHMS[name] for name in ALGORITHM_NAMES)


@pytest.mark.parametrize("racing", [True, False])
def test_a_hill_climber_finds_more_than_its_starting_points(racing):
    settings = SETTINGS.model_copy(update={"racing": racing})
    search = searched(HillClimber, settings)
    first = search.evaluations()[:3]
    assert search.best.fitness.values > max(evaluation.values for evaluation in first)
    assert search.stop() == "all 10 generations are done"
    sizes = [record["evaluations"] + record["cached"] for record in search.logbook]
    assert sizes == [3] + [6] * 10
    assert 0.5 <= search.best_constant() <= 1.5


def test_a_search_with_an_algorithm_of_a_user_is_a_function_of_its_seed_and_leaves_the_generators_alone():
    first = outcome(searched(HillClimber))
    random.seed(0)
    expected = random.Random(0).random()
    assert outcome(searched(HillClimber)) == first
    assert random.random() == expected
    assert outcome(searched(HillClimber, seed=1)) != first


def test_what_an_algorithm_draws_while_it_observes_is_a_function_of_the_seed():
    class Drawing(HillClimber):
        def observe(self, request, evaluation):
            drawn.append((random.random(), np.random.random()))

    draws = []
    for seed in (0, 0, 1):
        drawn = []
        random.seed(None)
        searched(Drawing, seed=seed)
        draws.append(drawn)
    assert draws[0] == draws[1] != draws[2]
    assert len(set(draws[0])) == len(draws[0])


def test_an_algorithm_of_a_user_resumes_from_a_journal_and_runs_on_any_number_of_workers(tmp_path):
    space = CurveSpace(N_LAYERS)
    straight = outcome(searched(HillClimber, source=Sheet(), space=space))
    path = tmp_path / "journal.jsonl"
    with Journal(path, {}) as journal:
        assert outcome(searched(HillClimber, source=Sheet(), space=space, journal=journal)) == straight
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:20]))
    with Journal(path, {}) as journal, DevicePool("cpu:2", lambda _device: Sheet()) as pool:
        assert outcome(searched(HillClimber, source=pool, space=space, journal=journal)) == straight


def test_an_algorithm_is_named_in_the_settings_by_its_file(file):
    settings = SETTINGS.model_copy(update={"algorithm": f"{file}:HillClimber"})
    search = searched(None, SearchSettings(**settings.model_dump()))
    assert type(search.algorithm).__name__ == "HillClimber"
    assert outcome(search) == outcome(searched(HillClimber))


def test_an_algorithm_of_a_user_takes_gradients_and_says_when_it_has_finished(file):
    settings = SearchSettings(**SETTINGS.model_dump() | {"algorithm": f"{file}:Slope"})
    search = searched(None, settings, source=Sloped(), space=CurveSpace(N_LAYERS))
    assert search.stop() == "the slope is known"
    assert [len(slope) for slope in search.algorithm.slopes] == [N_LAYERS]
    assert sum(record["gradients"] for record in search.logbook) == 1
    with pytest.raises(ConfigError, match="Expected a problem with gradients"):
        Evaluator(Sheet(), CurveSpace(N_LAYERS), settings)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere.py:HillClimber", "there is no file nowhere.py"),
        ("{file}:NoAlgorithm", "to define the Algorithm class NoAlgorithm, but it defines HillClimber, Slope, Broken, "
         "Leaving"),
        ("{file}:Broken", "Expected the algorithm .*:Broken to propose candidates, but it raised ZeroDivisionError"),
        ("{file}:Leaving", "Expected the algorithm .*:Leaving to propose candidates, but it raised SystemExit: 3"),
    ],
)  # fmt: skip
def test_a_file_without_the_algorithm_is_named(file, name, message):
    settings = SearchSettings(algorithm=name.format(file=file))
    with pytest.raises(ConfigError, match=message):
        Search(SPACE, settings).ask()


@pytest.mark.parametrize(
    "name", ["best", "climber.py", "climber.py:", "climber.py:two words", ":HillClimber"]
)
def test_a_name_that_is_no_algorithm_is_refused_by_the_settings(name):
    with pytest.raises(ConfigError, match=r"search\.algorithm|algorithm, but got .*FILE\.py:CLASS"):
        SearchSettings(algorithm=name)


@pytest.mark.parametrize("algorithm", ["ga", BEND, int, lambda *_, **__: 3])
def test_what_is_no_algorithm_is_refused(algorithm):
    with pytest.raises(ConfigError, match=r"Expected algorithm to .* lpes_evo\.search\.Algorithm, but got"):
        Search(SPACE, SETTINGS, algorithm=algorithm)


def proposing(*requests):
    class Given(Algorithm):
        def propose(self, progress):
            return [] if progress.n_candidates else requests

    return Given


def test_a_genome_that_is_not_wrapped_is_refused_with_the_remedy():
    with pytest.raises(
        ConfigError, match=r"Candidate or GradientProbe objects.* Wrap each genome: Candidate"
    ):
        Search(SPACE, SETTINGS, algorithm=proposing(BezierGenome([(0, 1.0), (8, 1.0)]))).ask()


def test_a_genome_that_is_not_feasible_is_refused():
    outside = BezierGenome([(0, 1.0), (3, 1.0), (6, 1.0), (8, 9.0)])
    with pytest.raises(CurveError, match=r"9\.0"):
        Search(SPACE, SETTINGS, algorithm=proposing(Candidate(outside))).ask()


def test_an_algorithm_for_one_objective_refuses_several():
    with pytest.raises(ConfigError, match="n_objectives = 1 for the algorithm 'HillClimber', but got 2"):
        Search(SPACE, SETTINGS, n_objectives=2, algorithm=HillClimber)


def test_a_search_ends_when_its_algorithm_proposes_nothing_more():
    genome = BezierGenome([(0, 1.0), (3, 1.1), (6, 1.2), (8, 1.3)])
    search = Search(SPACE, SETTINGS, algorithm=proposing(Candidate(genome)))
    drive(search, Evaluator(BEND, SPACE, SETTINGS))
    assert len(search.evaluations()) == 1
    assert search.stop() == "the algorithm Given has nothing more to propose"
    assert len(search.logbook) == 1


def test_a_search_ends_when_its_algorithm_asks_for_one_gradient_again_and_again():
    class Stuck(Algorithm):
        def propose(self, progress):
            yield from [GradientProbe(np.ones(9), 0), GradientProbe(np.ones(9), 0)]

    search = Search(SPACE, SETTINGS, algorithm=Stuck)
    for _ in range(100):
        if search.stop():
            break
        search.tell([Evaluation((), (), 0.0, "failed", "no") for _ in search.ask()])
    assert search.stop() == "no new curve was found among 19 candidates"


def test_a_genome_that_its_algorithm_changes_later_is_not_changed_in_the_search():
    genome = BezierGenome([(0, 1.0), (3, 1.1), (6, 1.2), (8, 1.3)])
    search = Search(SPACE, SETTINGS, algorithm=proposing(Candidate(genome)))
    (asked,) = search.ask()
    key = genome.key
    genome[0] = asked[0] = (0.0, 99.0)
    search.tell([Evaluation((1.0,), (1.0,), 0.0)])
    assert search.best.key == key


def test_candidates_with_and_without_a_race_and_gradients_are_asked_for_apart():
    genomes = [BezierGenome([(0, y), (3, y), (6, y), (8, y)]) for y in (0.8, 0.9, 1.1)]
    reference = (0.0, 0.0)
    mixed = proposing(
        Candidate(genomes[0]),
        Candidate(genomes[1], reference),
        Candidate(genomes[1]),
        GradientProbe(np.ones(9), 0),
        Candidate(genomes[2], reference),
    )
    search = Search(SPACE, SETTINGS, algorithm=mixed)
    asked = []
    while search.can_ask():
        requests = search.ask()
        asked.append((len(requests), search.reference()))
        search.tell(
            [
                Evaluation((), (0.0,), 0.0, "sampled", scored=(0,), gradient=(0.0,) * 9)
                if isinstance(request, GradientProbe)
                else Evaluation((1.0,), (1.0,), 0.0)
                for request in requests
            ]
        )
    assert asked == [(1, None), (1, reference), (1, None), (1, reference), (0, reference)]
    assert search.logbook[0]["cached"] == 1


def test_an_algorithm_sees_its_own_proposals_and_every_evaluation_in_order():
    seen, observed = [], []

    class Watching(HillClimber):
        def propose(self, progress):
            for candidate in super().propose(progress):
                yield candidate
                (curve,) = curve_keys(self.space, [candidate.genome])
                seen.append(curve in progress.known and progress.n_candidates > 0)
                assert set(progress.pending) <= progress.known

        def observe(self, request, evaluation):
            observed.append(request)

    search = searched(Watching)
    assert all(seen)
    assert len(observed) == sum(record["evaluations"] + record["cached"] for record in search.logbook)


def test_an_algorithm_without_generations_has_so_many_candidates_on_their_way():
    class Steady(HillClimber):
        shares_passes = False

        @property
        def in_flight(self):
            return 2

        def propose(self, progress):
            if progress.n_candidates < len(self.starting_points):
                yield Candidate(self.starting_points[progress.n_candidates])
            else:
                yield from super().propose(progress)

    search = Search(SPACE, SETTINGS, algorithm=Steady)
    genomes = search.ask()
    assert (len(genomes), search.outstanding, search.ask()) == (2, 2, [])
    search.tell([Evaluation((0.0,), (0.0,), 0.0)])
    assert len(search.ask()) == 1
    search = searched(Steady, SETTINGS.model_copy(update={"racing": False}))
    assert search.stop() == "all 10 generations are done"


def test_a_handler_of_a_signal_that_exits_is_not_taken_for_a_fault_of_an_algorithm(monkeypatch):
    def ended_by_a_signal(*_arguments):
        raise SystemExit(143)

    search = Search(CurveSpace(9), SearchSettings(), seed=0)
    monkeypatch.setattr("lpes_evo.search._genetic.GeneticAlgorithm.propose", ended_by_a_signal)
    with pytest.raises(SystemExit):
        search.ask()
