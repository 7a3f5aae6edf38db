"""Execute the notebooks from top to bottom, say how long each takes, and check what they were committed with.

Run with ``python benchmarks/run_notebooks.py [NOTEBOOK ...]``; without names it takes all in ``notebooks/``. Each
runs in a fresh kernel on a temporary copy of its folder, so it can leave nothing behind. With ``--write`` the
executed outputs go back into the notebook, which is how its pictures are renewed.

A notebook fails that does not run through, or whose outputs in the file are not those of its code: then it needs
``--write``. Numbers may differ from one machine to the next, so outputs that came out otherwise are only told.
"""

import argparse
import hashlib
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellControlSignal
from traitlets.config import Config

_NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
_CELL_SECONDS = 600
_MOST_BYTES = 1_000_000
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_OWN_METADATA = "lpes_evo"
# Folders and addresses of the machine that a notebook was executed on.
_MACHINE = re.compile(r"(?<![\w.:/])/(?:home|root|tmp|Users|var|opt|work|mnt)/|\b[A-Z]:\\|\b0x[0-9a-f]{6,}\b")


def execute(path: Path) -> nbformat.NotebookNode:
    """Execute a notebook in a temporary copy of its folder.

    Args:
        path: The notebook; it is left as it is.

    Returns:
        The notebook with the outputs of this execution only, and a note of the code that they belong to.

    Raises:
        CellExecutionError: A cell failed.
        CellTimeoutError: A cell took longer than ten minutes.
        RuntimeError: The kernel did not start, or died.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / path.parent.name
        shutil.copytree(path.parent, folder, ignore=shutil.ignore_patterns(".*"))
        notebook = nbformat.read(folder / path.name, as_version=4)
        environment = {
            **os.environ,
            "IPYTHONDIR": str(Path(temporary) / "ipython"),  # no start-up files of the user
            "MPLBACKEND": "module://matplotlib_inline.backend_inline",  # pictures, whatever the shell says
            "OMP_NUM_THREADS": "1",  # more threads change the last digits, and make small matrices slower
            # No remarks on debugging, widgets that are not installed, and how far files are read.
            "PYDEVD_DISABLE_FILE_VALIDATION": "1",
            "PYTHONWARNINGS": "ignore:IProgress not found",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        }
        NotebookClient(
            notebook,
            timeout=_CELL_SECONDS,
            kernel_name="python3",
            record_timing=False,
            coalesce_streams=True,
            config=_transport(Path(temporary)),
            resources={"metadata": {"path": str(folder)}},
        ).execute(env=environment)
    # What would change from one machine to the next without telling a reader anything.
    notebook.metadata.get("language_info", {}).pop("version", None)
    notebook.metadata[_OWN_METADATA] = {"outputs_of": _code_hash(notebook)}
    return notebook


def _transport(folder: Path) -> Config:
    """Return the settings for talking to the kernel: through sockets in a folder where the system has them."""
    if os.name != "posix":
        return Config()
    return Config({"KernelManager": {"transport": "ipc", "ip": str(folder / "kernel")}})


def flaws(notebook: nbformat.NotebookNode) -> list[str]:
    """Return why the outputs in a notebook cannot be shown to a reader.

    Args:
        notebook: An executed notebook.

    Returns:
        A line for each reason; none where its outputs are those of its code in the order of the cells, without error
        or warning, name no folder of a machine, and make no large file.
    """
    cells = _code_cells(notebook)

    found = []
    if notebook.metadata.get(_OWN_METADATA, {}).get("outputs_of") != _code_hash(notebook):
        found.append("the outputs belong to other code")
    if [cell.execution_count for cell in cells] != list(range(1, len(cells) + 1)):
        found.append("the cells were not executed in their order")

    for number, cell in enumerate(cells, start=1):
        if any(output.output_type == "error" for output in cell.outputs):
            found.append(f"cell {number} ended with an error")
        if any(output.get("name") == "stderr" for output in cell.outputs):
            found.append(f"cell {number} wrote to stderr")
        place = _MACHINE.search("\n".join(_texts(cell)))
        if place is not None:
            found.append(f"the output of cell {number} names {place[0]!r}, a place on one machine")

    n_bytes = len(nbformat.writes(notebook).encode())
    if n_bytes > _MOST_BYTES:
        found.append(f"it has {n_bytes} bytes, more than {_MOST_BYTES}")
    return found


def changed_cells(before: nbformat.NotebookNode, after: nbformat.NotebookNode) -> list[int]:
    """Return the numbers, counted from 1, of the code cells whose outputs differ in text or kind.

    Args:
        before: An executed notebook.
        after: The same code, executed again.
    """
    pairs = zip(_code_cells(before), _code_cells(after), strict=True)
    return [number for number, (old, new) in enumerate(pairs, start=1) if _texts(old) != _texts(new)]


def _code_cells(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def _code_hash(notebook: nbformat.NotebookNode) -> str:
    return hashlib.sha256("\0".join(cell.source for cell in _code_cells(notebook)).encode()).hexdigest()


def _texts(cell: nbformat.NotebookNode) -> list[str]:
    """Return what a cell printed or returned as text, and the kinds of its other outputs."""
    texts = []
    for output in cell.outputs:
        data = output.get("data", {})
        texts += [output.get("text", ""), data.get("text/plain", ""), *sorted(data)]
    return texts


def main(arguments: Sequence[str] | None = None) -> int:
    """Execute the notebooks named on the command line.

    Args:
        arguments: Command line without the program; that of the process when ``None``.

    Returns:
        The exit status: 0, or 1 if a notebook failed or there is none.
    """
    parser = argparse.ArgumentParser(description="Execute notebooks from top to bottom.")
    parser.add_argument("notebooks", nargs="*", type=Path, help="notebooks; all in notebooks/ by default")
    parser.add_argument("--write", action="store_true", help="store the outputs in the notebooks")
    options = parser.parse_args(arguments)
    paths = options.notebooks or sorted(_NOTEBOOKS.glob("*.ipynb"))
    missing = [str(path) for path in paths if not path.is_file()]
    if missing or not paths:
        print(f"Expected notebooks, but found none at {', '.join(missing) or _NOTEBOOKS}.", file=sys.stderr)
        return 1

    failed = False
    for path in paths:
        start = time.perf_counter()
        try:
            executed = execute(path.resolve())
        except (CellControlSignal, RuntimeError) as error:
            failed = True
            print(f"{path.name}  {time.perf_counter() - start:.1f} s  failed", flush=True)
            print(_COLOURS.sub("", str(error)), file=sys.stderr, flush=True)
            continue

        print(f"{path.name}  {time.perf_counter() - start:.1f} s", flush=True)
        kept = executed if options.write else nbformat.read(path, as_version=4)
        found = flaws(kept)
        for reason in found:
            remedy = "Mend the notebook" if options.write else "Mend the notebook, or renew it with --write"
            print(f"{path.name}: {reason}. {remedy}.", file=sys.stderr, flush=True)
        if found:
            failed = True
        elif options.write:
            nbformat.write(executed, path)
        elif changed := changed_cells(kept, executed):
            print(f"{path.name}: other outputs than in the file in cells {', '.join(map(str, changed))}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
