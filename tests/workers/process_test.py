"""What `DevicePool` does when workers die, hang or cannot start."""

import multiprocessing
import os
import re
import signal
import sys
import threading
import time

import multiprocess
import numpy as np
import pytest

from lpes_evo.errors import ConfigError, EvaluationError
from lpes_evo.workers import DevicePool


@pytest.fixture
def events():
    return []


@pytest.fixture
def make_pool(events):
    """Makes pools that are closed after the test, whatever happens."""
    pools = []

    def make(devices="cpu:2", spec=None, **rest):
        pools.append(DevicePool(devices, spec, on_event=events.append, **rest))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


def workers_of(pool):
    return [slot.worker.process.pid for slot in pool._slots]


def wait_until(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


def test_what_a_worker_tells_while_it_makes_its_target_reaches_the_pool(make_pool, events):
    def spec(_device):
        import time

        from lpes_evo.workers import tell

        tell("has loaded 40 %")
        time.sleep(2.5)
        return 1

    assert make_pool("cpu", spec).call(lambda target: target) == 1
    assert events == ["worker 0 on cpu has loaded 40 %"]


def test_a_killed_worker_of_a_group_is_replaced_on_the_same_group(make_pool, events, tries):
    note = tries.add

    def evaluate(device, item):
        import os
        import signal

        if note() == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return device, item

    pool = make_pool("cpu+cpu", lambda device: device)
    assert pool.map(evaluate, range(2)) == [("cpu+cpu", 0), ("cpu+cpu", 1)]
    assert len(events) == 1
    assert events[0].startswith("worker 0 on cpu+cpu was killed by SIGKILL while it worked on individual 0")


def test_a_killed_worker_is_replaced_and_its_work_done_by_another(make_pool, events, tries):
    # A8
    pool = make_pool("cpu:3")
    note = tries.add

    def evaluate(item):
        import os
        import signal

        if item == 3 and note() == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return item, os.getpid()

    results = pool.map(evaluate, range(12))
    assert [item for item, _ in results] == list(range(12))
    assert len(tries.processes()) == 2
    assert len(events) == 1
    assert re.fullmatch(
        r"worker [012] on cpu was killed by SIGKILL while it worked on individual 3, try 1 of 3; another is started in "
        r"its place",
        events[0],
    )
    wait_until(lambda: pool.call(os.getpid) and all(slot.is_ready for slot in pool._slots))
    assert tries.processes()[0] not in workers_of(pool)
    assert len(set(workers_of(pool))) == 3


def test_work_that_kills_every_worker_is_given_up_after_three_tries_and_the_others_live(make_pool, tries):
    pool = make_pool()
    note = tries.add

    def evaluate(item):
        import os

        if item == 2:
            note()
            os._exit(3)
        return item

    tickets = [pool.submit(evaluate, item, label=f"candidate {item}") for item in range(5)]
    done = {completion.ticket: completion for completion in (pool.wait() for _ in tickets)}
    failed = done[tickets[2]]
    assert [done[ticket].value for ticket in tickets] == [0, 1, None, 3, 4]
    assert (failed.attempts, failed.failure.kind, len(tries.processes())) == (3, "killed", 3)
    assert re.fullmatch(
        r"worker [01] on cpu ended with exit code 3 while it worked on candidate 2, try 3 of 3",
        failed.failure.message,
    )


def test_an_idle_worker_that_was_killed_costs_no_work_a_try(make_pool, events):
    pool = make_pool("cpu")
    pool.call(abs, -1)
    os.kill(workers_of(pool)[0], signal.SIGKILL)
    wait_until(lambda: not pool._slots[0].worker.is_alive())
    pool.submit(abs, -2, label="candidate 2")
    completion = pool.wait()
    assert (completion.value, completion.attempts) == (2, 1)
    assert events == ["worker 0 on cpu was killed by SIGKILL; another is started in its place"]


def test_work_beyond_its_limit_is_hung(make_pool, events, tries):
    pool = make_pool("cpu:2", work_limit=1.0)
    note = tries.add

    def evaluate(item):
        import time

        if item == 1 and note() == 0:
            time.sleep(600)
        return item

    assert pool.map(evaluate, range(3)) == [0, 1, 2]
    assert re.fullmatch(
        r"worker [01] on cpu was at work for more than 1 s, the limit of a step, while it worked on individual 1, "
        r"try 1 of 3; another is started in its place",
        events[0],
    )
    assert len(events) == 1


@pytest.mark.slow
def test_work_that_goes_on_from_step_to_step_is_not_hung(make_pool, events):
    pool = make_pool("cpu", work_limit=4.0)

    def evaluate(n_steps):
        import time

        from lpes_evo.workers import mark_step

        for _ in range(n_steps):
            time.sleep(0.5)
            mark_step()
        return n_steps

    assert pool.map(evaluate, [14]) == [14]
    assert events == []


@pytest.mark.slow
def test_a_step_beyond_the_limit_is_hung_however_many_went_before(make_pool, events, tries):
    pool = make_pool("cpu", work_limit=3.0)
    note = tries.add

    def evaluate(item):
        import time

        from lpes_evo.workers import mark_step

        for _ in range(4):
            time.sleep(0.5)
            mark_step()
        if note() == 0:
            time.sleep(600)
        return item

    assert pool.map(evaluate, [7]) == [7]
    assert "was at work for more than 3 s, the limit of a step," in events[0]


def test_a_call_has_no_limit(make_pool, events):
    pool = make_pool("cpu", work_limit=0.3)

    def slow():
        import time

        time.sleep(1.5)
        return "done"

    assert pool.call(slow) == "done"
    assert events == []


def test_a_stopped_worker_is_hung(make_pool, events, tries):
    pool = make_pool("cpu:2", silence_limit=3.0)
    note = tries.add

    def evaluate(item):
        import os
        import signal

        if item == 1 and note() == 0:
            os.kill(os.getpid(), signal.SIGSTOP)
        return item

    assert pool.map(evaluate, range(3)) == [0, 1, 2]
    # A busy machine may keep the other worker from its signs of life, too.
    assert any(
        "gave no sign of life for 3 s while it worked on individual 1, try 1 of 3" in event
        for event in events
    )


def test_a_stopped_worker_blocks_no_large_message(make_pool, tries):
    # Stopped before it reads a request and in the middle of a result: both far beyond what a socket holds.
    pool = make_pool("cpu:2", silence_limit=3.0)
    large = np.ones(3_000_000)
    note = tries.add

    def evaluate(item, array):
        import os
        import signal
        import threading

        if item == 1 and note() == 0:
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGSTOP)).start()
        return item, array

    for index, (item, array) in enumerate(pool.map(evaluate, range(3), [large] * 3)):
        assert item == index
        np.testing.assert_array_equal(array, large)
    os.kill(workers_of(pool)[0], signal.SIGSTOP)
    results = pool.map(lambda array: array.sum(), [large, large])
    assert results == [3_000_000.0, 3_000_000.0]


@pytest.mark.slow
def test_time_in_which_the_pool_did_not_listen_does_not_count(make_pool, events):
    pool = make_pool("cpu", work_limit=4.0, silence_limit=5.0)

    def slow():
        import time

        time.sleep(1.0)
        return "done"

    pool.submit(slow)
    pid = workers_of(pool)[0]
    # What a stopped and continued terminal does to both.
    os.kill(pid, signal.SIGSTOP)
    time.sleep(6)
    os.kill(pid, signal.SIGCONT)
    assert pool.wait().value == "done"
    assert events == []


def test_work_that_raises_is_tried_by_the_same_worker_and_then_by_a_fresh_one(make_pool, events, tries):
    pool = make_pool("cpu")
    note = tries.add

    def fail():
        note()
        raise ValueError("boom")

    pool.submit(fail, label="candidate 5")
    assert pool.wait().failure.message == "boom"
    first, second, third = tries.processes()
    assert first == second != third
    assert events == [
        "worker 0 on cpu failed on candidate 5 with ValueError: boom; another is started in its place"
    ]


def test_a_worker_whose_memory_ran_out_is_not_trusted_again(make_pool, tries):
    pool = make_pool("cpu")
    note = tries.add

    def fail_once():
        if note() == 0:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    pool.call(fail_once)
    first, second = tries.processes()
    assert first != second


def test_a_spec_that_raises_leaves_no_process(make_pool, tries, gone):
    note = tries.add

    def spec(_device):
        note()
        raise FileNotFoundError("no model")

    with pytest.raises(EvaluationError, match=r"but got FileNotFoundError: no model$") as caught:
        make_pool("cpu:2", spec)
    assert "in spec" in str(caught.value.__cause__)
    assert gone(tries.processes())


def test_a_worker_that_dies_at_every_start_is_given_up(make_pool, events, tries, monkeypatch):
    monkeypatch.setattr("lpes_evo.workers._slots._RESTART_DELAYS", (0, 0, 0))
    note = tries.add

    def spec(_device):
        import os

        note()
        os._exit(7)

    with pytest.raises(
        EvaluationError,
        match=r"^Expected a worker that can be started, but all were given up; the last: worker 0 on cpu ended with "
        r"exit code 7\.",
    ):
        make_pool("cpu", spec)
    assert len(tries.processes()) == 3
    assert events[-1] == "worker 0 on cpu ended with exit code 7; given up after 3 failed starts"


def test_a_worker_that_cannot_start_again_leaves_the_work_to_the_others(
    make_pool, events, tries, monkeypatch
):
    monkeypatch.setattr("lpes_evo.workers._slots._RESTART_DELAYS", (0, 0, 0))
    note = tries.add

    def spec(_device):
        if note() >= 2:
            raise RuntimeError("the GPU has fallen off the bus")

    pool = make_pool("cpu:2", spec)
    wait_until(lambda: pool.call(lambda _target: 1) and all(slot.is_ready for slot in pool._slots))
    os.kill(workers_of(pool)[1], signal.SIGKILL)
    wait_until(lambda: pool.map(lambda _target, item: item, range(4)) == [0, 1, 2, 3] and len(events) == 4)
    assert events[-1] == (
        "worker 1 on cpu could not make its target: the GPU has fallen off the bus; given up after 3 failed starts"
    )


def test_a_start_that_makes_no_progress_is_hung(make_pool, events, tries, monkeypatch):
    monkeypatch.setattr("lpes_evo.workers._slots._START_FACTOR", 1)
    note = tries.add

    def spec(_device):
        import os
        import signal

        if note() == 0:
            os.kill(os.getpid(), signal.SIGSTOP)
        return "target"

    pool = make_pool("cpu", spec, silence_limit=3.0)
    assert pool.call(lambda target: target) == "target"
    assert tries.processes()[0] not in workers_of(pool)
    assert events[0] == "worker 0 on cpu gave no sign of life for 3 s; another is started in its place"


def test_workers_are_dealt_work_as_they_come_free(make_pool):
    # A5: one long piece of work keeps one worker, and no barrier keeps the other.
    pool = make_pool("cpu:2")
    wait_until(lambda: pool.call(abs, -1) and all(slot.is_ready for slot in pool._slots))
    n_before = {worker.worker: worker.n_done for worker in pool.usage()}

    def evaluate(seconds):
        import os
        import time

        time.sleep(seconds)
        return os.getpid(), seconds

    seconds = [1.6, *[0.2] * 7]
    results = pool.map(evaluate, seconds)
    assert [slept for _, slept in results] == seconds
    of_long = [slept for pid, slept in results if pid == results[0][0]]
    assert len(of_long) <= 2
    n_done = sorted(worker.n_done - n_before[worker.worker] for worker in pool.usage())
    assert n_done == sorted([len(of_long), 8 - len(of_long)])
    assert all(worker.busy_seconds > 0 for worker in pool.usage())


def test_the_start_method_of_the_caller_stays_as_it_is(make_pool):
    # A9
    before = multiprocessing.get_start_method(allow_none=True), multiprocess.get_start_method(allow_none=True)
    multiprocessing.set_start_method("fork", force=True)
    multiprocess.set_start_method("fork", force=True)
    try:
        pool = make_pool("cpu")
        # A forked worker would have what this process has loaded, and a CUDA context with it.
        assert "pytest" in sys.modules
        assert pool.call(lambda: "pytest" in __import__("sys").modules) is False
        assert multiprocessing.get_start_method() == "fork"
        assert multiprocess.get_start_method() == "fork"
    finally:
        multiprocessing.set_start_method(before[0], force=True)
        multiprocess.set_start_method(before[1], force=True)


def test_two_pools_live_in_one_process(make_pool):
    ones, twos = make_pool("cpu", lambda _device: 1), make_pool("cpu", lambda _device: 2)
    for _ in range(2):
        assert ones.map(lambda target, item: target * item, [3, 4]) == [3, 4]
        assert twos.map(lambda target, item: target * item, [3, 4]) == [6, 8]
    ones.close()
    assert twos.call(lambda target: target) == 2


def test_close_ends_workers_in_the_middle_of_their_work(make_pool, gone):
    pool = make_pool("cpu:2")
    wait_until(lambda: pool.call(abs, -1) and all(slot.is_ready for slot in pool._slots))
    for _ in range(4):
        pool.submit(time.sleep, 600)
    pids = workers_of(pool)
    pool.close()
    assert gone(pids, seconds=1.0)
    assert pool.n_pending == 0


def test_replacing_workers_leaks_no_file_and_no_thread(make_pool):
    pool = make_pool("cpu:2")

    def die(_item):
        import os

        os._exit(1)

    def state():
        wait_until(lambda: pool.call(abs, -1) and all(slot.is_ready for slot in pool._slots))
        return len(os.listdir("/proc/self/fd")), threading.active_count()

    before = state()
    with pytest.raises(EvaluationError, match="individual 0 failed"):
        pool.map(die, range(2))
    assert state() == before


def test_arguments_cannot_be_huge(make_pool):
    pool = make_pool("cpu")
    with pytest.raises(
        ConfigError, match=r"^Expected a function and its arguments to be small, but it takes 267 MiB"
    ):
        pool.submit(len, bytes(280_000_000))


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ({"work_limit": 0}, r"^Expected a limit of positive seconds for work, but got 0\."),
        ({"work_limit": float("nan")}, r"^Expected a limit of positive seconds for work, but got nan\."),
        ({"silence_limit": 1}, r"^Expected a limit of at least 3 seconds for silence, but got 1: "),
        ({"devices": ()}, r"^Expected at least one device, but got none\."),
    ],
)
def test_limits_and_devices_are_checked(make_pool, rest, message):
    with pytest.raises(ConfigError, match=message):
        make_pool(**({"devices": "cpu"} | rest))
