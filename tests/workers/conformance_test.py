"""The promises that every kind of pool keeps."""

import os
import random
import sys

import numpy as np
import pytest
from deap import algorithms, base, tools

from lpes_evo.errors import ConfigError, EvaluationError, LpesError, ModelError, TaskError
from lpes_evo.operators import CurveSpace


@pytest.fixture(scope="module")
def pool(make_pool):
    """A pool whose target is the number 10."""
    with make_pool(lambda _device: 10) as pool:
        yield pool


@pytest.fixture(scope="module")
def bare_pool(make_pool):
    """A pool without a target."""
    with make_pool() as pool:
        yield pool


def test_map_keeps_the_order(pool):
    assert pool.map(lambda target, item: target + item, range(20)) == [10 + item for item in range(20)]


def test_map_of_nothing_is_nothing(pool):
    assert pool.map(lambda target, item: item, []) == []


def test_map_without_a_spec_calls_functions_without_a_target(bare_pool):
    assert bare_pool.map(abs, [-1, 2, -3]) == [1, 2, 3]


def test_a_target_of_none_is_a_target(make_pool):
    with make_pool(lambda _device: None) as pool:
        assert pool.call(lambda target: target is None) is True


def test_call_returns_the_value_and_keeps_what_others_wait_for(pool):
    tickets = [pool.submit(lambda target, item: item, item) for item in range(4)]
    assert pool.call(lambda target: target * 2) == 20
    assert pool.n_pending == 4
    done = {completion.ticket: completion.value for completion in [pool.wait() for _ in tickets]}
    assert [done[ticket] for ticket in tickets] == [0, 1, 2, 3]
    assert pool.n_pending == 0


def test_a_completion_tells_value_worker_and_attempts(pool):
    ticket = pool.submit(lambda target: target)
    completion = pool.wait()
    assert (completion.ticket, completion.value, completion.failure, completion.attempts) == (
        ticket,
        10,
        None,
        1,
    )
    assert completion.worker in [usage.worker for usage in pool.usage()]


def test_work_that_always_raises_is_tried_three_times_and_fails_with_its_traceback(pool, tries):
    note = tries.add

    def fail(_target):
        note()
        raise KeyError("no such\nthing")

    pool.submit(fail, label="candidate 3")
    completion = pool.wait()
    assert (completion.value, completion.attempts, len(tries.processes())) == (None, 3, 3)
    failure = completion.failure
    assert (failure.kind, failure.error, failure.message) == ("exception", "KeyError", r"'no such\nthing'")
    assert "Traceback" in failure.traceback
    assert "in fail" in failure.traceback
    with pytest.raises(EvaluationError, match=r"^Expected the work of a worker to succeed, but got KeyError"):
        raise failure.to_error()


def test_work_that_raises_once_succeeds_at_the_second_try(pool, tries):
    note = tries.add

    def fail_once(_target):
        if note() == 0:
            raise ValueError("the first time")
        return "done"

    pool.submit(fail_once)
    completion = pool.wait()
    assert (completion.value, completion.failure, completion.attempts) == ("done", None, 2)


def test_an_error_of_this_package_is_final_and_keeps_its_class(pool, tries):
    note = tries.add

    def refuse(_target):
        note()
        raise TaskError("Expected a task, but got none.")

    with pytest.raises(TaskError, match=r"^Expected a task, but got none\.$"):
        pool.call(refuse)
    assert len(tries.processes()) == 1


def test_an_exception_without_readable_text_is_a_failure_like_any_other(pool):
    def fail(_target):
        class UnreadableError(Exception):
            def __str__(self):
                raise RuntimeError("no text")

        raise UnreadableError

    pool.submit(fail)
    assert pool.wait().failure.error == "UnreadableError"


def test_one_bad_individual_leaves_the_others_their_work(pool, tries):
    note = tries.add

    def evaluate(_target, item):
        if item == 3:
            raise ValueError("boom")
        note()
        return item

    with pytest.raises(EvaluationError, match=r"individual 3 failed: .*ValueError: boom"):
        pool.map(evaluate, range(8))
    assert len(tries.processes()) == 7
    assert pool.n_pending == 0
    assert pool.map(lambda target, item: item, range(3)) == [0, 1, 2]


def test_large_arrays_cross_in_both_directions(pool):
    array = np.arange(1_000_000, dtype=np.float64)
    results = pool.map(lambda target, item: item * target, [array, array + 1, array + 2])
    for shift, result in enumerate(results):
        np.testing.assert_array_equal(result, (array + shift) * 10)


def test_many_small_results_arrive(bare_pool):
    assert bare_pool.map(abs, range(-500, 0)) == list(range(500, 0, -1))


def test_what_cannot_be_called_with_the_arguments_is_a_failure(pool):
    with pytest.raises(EvaluationError, match=r"TypeError: .*argument"):
        pool.call(lambda target: target, 1, 2)


def test_map_takes_the_place_of_map_in_a_toolbox(bare_pool):
    # A1: from inside a function, with closures.
    space = CurveSpace(12, 4)
    goal = 1.0 + 0.3 * np.sin(np.arange(12) / 3)

    def evaluate(genome):
        return (float(((space.decode([genome])[0] - goal) ** 2).mean()),)

    def search(mapped):
        toolbox = base.Toolbox()
        space.register(toolbox, weights=(-1.0,))
        toolbox.register("evaluate", evaluate)
        toolbox.register("select", tools.selBest)
        toolbox.register("map", mapped)
        random.seed(1)
        population, _ = algorithms.eaMuPlusLambda(
            toolbox.population(n=8), toolbox, 8, 12, 0.5, 0.5, 3, verbose=False
        )
        return [(list(genome), genome.fitness.values) for genome in population]

    assert search(bare_pool.map) == search(map)


def test_individuals_of_creator_cross(bare_pool):
    from deap import creator

    creator.create("PoolTestFitness", base.Fitness, weights=(1.0,))
    creator.create("PoolTestIndividual", list, fitness=creator.PoolTestFitness)
    try:
        individuals = [creator.PoolTestIndividual([number, 1]) for number in range(4)]
        assert bare_pool.map(lambda individual: (sum(individual),), individuals) == [(1,), (2,), (3,), (4,)]
    finally:
        del creator.PoolTestFitness, creator.PoolTestIndividual


def test_wait_without_work_is_refused(pool):
    with pytest.raises(ConfigError, match=r"^Expected submitted work to wait for, but there is none\."):
        pool.wait()


def test_map_beside_other_work_is_refused(pool):
    pool.submit(lambda target: target)
    with pytest.raises(ConfigError, match=r"^Expected no pending work beside map, but got 1\."):
        pool.map(lambda target, item: item, [1])
    assert pool.wait().value == 10


def test_an_interrupted_map_leaves_nothing_behind(pool):
    def items():
        yield 1
        yield 2
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pool.map(lambda target, item: item, items())
    assert pool.n_pending == 0
    assert pool.map(lambda target, item: item, [7, 8, 9]) == [7, 8, 9]


def test_a_closed_pool_says_so(make_pool):
    pool = make_pool()
    pool.submit(abs, -1)
    pool.close()
    pool.close()
    for use in (
        lambda: pool.submit(abs, -1),
        pool.wait,
        lambda: pool.call(abs, -1),
        lambda: pool.map(abs, [1]),
    ):
        with pytest.raises(ConfigError, match=r"^Expected an open pool, but it was closed\."):
            use()


@pytest.mark.parametrize("kind", [ModelError, TaskError, LpesError])
def test_a_spec_that_refuses_raises_the_same_error_here(make_pool, kind):
    def spec(_device):
        raise kind("Expected a model, but got none. Name one.")

    with pytest.raises(kind, match=r"^Expected a model, but got none\. Name one\.$") as caught:
        make_pool(spec)
    assert type(caught.value) is kind


def test_a_spec_that_breaks_raises_one_line(make_pool):
    def spec(_device):
        return 1 / 0

    with pytest.raises(
        EvaluationError,
        match=r"^Expected the spec to make the target of a worker, but got ZeroDivisionError: division by zero$",
    ):
        make_pool(spec)


def test_usage_counts_the_work(make_pool):
    with make_pool() as pool:
        pool.map(abs, range(10))
        usage = pool.usage()
    assert sum(worker.n_done for worker in usage) == 10
    assert len(usage) == pool.n_workers
    assert all(0 <= worker.share <= 1 for worker in usage)


def test_workers_that_are_not_this_process_say_what_cannot_cross(make_pool):
    with make_pool() as pool:
        if pool.call(os.getpid) == os.getpid():
            pytest.skip("work of this process does not cross")
        with pytest.raises(
            ConfigError, match=r"^Expected a function and its arguments to be something that can"
        ):
            pool.map(abs, [1, (number for number in range(3))])
        assert pool.n_pending == 0
        pool.submit(lambda: (number for number in range(3)))
        completion = pool.wait()
        assert (completion.failure.error, completion.attempts) == ("ConfigError", 1)
        assert completion.failure.message.startswith(
            "Expected work to return something that can cross to the"
        )
        assert pool.map(abs, [-1]) == [1]
    with pytest.raises(ConfigError, match=r"^Expected the spec of the pool to be something that can cross"):
        make_pool(lambda _device, numbers=(number for number in range(3)): numbers)


def test_work_that_exits_has_failed_with_its_traceback(pool):
    ticket = pool.submit(lambda _target: sys.exit(3))
    completion = pool.wait()
    assert completion.ticket == ticket
    assert "SystemExit: 3" in completion.failure.traceback
    assert pool.call(lambda _target: 5) == 5
