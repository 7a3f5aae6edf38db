"""The command line, in a process of its own as a user runs it, or in the process of the tests.

A process of its own shows signals, streams, locks, workers and start-up; it takes seconds to load torch. All else, such
as the refusal of bad input, is tried with `run_here`.
"""

import contextlib
import io
import logging
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from unittest import mock

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


def run_here(*arguments, cwd, check=None):
    """Run a command in this process, and leave the process as it was.

    Returns:
        What `lpes_evo` returns: exit code, standard output and standard error.
    """
    from lpes_evo.cli import main

    output, errors = io.StringIO(), io.StringIO()
    with (
        _process_as_it_was(),
        mock.patch.object(sys, "argv", [str(PROGRAM), *map(str, arguments)]),
        mock.patch.object(sys, "stdout", output),
        mock.patch.object(sys, "stderr", errors),
        mock.patch.dict(os.environ, {"COLUMNS": "200"}),
    ):
        os.chdir(cwd)
        try:
            main()
        except SystemExit as end:
            code = end.code

    result = subprocess.CompletedProcess(arguments, code, output.getvalue(), errors.getvalue())
    assert "Traceback" not in result.stderr
    if check is not None:
        assert result.returncode == check, result.stderr + result.stdout
    return result


@contextlib.contextmanager
def _process_as_it_was():
    """Return a context that puts back what a command may change in the process."""
    import torch
    from transformers.utils import logging as transformers_logging

    # A process of its own says so by a variable that is read when the library is loaded.
    transformers_logging.disable_progress_bar()
    folder, n_threads = Path.cwd(), torch.get_num_threads()
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    known = set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}
    actions = {number: signal.getsignal(number) for number in known}

    try:
        with warnings.catch_warnings(), mock.patch.dict(os.environ):
            yield
    finally:
        for number, action in actions.items():
            if action is not None and signal.getsignal(number) is not action:
                signal.signal(number, action)
        root.handlers[:], root.level = handlers, level
        transformers_logging.enable_progress_bar()
        torch.set_num_threads(n_threads)
        os.chdir(folder)


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
