"""Functions that are defined in the cells of a notebook."""

import os
import re

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

pytestmark = pytest.mark.slow

SPEC = """
import os, time
from lpes_evo.workers import DevicePool

class Doubler:
    def __init__(self, factor):
        self.factor = factor

factor = 2

def spec(device):
    open(os.path.join(FOLDER, str(os.getpid())), "w").close()
    return Doubler(factor)

def fitness(target, item):
    time.sleep(0.2)
    return target.factor * item
"""
MAP = """
with DevicePool("cpu:2", spec) as pool:
    while len(os.listdir(FOLDER)) < 2:
        pool.call(fitness, 0)
    print(pool.map(fitness, range(6)))
"""
STUCK = """
lines = (line for line in ["a", "b"])

def stuck(target, item):
    return next(lines)

start = time.monotonic()
pool = DevicePool("cpu:2", spec)
pool.map(stuck, range(6))
"""


@pytest.fixture
def execute(tmp_path):
    """Runs cells one after another in a fresh kernel, and returns what each printed and the workers' processes."""

    def execute(*cells):
        folder = tmp_path / "pids"
        folder.mkdir()
        notebook = nbformat.v4.new_notebook(
            cells=[nbformat.v4.new_code_cell(cell) for cell in (f"FOLDER = {str(folder)!r}", *cells)]
        )
        client = NotebookClient(
            notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
        )
        try:
            client.execute(env={**os.environ, "IPYTHONDIR": str(tmp_path / "ipython")})
        finally:
            workers = [int(name) for name in os.listdir(folder)]
        return [
            "".join(output.get("text", "") for output in cell.outputs) for cell in notebook.cells
        ], workers

    return execute


def test_spec_and_fitness_of_a_cell_work_on_two_workers(execute, gone):
    # A11
    printed, workers = execute(SPEC, MAP)
    assert printed[-1] == "[0, 2, 4, 6, 8, 10]\n"
    assert len(workers) == 2
    assert gone(workers, seconds=15)


def test_a_fitness_that_cannot_cross_raises_in_the_cell_with_the_remedy(execute, tmp_path, gone):
    # A11: the pool is left open, as it would be.
    with pytest.raises(CellExecutionError) as raised:
        execute(SPEC, STUCK)
    # Kernels colour what they print, also in the middle of a line.
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(raised.value))
    assert re.search(
        r"(?s)ConfigError.*Expected a function and its arguments to be something that can cross to a worker "
        r"process, but it cannot: cannot pickle 'generator' object\. Move what it uses to a module",
        text,
    )
    workers = [int(name) for name in os.listdir(tmp_path / "pids")]
    assert workers
    assert gone(workers, seconds=15)


def test_an_interrupted_cell_leaves_a_pool_that_works(execute, gone):
    interrupt = """
import signal, threading
pool = DevicePool("cpu:2", spec)
threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    pool.map(lambda target, item: time.sleep(0.1), range(10_000))
except KeyboardInterrupt:
    print("interrupted")
"""
    printed, workers = execute(SPEC, interrupt, "print(pool.map(fitness, [1, 2, 3]))")
    assert printed[-2:] == ["interrupted\n", "[2, 4, 6]\n"]
    assert gone(workers, seconds=15)
