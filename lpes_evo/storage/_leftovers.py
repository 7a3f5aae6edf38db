"""Removal of the temporary files of atomic writes that were killed."""

import re
from contextlib import suppress
from pathlib import Path

# Names as `lpes_evo.storage.write_atomic` makes them: a dot, the name of a file of ours, and eight random letters.
_TEMPORARY = re.compile(r"\..+\.(json|jsonl|yaml|csv|md|png|svg|html|safetensors)\.[a-z0-9_]{8}")


def remove_leftovers(folder: Path) -> None:
    """Remove temporary files that killed processes left in a folder.

    The caller holds the lock of the folder, so no file that is being written is among them.

    Args:
        folder: The folder; folders within are left alone.
    """
    with suppress(OSError):
        for file in folder.iterdir():
            if _TEMPORARY.fullmatch(file.name):
                with suppress(OSError):
                    file.unlink()
