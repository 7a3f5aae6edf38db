"""Execute the notebooks from top to bottom and say how long each takes.

Run with ``python benchmarks/run_notebooks.py [NOTEBOOK ...]``; without names it takes all in ``notebooks/``. Each
runs in a fresh kernel on a temporary copy of its folder, so it can leave nothing behind. With ``--write`` the
executed outputs go back into the notebook, which is how its pictures are renewed.
"""

import argparse
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
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def execute(path: Path) -> nbformat.NotebookNode:
    """Execute a notebook in a temporary copy of its folder.

    Args:
        path: The notebook; it is left as it is.

    Returns:
        The notebook with the outputs of this execution only.

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
            "PYDEVD_DISABLE_FILE_VALIDATION": "1",  # no remark on debugging
        }
        NotebookClient(
            notebook,
            timeout=_CELL_SECONDS,
            kernel_name="python3",
            record_timing=False,
            config=_transport(Path(temporary)),
            resources={"metadata": {"path": str(folder)}},
        ).execute(env=environment)
    # What would change from one machine to the next without telling a reader anything.
    notebook.metadata.get("language_info", {}).pop("version", None)
    return notebook


def _transport(folder: Path) -> Config:
    """Return the settings for talking to the kernel: through sockets in a folder where the system has them."""
    if os.name != "posix":
        return Config()
    return Config({"KernelManager": {"transport": "ipc", "ip": str(folder / "kernel")}})


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
            notebook = execute(path.resolve())
        except (CellControlSignal, RuntimeError) as error:
            failed = True
            print(f"{path.name}  {time.perf_counter() - start:.1f} s  failed", flush=True)
            print(_COLOURS.sub("", str(error)), file=sys.stderr, flush=True)
            continue
        print(f"{path.name}  {time.perf_counter() - start:.1f} s", flush=True)
        if options.write:
            nbformat.write(notebook, path)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
