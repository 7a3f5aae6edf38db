"""`remove_leftovers`: the removal of temporary files that atomic writes of killed processes have left."""

import re
from contextlib import suppress
from pathlib import Path

# The names that `lpes_evo.storage.write_atomic` creates: a dot, the name of the file, and eight random letters.
_TEMPORARY = re.compile(r"\..+\.(json|jsonl|yaml|csv|md|png|svg|html|safetensors)\.[a-z0-9_]{8}")


def remove_leftovers(folder: Path) -> None:
    """Remove temporary files that killed processes left in a folder.

    The caller holds the lock of the folder, so no file that is being written is among them.

    Args:
        folder: The folder; folders inside it are not searched.
    """
    with suppress(OSError):
        for file in folder.iterdir():
            if _TEMPORARY.fullmatch(file.name):
                with suppress(OSError):
                    file.unlink()
