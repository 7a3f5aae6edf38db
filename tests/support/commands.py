"""The command line in a process of its own, as a user runs it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PROGRAM = Path(sys.executable).with_name("lpes-evo")


SMALL = [
    "--preset", "demo",
    "--set", "examples.n_per_position=6",
    "--set", "search.population_size=8",
    "--set", "search.n_constants=4",
    "--set", "search.offspring_size=6",
    "--set", "search.generations=3",
    "--set", "report.n_per_position=10",
    "--set", "report.positions=[0, 0.5, 1]",
    "--set", "report.n_shuffles=3",
    "--devices", "cpu",
]  # fmt: skip


def lpes_evo(*arguments, cwd, check=None, **options):
    result = subprocess.run(
        [PROGRAM, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200"},
        timeout=300,
        **options,
    )
    assert "Traceback" not in result.stderr
    if check is not None:
        assert result.returncode == check, result.stderr + result.stdout
    return result


def start(*arguments, cwd, ignored=None):
    def dispose():
        # A job in the background of a script is started deaf to SIGINT, and its children with it.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if ignored is not None:
            signal.signal(ignored, signal.SIG_IGN)

    return subprocess.Popen(
        [PROGRAM, *map(str, arguments)],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        preexec_fn=dispose,
    )


def wait_for_lines(path, n_lines, process):
    deadline = time.monotonic() + 120
    while not path.exists() or path.read_bytes().count(b"\n") < n_lines:
        assert time.monotonic() < deadline
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.005)


def contents(run):
    return {name: (run / name).read_bytes() for name in ("scales.json", "history.csv")}
