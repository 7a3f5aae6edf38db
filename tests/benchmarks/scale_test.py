"""The simulation of many workers."""

import subprocess
import sys
from pathlib import Path

from lpes_evo.execution import JOURNAL_FORMAT
from lpes_evo.search import Evaluation
from lpes_evo.storage import Journal

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "scale.py"


def simulated(tmp_path, *seconds):
    with Journal(tmp_path / "journal.jsonl", {"format": JOURNAL_FORMAT}) as journal:
        for number, one in enumerate(seconds):
            evaluation = Evaluation((0.0,), (0.0,), one)
            journal.append(f"curve {number}", {"control_points": [[0.0, 1.0]], **evaluation.to_json()})
    options = ["--journal", tmp_path / "journal.jsonl", "--most-workers", "4", "--generations", "1"]
    result = subprocess.run(
        [sys.executable, SCRIPT, *options, "--seeds", "0"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    rows = [line.split() for line in result.stdout.splitlines()[2:]]
    return {(int(row[0]), row[1]): (float(row[2]), float(row[5])) for row in rows}


def test_equal_times_keep_every_worker_busy_where_the_sizes_divide(tmp_path):
    found = simulated(tmp_path, 9.0)
    assert list(found) == [
        (workers, loop) for workers in (1, 2, 4) for loop in ("generations", "steady-state")
    ]
    for (workers, _), (utilisation, per_hour) in found.items():
        assert utilisation == 100
        assert per_hour == 400 * workers


def test_times_that_differ_leave_workers_idle_at_a_barrier_and_less_without(tmp_path):
    found = simulated(tmp_path, 1.0, 9.0)
    assert found[1, "generations"][0] == found[1, "steady-state"][0] == 100
    assert found[4, "generations"][0] < found[4, "steady-state"][0] < 100
