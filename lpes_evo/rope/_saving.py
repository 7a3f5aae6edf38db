"""Saving of patched models: weights alone are saved, so that scales must be written beside them, or are lost."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

__all__ = ["SaveWatch"]

_METHOD, _FOLDER = "save_pretrained", "save_directory"
"""The method of transformers and peft that writes a folder, and the argument that names it."""


class SaveWatch:
    """Hears when a module hands out its weights to be saved, and has its scales written beside them.

    Attributes:
        write: Writes the scales into a folder; ``None`` where nobody has asked for that.
    """

    def __init__(self) -> None:
        self.write: Callable[[Path], None] | None = None
        self._has_warned = False

    def __call__(self, _module: Any, _prefix: str, _keep_vars: bool) -> None:
        """Write the scales, or warn once that they are lost; a hook before ``state_dict``."""
        folder = _folder_being_saved()
        if folder is None:
            return
        if self.write is not None:
            self.write(folder)
        elif not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"The scales of this model are not saved with it: what {_METHOD} writes is the untouched model. Load "
                "the model with lpes_evo.from_pretrained(name, scales=...) to have them written beside the weights, or "
                "export it with 'lpes-evo export'.",
                stacklevel=2,
            )


def _folder_being_saved() -> Path | None:
    """Return the folder that a call further up writes a model into, or ``None`` where weights are asked for otherwise.

    Transformers and peft tell hooks of no folder, so it is read from the argument of their method.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == _METHOD and _FOLDER in frame.f_locals:
            return Path(frame.f_locals[_FOLDER])
        frame = frame.f_back
    return None
