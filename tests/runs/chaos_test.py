"""Searches whose workers and whose own process are killed at random moments, until they end."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from commands import SMALL, contents, lpes_evo, start
from sheet import Log

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are watched through /proc"),
]

DRIVER = Path(__file__).parents[1] / "support" / "chaos_run.py"
N_WORKERS = 3
WORK_LIMIT = 6.0
GONE_WITHIN = 15.0
SETTINGS = {
    "algorithm": "steady-state",
    "population_size": 24,
    "offspring_size": 16,
    "generations": 6,
    "n_constants": 5,
    "in_flight": 6,
}
# Every kill comes when a share of the search is done, so that all of them come before its end, however slow the
# machine. A kill waits for a victim that has not lost its work before; the end has room for those that waited.
KILLS = ["worker"] * 25 + ["stop"] + ["SIGKILL"] * 3 + ["SIGTERM"] * 3
SPARE = 6


def started_at(process):
    """Return when a process was started, which tells it from a later one of the same number; None when it is gone."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in ("Z", "X") else fields[19]


class Chaos:
    """Runs the search of `chaos_run.py`, kills it and its workers, and starts it again until it ends.

    Args:
        folder: Its folder.
        kills: What is done to it, in this order.
        seed: Seed of the moments and the victims.
    """

    def __init__(self, folder, kills, seed):
        self.folder, self.kills = folder, list(kills)
        self.log = Log(folder / "events.jsonl")
        self.random = random.Random(seed)
        self.done = Counter()
        self.orphans = []
        self.hit = set()
        self.parent = None

    def run(self, n_expected):
        """Run until the search has ended; a kill is due whenever another share of the evaluations is kept."""
        shares = [
            (index + self.random.random()) / (len(self.kills) + SPARE) for index in range(len(self.kills))
        ]
        deadline = time.monotonic() + 600
        self.begin()
        while self.parent.poll() is None:
            assert time.monotonic() < deadline, self.done
            if self.kills and self.n_kept() >= shares[-len(self.kills)] * n_expected:
                time.sleep(0.1 * self.random.random())
                if self.kill(self.kills[0]):
                    self.done[self.kills.pop(0)] += 1
            time.sleep(0.01)
        assert self.parent.returncode == 0
        for worker, since, killed in self.orphans:
            while started_at(worker) == since:
                assert time.monotonic() < killed + GONE_WITHIN, "a worker outlives its parent"
                time.sleep(0.1)

    def begin(self):
        command = [sys.executable, DRIVER, self.folder, "--devices", f"cpu:{N_WORKERS}", "--delay", "0.02"]
        command += ["--settings", json.dumps(SETTINGS), "--work-limit", str(WORK_LIMIT)]
        self.hit.clear()
        self.parent = subprocess.Popen(command, cwd=self.folder, env=os.environ | {"OMP_NUM_THREADS": "1"})

    def n_kept(self):
        return sum(event["what"] == "kept" for event in self.log.events())

    def workers(self):
        """Return the living workers of the parent and what each has in hand."""
        at_work = {}
        for event in self.log.events():
            if event["what"] == "worker" and event["parent"] == self.parent.pid:
                at_work[event["pid"]] = None
            elif event["what"] == "begin" and event["pid"] in at_work:
                at_work[event["pid"]] = event["curves"][0], event["block"]
            elif event["what"] == "end" and event["pid"] in at_work:
                at_work[event["pid"]] = None
        return {worker: work for worker, work in at_work.items() if started_at(worker) is not None}

    def kill(self, what):
        """Do one of the kills; return whether there was a victim."""
        workers = self.workers()
        if not workers:
            return False
        if what in ("worker", "stop"):
            # The third loss of one piece of work would count as its failure.
            free = [worker for worker, work in workers.items() if work not in self.hit]
            busy = [worker for worker in free if workers[worker]] or (free if what == "worker" else [])
            if not busy:
                return False
            victim = self.random.choice(busy)
            self.hit.add(workers[victim])
            self.log.add("kill", victim=victim)
            os.kill(victim, signal.SIGKILL if what == "worker" else signal.SIGSTOP)
            since = started_at(victim)
            # A stopped worker is replaced after the limit, which is part of what is tested here.
            while what == "stop" and workers[victim] and started_at(victim) == since:
                time.sleep(0.05)
                assert self.parent.poll() is None
            return True
        orphans = [(worker, started_at(worker)) for worker in workers]
        self.log.add("kill", victim=self.parent.pid)
        self.parent.send_signal(getattr(signal, what))
        code = self.parent.wait(60)
        assert code == (-signal.SIGKILL if what == "SIGKILL" else 143) or code == 0
        self.orphans += [(worker, since, time.monotonic()) for worker, since in orphans]
        if what == "SIGTERM":
            assert not any(started_at(worker) == since for worker, since in orphans)
        self.begin()
        return True


def checked_events(events):
    """Check that nothing was begun twice, but what a kill had interrupted; return how much was begun again."""
    parent_of = {event["pid"]: event["parent"] for event in events if event["what"] == "worker"}
    last_of = {event["pid"]: work_of(event) for event in events if event["what"] == "begin"}
    begun, killed, kept, n_again = {}, set(), set(), 0
    for event in events:
        if event["what"] == "kill":
            killed.add(event["victim"])
        elif event["what"] == "kept":
            assert event["curve"] not in kept, "an evaluation was kept twice"
            assert event["status"] != "failed", "an evaluation counts as failed"
            kept.add(event["curve"])
        elif event["what"] == "begin":
            work = work_of(event)
            if work in begun:
                worker = begun[work]
                # A killed worker had one pass in hand, the last one it began; a killed parent has lost all that was
                # not kept.
                is_lost = worker in killed and work == last_of[worker]
                assert is_lost or parent_of[worker] in killed, (
                    "a pass was begun again that no kill interrupted"
                )
                n_again += 1
            # The workers of a killed parent live a moment longer.
            assert work[0] not in kept or parent_of[event["pid"]] in killed, (
                "a kept evaluation was begun again"
            )
            begun[work] = event["pid"]
    return n_again


def work_of(event):
    (curve,) = event["curves"]
    return curve, event["block"]


def records(path):
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return {line.get("key"): {**line, "seconds": 0, "check": ""} for line in lines}, len(lines)


def undisturbed(folder):
    folder.mkdir()
    chaos = Chaos(folder, [], 0)
    chaos.run(1)
    events = chaos.log.events()
    assert checked_events(events) == 0
    return chaos


def test_a_search_whose_processes_are_killed_over_30_times_ends_as_if_nothing_had_happened(tmp_path):
    calm = undisturbed(tmp_path / "calm")
    expected, n_expected = records(calm.folder / "journal.jsonl")
    assert {line.get("status") for line in expected.values()} == {None, "ok", "raced"}
    folder = tmp_path / "chaos"
    folder.mkdir()
    chaos = Chaos(folder, random.Random(5).sample(KILLS, len(KILLS)), seed=5)
    chaos.run(n_expected)
    assert chaos.done == Counter(KILLS)
    assert (folder / "history.csv").read_bytes() == (calm.folder / "history.csv").read_bytes()
    # Nothing is lost, nothing is there twice, and nothing differs.
    assert records(folder / "journal.jsonl") == (expected, n_expected)
    events = chaos.log.events()
    n_again = checked_events(events)
    counts = Counter(event["what"] for event in events)
    assert sum(chaos.done.values()) >= 30
    assert counts["parent"] == 1 + chaos.done["SIGKILL"] + chaos.done["SIGTERM"]
    print(
        f"\n{sum(chaos.done.values())} kills: {dict(chaos.done)}; {counts['worker']} workers and {counts['parent']} "
        f"parents started; {n_expected - 1} evaluations, {counts['begin']} passes begun, {n_again} of them again; "
        "history and journal are those of the undisturbed run"
    )


def children(process):
    """Return the workers of a command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
            command = path.with_name("cmdline").read_bytes()
        except OSError:
            continue
        if int(fields[1]) == process.pid and b"spawn_main" in command:
            found.append(int(path.parent.name))
    return found


def test_the_command_line_survives_kills_of_workers_and_of_itself(tmp_path):
    options = [*SMALL[: SMALL.index("--devices")], "--devices", "cpu:2"]
    calm, folder = tmp_path / "calm", tmp_path / "chaos"
    lpes_evo("search", *options, "--output", calm, cwd=tmp_path, check=0)
    drawn = random.Random(7)
    process, orphans = start("search", *options, "--output", folder, cwd=tmp_path), []
    for n_lines, what in ((4, "worker"), (8, "SIGKILL"), (13, "worker"), (18, "SIGTERM")):
        wait_for(folder / "journal.jsonl", n_lines, process)
        workers = children(process)
        if what == "worker":
            os.kill(drawn.choice(workers), signal.SIGKILL)
            continue
        orphans += [(worker, started_at(worker), time.monotonic()) for worker in workers]
        process.send_signal(getattr(signal, what))
        _, errors = process.communicate(timeout=60)
        assert process.returncode == (-signal.SIGKILL if what == "SIGKILL" else 143)
        assert "Traceback" not in errors
        process = start("search", "--resume", folder, "--devices", "cpu:2", cwd=tmp_path)
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors + output
    for worker, since, killed in orphans:
        while started_at(worker) == since:
            assert time.monotonic() < killed + GONE_WITHIN
            time.sleep(0.1)
    assert contents(folder) == contents(calm)
    assert records(folder / "journal.jsonl") == records(calm / "journal.jsonl")
    reports = [json.loads((run / "report.json").read_text()) for run in (calm, folder)]
    for report in reports:
        # The command differs, and with it the checksum.
        assert report.pop("command")
        assert report.pop("check")
    assert reports[0] == reports[1]
    for name in ("convergence.png", "curve.png", "positions.png"):
        assert (folder / name).read_bytes() == (calm / name).read_bytes()


def wait_for(path, n_lines, process):
    deadline = time.monotonic() + 240
    while not path.exists() or path.read_bytes().count(b"\n") < n_lines:
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
