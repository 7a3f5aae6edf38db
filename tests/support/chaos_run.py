"""A search that tests kill and start again: its folder holds its journal, its events and, at the end, its history."""

import argparse
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from lpes_evo.operators import CurveSpace
from lpes_evo.storage import Journal
from sheet import N_LAYERS, Log, Sheet, name_of

SPACE = CurveSpace(N_LAYERS, y_min=0.5, y_max=1.5, y_step=0.05, max_delta=0.5)


class Spec:
    """Makes the problem of a worker."""

    def __init__(self, log: Log, delay: float, hold_from: int | None) -> None:
        self.log, self.delay, self.hold_from = log, delay, hold_from

    def __call__(self, _device: str) -> Sheet:
        """Return the problem, and note that there is a worker."""
        self.log.add("worker", parent=os.getppid())
        return Sheet(delay=self.delay, log=self.log, hold_from=self.hold_from)


class NotedJournal(Journal):
    """Notes what it keeps, so that an evaluation after that shows."""

    log: Log

    def append(self, key: str, record: dict[str, Any]) -> None:
        """Write the record, then note it."""
        super().append(key, record)
        (curve,) = SPACE.decode([record["control_points"]])
        self.log.add("kept", curve=name_of(curve), status=record["status"])


def main() -> None:
    """Run the search to its end."""
    # Workers read this file too, and shall be quick.
    from lpes_evo.config import SearchSettings
    from lpes_evo.execution import Evaluator, drive
    from lpes_evo.runs import history_table
    from lpes_evo.search import Search
    from lpes_evo.workers import DevicePool

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--devices", default="cpu:3")
    parser.add_argument("--settings", type=json.loads, default={})
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--work-limit", type=float)
    parser.add_argument("--hold-from", type=int)
    options = parser.parse_args()
    # As the command line does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    log = Log(options.folder / "events.jsonl")
    log.add("parent")
    settings = SearchSettings(**options.settings)
    search = Search(SPACE, settings, seed=3)
    spec = Spec(log, options.delay, options.hold_from)
    with (
        DevicePool(
            options.devices,
            spec,
            work_limit=options.work_limit,
            on_event=lambda text: log.add("lost", text=text) and None,
        ) as pool,
        NotedJournal(options.folder / "journal.jsonl", {}) as journal,
    ):
        journal.log = log
        drive(search, Evaluator(pool, SPACE, settings), journal)
    (options.folder / "history.csv").write_text(history_table(search))


if __name__ == "__main__":
    main()
