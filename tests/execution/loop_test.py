"""The loop of a search: any number of workers, a stop at any moment, failures."""

import dataclasses
import itertools
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

from lpes_evo.config import SearchSettings
from lpes_evo.errors import ConfigError, EvaluationError, JournalError
from lpes_evo.execution import Evaluator, drive
from lpes_evo.operators import BezierGenome, CurveSpace
from lpes_evo.problems import Problem
from lpes_evo.runs import history_table
from lpes_evo.search import Search
from lpes_evo.storage import Journal
from lpes_evo.workers import DevicePool, LocalPool
from sheet import N_LAYERS, Faulty, Log, Sheet, name_of

SPACE = CurveSpace(N_LAYERS, y_min=0.5, y_max=1.5, y_step=0.05, max_delta=0.5)
SMALL = {"population_size": 8, "offspring_size": 5, "generations": 3, "n_constants": 3, "in_flight": 5}
ALGORITHMS = ("ga", "nsga2", "random", "steady-state")


def settings_of(algorithm="ga", **changes):
    return SearchSettings(algorithm=algorithm, **SMALL | changes)


def searched(source, settings, path=None, seed=3, **options):
    """Run a search and return all that it found, its history as bytes, and its journal without times and order."""
    search = Search(SPACE, settings, seed=seed, n_objectives=3 if settings.algorithm == "nsga2" else 1)
    if settings.algorithm != "steady-state" and getattr(source, "n_fit", 2) == 2:
        # As many as fit would be one alone in generations this small.
        options = {"n_candidates": 2} | options
    evaluator = Evaluator(source, SPACE, settings, **options)
    if path is None:
        drive(search, evaluator)
        return outcome(search)
    with Journal(path, {}) as journal:
        drive(search, evaluator, journal)
        return *outcome(search), records(journal)


def outcome(search):
    population = [(genome.key, genome.fitness.values) for genome in search.population]
    told = [dataclasses.replace(evaluation, seconds=0.0) for evaluation in search.evaluations()]
    return history_table(search).encode(), population, told, search.stop()


def records(journal):
    return {record["key"]: record | {"seconds": 0} for record in journal}


# Any number of workers


@pytest.fixture(scope="module", params=[1, 2, 4])
def workers(request):
    """A pool of CPU workers whose passes take times that depend on the curve."""
    with DevicePool(f"cpu:{request.param}", lambda _device: Sheet(n_fit=2, delay=0.004)) as pool:
        all_at_work(pool)
        yield pool


def all_at_work(pool):
    """Return once every worker has done something."""
    while not all(usage.n_done for usage in pool.usage()):
        pool.map(lambda _problem, _item: time.sleep(0.05), range(pool.n_workers))


_expected = {}


@pytest.mark.parametrize("racing", [True, False])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_number_of_workers_does_not_show_in_the_results(workers, tmp_path, algorithm, racing):
    settings = settings_of(algorithm, racing=racing)
    if (algorithm, racing) not in _expected:
        _expected[algorithm, racing] = searched(Sheet(n_fit=2), settings, tmp_path / "expected.jsonl")
    expected = _expected[algorithm, racing]
    assert len(expected[2]) > 15
    if racing and algorithm != "nsga2":
        assert {evaluation.status for evaluation in expected[2]} == {"ok", "raced"}
    assert searched(workers, settings, tmp_path / "journal.jsonl") == expected


def test_a_long_evaluation_holds_up_no_other():
    # A5: with a barrier after every pair, each of the two workers would do four of the eight.
    class Uneven(Sheet):
        def score_many(self, scales, example_ids=None):
            time.sleep(2.0 if (scales == 1.0).all() else 0.25)
            return super().score_many(scales, example_ids)

    settings = settings_of(population_size=8, n_constants=5, generations=0, racing=False)
    with DevicePool("cpu:2", lambda _device: Uneven()) as pool:
        all_at_work(pool)
        before = [usage.n_done for usage in pool.usage()]
        search = Search(SPACE, settings, seed=3)
        evaluator = Evaluator(pool, SPACE, settings)
        drive(search, evaluator)
        n_done = [usage.n_done - former for usage, former in zip(pool.usage(), before, strict=True)]
        log = evaluator.account(pool.usage())
    # Two more pieces of work say what the problem is.
    assert sum(n_done) == 8 + 2
    assert min(n_done) <= 3
    assert sum("was busy" in line for line in log) == 2
    assert [evaluation.scores for evaluation in search.evaluations()] == [
        evaluation.scores for evaluation in searched(Sheet(), settings)[2]
    ]


# A stop at any moment


class Stopped(Sheet):
    """Is stopped in a pass; notes nothing of it."""

    limit = 0

    def score_many(self, scales, example_ids=None):
        if len(self.calls) == self.limit:
            raise KeyboardInterrupt
        return super().score_many(scales, example_ids)


def passes(problem):
    return [(name_of(curve), ids[0]) for scales, ids in problem.calls for curve in scales]


@pytest.mark.parametrize("n_fit", [pytest.param(1, marks=pytest.mark.slow), 3])
@pytest.mark.parametrize("racing", [True, False])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_search_stopped_in_any_pass_resumes_to_the_same_and_repeats_only_what_was_in_flight(
    tmp_path, algorithm, racing, n_fit
):
    settings = settings_of(algorithm, racing=racing, generations=2, race_block=4)
    straight = Sheet(n_fit=n_fit)
    expected = searched(straight, settings, tmp_path / "straight.jsonl")
    assert [line.split(b",")[0] for line in expected[0].splitlines()[1:]] == [b"0", b"1", b"2"]
    step = 1 if racing and n_fit == 1 and algorithm in ("ga", "steady-state") else 5
    for limit in range(0, len(straight.calls), step):
        path = tmp_path / f"{limit}.jsonl"
        first, second = Stopped(n_fit=n_fit), Sheet(n_fit=n_fit)
        first.limit = limit
        with pytest.raises(KeyboardInterrupt):
            searched(first, settings, path)
        with Journal(path, {}) as journal:
            kept = {name_of(SPACE.decode(np.array([record["control_points"]]))[0]) for record in journal}
        assert searched(second, settings, path) == expected
        again = passes(second)
        assert not kept & {curve for curve, _ in again}
        assert set(passes(first)) | set(again) == set(passes(straight))
        # One group at a time was in flight, and at most the first of its two blocks was done.
        assert len(passes(first)) + len(again) <= len(passes(straight)) + n_fit


def test_a_journal_that_ends_anywhere_is_replayed_to_the_same_history(tmp_path):
    # A3
    settings = settings_of("steady-state", generations=6)
    expected = searched(Sheet(), settings, tmp_path / "straight.jsonl")
    lines = (tmp_path / "straight.jsonl").read_bytes().splitlines(keepends=True)
    assert [line.split(b",")[0] for line in expected[0].splitlines()[1:]] == [b"%d" % n for n in range(7)]
    for n_lines in range(1, len(lines), 3):
        path = tmp_path / f"{n_lines}.jsonl"
        path.write_bytes(b"".join(lines[:n_lines]) + lines[n_lines][:-20])
        problem = Sheet()
        assert searched(problem, settings, path) == expected
        assert len({curve for curve, _ in passes(problem)}) == len(lines) - n_lines


DRIVER = Path(__file__).parents[1] / "support" / "chaos_run.py"


def is_running(process):
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are watched through /proc")
def test_after_sigterm_with_5_of_16_scored_only_the_other_11_are(tmp_path):
    # A4
    command = [sys.executable, DRIVER, tmp_path, "--devices", "cpu:2", "--settings"]
    command += ['{"population_size": 16, "generations": 0, "n_constants": 5, "racing": false}']
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([*command, "--hold-from", "5"], cwd=tmp_path, env=environment)
    deadline = time.monotonic() + 120
    log, journal = Log(tmp_path / "events.jsonl"), tmp_path / "journal.jsonl"
    while not journal.exists() or journal.read_bytes().count(b"\n") < 1 + 5:
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143
    workers = {event["pid"] for event in log.events() if event["what"] == "begin"}
    assert not any(map(is_running, workers))
    scored = [event for event in log.events() if event["what"] == "end"]
    assert len(scored) == 5
    assert journal.read_bytes().count(b"\n") == 1 + 5
    n_before = len(log.events())
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, timeout=120)
    begun = [event["curves"][0] for event in log.events()[n_before:] if event["what"] == "begin"]
    assert len(begun) == len(set(begun)) == 11
    assert not set(begun) & {event["curves"][0] for event in scored}


# Failures


MESSAGES = {"raise": "(?s)^Traceback.*RuntimeError: out of luck", "shape": "shape|inhomogeneous"}


@pytest.mark.parametrize("algorithm", ["ga", "steady-state"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1j, "raise", "shape"])
def test_a_failed_evaluation_is_recorded_and_never_selected(bad, algorithm, tmp_path):
    # A6 and A13
    settings = settings_of(algorithm, max_failures=20)
    n_candidates = None if algorithm == "steady-state" else 2
    search = Search(SPACE, settings, seed=3)
    with Journal(tmp_path / "journal.jsonl", {}) as journal:
        drive(search, Evaluator(Faulty(bad, n_fit=2), SPACE, settings, n_candidates=n_candidates), journal)
        kept = [record for record in journal if record["status"] == "failed"]
    failed = [evaluation for evaluation in search.evaluations() if evaluation.status == "failed"]
    assert len(failed) == len(kept) > 2
    expected = MESSAGES.get(bad, "Expected finite real scores|Expected real scores")
    assert all(re.search(expected, evaluation.error) for evaluation in failed)
    assert sum(record["failed"] for record in search.logbook) == len(failed)
    keys = {record["key"] for record in kept}
    assert not keys & {genome.key for genome in [*search.population, *search.hall_of_fame]}
    assert np.isfinite([genome.fitness.values for genome in search.population]).all()


def test_failures_on_workers_end_like_failures_here(tmp_path):
    settings = settings_of(max_failures=20, generations=1, racing=False, preselection=1)
    events = []
    with DevicePool("cpu:2", lambda _device: Faulty(), on_event=events.append) as pool:
        found = searched(pool, settings, tmp_path / "journal.jsonl")
    expected = searched(Faulty(), settings, tmp_path / "expected.jsonl")
    statuses = [evaluation.status for evaluation in found[2]]
    assert statuses == [evaluation.status for evaluation in expected[2]]
    assert "failed" in statuses
    assert found[:2] == expected[:2]
    assert all("failed on candidate" in event for event in events)


class Broken(Sheet):
    """Fails from its fourth evaluation on while ``is_broken``."""

    is_broken = True
    n_good = 3

    def score(self, scales, example_ids=None):
        if self.is_broken and len(self.calls) > self.n_good:
            raise RuntimeError("the disk is gone")
        return super().score(scales, example_ids)


PLAIN = settings_of(racing=False)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_failures_in_a_row_stop_the_run_with_one_line_and_a_mended_run_goes_on_from_there(
    algorithm, tmp_path
):
    settings = settings_of(algorithm, racing=False)
    message = r"5 in a row failed, the last with: RuntimeError: the disk is gone\. .* --resume"
    path = tmp_path / "journal.jsonl"
    with pytest.raises(EvaluationError, match=message) as caught:
        searched(Broken(), settings, path)
    assert "\n" not in str(caught.value)
    with Journal(path, {}) as journal:
        assert len(journal) == 3 + 5
        assert sum("Traceback" in record.get("error", "") for record in journal) == 5
        kept = {key: record for key, record in records(journal).items() if record["status"] == "failed"}
    mended, straight = Broken(), Sheet()
    mended.is_broken = False
    expected = searched(straight, settings, tmp_path / "straight.jsonl")
    found = searched(mended, settings, path)
    assert found[:-1] == expected[:-1]
    assert found[-1] == expected[-1] | kept
    assert passes(mended) == passes(straight)[3:]


class Unlucky(LocalPool):
    """Gives work back in a shuffled order, as workers of different speed do."""

    def __init__(self, problem, seed):
        super().__init__(lambda _device: problem)
        self._shuffled = np.random.default_rng(seed)

    def _work(self):
        self._queue.rotate(int(self._shuffled.integers(len(self._queue))))
        super()._work()


def test_whether_failures_stop_a_run_depends_on_the_order_of_asking_and_not_on_who_finishes_first(tmp_path):
    order = [name_of(curve) for curve in SPACE.decode(Search(SPACE, PLAIN, seed=3).ask())]
    assert len(order) == 8

    class Chosen(Sheet):
        bad = ()

        def score(self, scales, example_ids=None):
            if order.index(name_of(scales)) in self.bad:
                raise RuntimeError("no luck")
            return super().score(scales, example_ids)

    settings = settings_of(racing=False, generations=0, max_failures=3)
    outcomes = {}
    for bad, seed in itertools.product([(1, 2, 3), (0, 2, 4, 6), (0, 1, 3, 4, 6, 7), (5, 6, 7)], range(4)):
        problem = Chosen()
        problem.bad = bad
        path = tmp_path / f"{bad}-{seed}.jsonl"
        try:
            found = searched(Unlucky(problem, seed), settings, path)[:3]
            found = found[:2], [evaluation.status for evaluation in found[2]]
        except EvaluationError as error:
            found = str(error)
        outcomes.setdefault(bad, []).append(found)
    assert all(len(set(map(repr, found))) == 1 for found in outcomes.values())
    assert "3 in a row failed" in outcomes[1, 2, 3][0]
    assert "3 in a row failed" in outcomes[5, 6, 7][0]
    assert outcomes[0, 2, 4, 6][0][1].count("failed") == 4
    assert outcomes[0, 1, 3, 4, 6, 7][0][1].count("failed") == 6


@pytest.mark.parametrize("racing", [True, False])
def test_a_first_generation_without_a_success_stops_the_run(racing, tmp_path):
    problem = Broken()
    problem.n_good = 0
    settings = settings_of(racing=racing, max_failures=100)
    # With racing, the starting points come first.
    n_first = len(Search(SPACE, settings, seed=3).ask())
    with pytest.raises(EvaluationError, match=f"{n_first} in a row failed"):
        searched(problem, settings, tmp_path / "journal.jsonl")
    mended = Sheet()
    found = searched(mended, settings, tmp_path / "journal.jsonl")
    assert found[:-1] == searched(Sheet(), settings)


# Other cases


@pytest.mark.parametrize("algorithm", ["ga", "random", "steady-state"])
def test_a_used_up_grid_ends_the_search_after_each_curve_was_evaluated_once(algorithm):
    # A16: five curves, of which the initial population holds some.
    grid = CurveSpace(1, 2, y_min=0.8, y_max=1.2, y_step=0.1, max_delta=0.1)

    class One(Problem):
        n_layers = 1
        example_ids = ("b", "m", "e")
        groups = ("begin", "middle", "end")
        n_calls = 0

        def score(self, scales, example_ids=None):
            self.n_calls += 1
            return -np.abs(scales[0] - np.array([0.9, 1.0, 1.1]))

    problem = One()
    settings = SearchSettings(
        algorithm=algorithm, population_size=8, offspring_size=8, generations=10, n_constants=3
    )
    search = Search(grid, settings)
    drive(search, Evaluator(problem, grid, settings))
    curves = {tuple(grid.decode([genome])[0]) for genome in search.population}
    assert problem.n_calls == len(search.evaluations()) == len(curves) <= 5
    assert sum(record["evaluations"] for record in search.logbook) == problem.n_calls
    assert sum(record["cached"] for record in search.logbook) > 0
    assert re.search("curves of the space are evaluated|no new curve", search.stop())


def test_two_searches_in_one_process_keep_their_directions():
    # A12
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first, second = (Search(SPACE, PLAIN, seed=seed) for seed in (1, 2))
        evaluators = [Evaluator(Sheet(), SPACE, PLAIN), Evaluator(Sheet(n_texts=2), SPACE, PLAIN)]
        drive(first, evaluators[0])
        BezierGenome([(0.0, 1.0), (7.0, 1.0)], weights=(-1.0,))
        drive(second, evaluators[1])
    best, worst = first.population[0], first.population[-1]
    assert best.fitness.values > worst.fitness.values
    assert best.fitness > worst.fitness
    smaller, larger = (BezierGenome([(0.0, 1.0), (7.0, y)], weights=(-1.0,)) for y in (1.0, 1.1))
    smaller.fitness.values, larger.fitness.values = (1.0,), (2.0,)
    assert smaller.fitness > larger.fitness
    assert best.fitness > worst.fitness


def test_without_a_journal_failures_that_stop_a_search_show_their_traceback():
    class Boom(Sheet):
        def score(self, scales, example_ids=None):
            raise ValueError("boom\n  and more\nsecond line")

    message = (
        r"in a row failed, the last with: ValueError: boom\. Its traceback:\nTraceback(.|\n)*second line$"
    )
    with pytest.raises(EvaluationError, match=message) as caught:
        searched(Boom(), PLAIN)
    assert "--resume" not in str(caught.value)


def test_search_and_evaluator_must_have_one_space():
    other = dataclasses.replace(SPACE, y_max=1.4)
    with pytest.raises(ConfigError, match=r"^Expected search and evaluator to have one space"):
        drive(Search(other, PLAIN), Evaluator(Sheet(), SPACE, PLAIN))


@pytest.mark.parametrize(
    ("status", "change"),
    [("raced", {"scored": [99]}), ("ok", {"scores": [0.0]}), ("ok", {"scores": []})],
)
def test_a_journal_with_scores_of_other_examples_is_refused(tmp_path, status, change):
    settings, path = settings_of(race_level=0.2), tmp_path / "journal.jsonl"
    searched(Sheet(), settings, path)
    with Journal(path, {}) as journal:
        kept = list(journal)
    chosen = next(record for record in kept if record["status"] == status)
    if "scored" in change:
        change = {"scored": change["scored"] + chosen["scored"][1:]}
    edited = tmp_path / "edited.jsonl"
    with Journal(edited, {}) as journal:
        for record in kept:
            values = record | (change if record is chosen else {})
            journal.append(values.pop("key"), values)
    with pytest.raises(JournalError, match=rf"{re.escape(chosen['key'])}.*restore it or start a new run"):
        searched(Sheet(), settings, edited)
