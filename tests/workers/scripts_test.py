"""What becomes of workers whose program is killed or interrupted, and what kinds of programs can have workers."""

import os
import signal
import subprocess
import sys
import time

import pytest

SLEEPERS = """
import os, sys, time
from lpes_evo.workers import DevicePool

def spec(_device):
    open(os.path.join(sys.argv[1], str(os.getpid())), "w").close()

def main():
    with DevicePool("cpu:2", spec, on_event=lambda line: print(line, flush=True)) as pool:
        while len(os.listdir(sys.argv[1])) < 2:
            pool.call(lambda _target: None)
        if sys.argv[2] == "busy":
            for _ in range(2):
                pool.submit(lambda _target: time.sleep(600))
        print("ready", flush=True)
        pool.wait() if sys.argv[2] == "busy" else time.sleep(600)

if __name__ == "__main__":
    main()
"""


@pytest.fixture
def start(tmp_path):
    """Starts a script and returns its process; it is killed after the test."""
    started = []

    def start(text, *arguments, group=False):
        (tmp_path / "script.py").write_text(text)
        process = subprocess.Popen(
            [sys.executable, "script.py", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            start_new_session=group,
            # A job in the background of a script is started deaf to SIGINT, and its children with it.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def sleepers(tmp_path, start):
    """Starts a program with two workers, idle or busy, and returns it with their processes."""

    def sleepers(state, group=False):
        folder = tmp_path / "pids"
        folder.mkdir()
        process = start(SLEEPERS, str(folder), state, group=group)
        assert process.stdout.readline() == "ready\n"
        # Time for the work to begin.
        time.sleep(0.5)
        return process, [int(name) for name in os.listdir(folder)]

    return sleepers


@pytest.mark.parametrize("state", ["idle", "busy"])
def test_no_worker_outlives_a_killed_program(sleepers, gone, state):
    # A8
    process, workers = sleepers(state)
    assert len(workers) == 2
    process.kill()
    assert gone(workers, seconds=15)


def test_a_stopped_worker_does_not_outlive_a_killed_program_once_it_goes_on(sleepers, gone):
    process, workers = sleepers("busy")
    os.kill(workers[0], signal.SIGSTOP)
    process.kill()
    assert gone(workers[1:], seconds=15)
    os.kill(workers[0], signal.SIGCONT)
    assert gone(workers, seconds=15)


@pytest.mark.parametrize("state", ["idle", "busy"])
def test_no_worker_outlives_a_terminated_program(sleepers, gone, state):
    process, workers = sleepers(state)
    process.terminate()
    assert process.wait(30) == -signal.SIGTERM
    assert gone(workers, seconds=15)


def test_the_interrupt_key_is_answered_by_the_program_alone(sleepers, gone):
    # The key goes to the whole group of the terminal, workers included.
    process, workers = sleepers("busy", group=True)
    os.killpg(process.pid, signal.SIGINT)
    output, errors = process.communicate(timeout=30)
    assert gone(workers, seconds=15)
    assert output == ""
    assert errors.count("Traceback") == 1
    assert errors.rstrip().endswith("KeyboardInterrupt")


def test_a_forked_process_keeps_no_worker_alive(tmp_path, start, gone):
    # It holds open the sockets of the program that forked it.
    text = SLEEPERS.replace(
        'print("ready"', 'os.fork() or (time.sleep(60), os._exit(0))\n        print("ready"'
    )
    folder = tmp_path / "pids"
    folder.mkdir()
    process = start(text, str(folder), "idle", group=True)
    assert process.stdout.readline() == "ready\n"
    workers = [int(name) for name in os.listdir(folder)]
    process.kill()
    assert gone(workers, seconds=15)
    os.killpg(process.pid, signal.SIGKILL)


def test_a_script_needs_no_guard(tmp_path, start):
    process = start(
        "from lpes_evo.workers import DevicePool\n"
        "print(f'{__name__} runs')\n"
        "factor = 3\n"
        "class Tripled:\n    def __init__(self, item):\n        self.item = factor * item\n"
        "def triple(item):\n    return Tripled(item)\n"
        "with DevicePool('cpu:2') as pool:\n    print([it.item for it in pool.map(triple, [1, 2, 3])])\n"
        "print(__file__, __spec__)"
    )
    output, errors = process.communicate(timeout=60)
    assert (output.splitlines()[:2], errors) == (["__main__ runs", "[3, 6, 9]"], "")
    assert output.splitlines()[2] == f"{tmp_path / 'script.py'} None"


def test_a_program_on_standard_input_can_have_workers(tmp_path):
    result = subprocess.run(
        [sys.executable, "-"],
        input="from lpes_evo.workers import DevicePool\n"
        "factor = 3\n"
        "def triple(item):\n    return factor * item\n"
        "with DevicePool('cpu:2') as pool:\n    print(pool.map(triple, [1, 2, 3]))\n",
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
    )
    assert (result.stdout, result.stderr) == ("[3, 6, 9]\n", "")


def test_what_work_prints_is_seen(tmp_path):
    result = subprocess.run(
        [
            sys.executable,
            "-c",
            "from lpes_evo.workers import DevicePool\n"
            "with DevicePool('cpu') as pool:\n    pool.call(print, 'from the worker')",
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
    )
    assert (result.stdout, result.stderr) == ("from the worker\n", "")
