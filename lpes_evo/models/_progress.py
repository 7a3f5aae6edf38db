"""LoadingProgress: how much of a model is loaded, told by the worker that loads it."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lpes_evo.workers import tell

PERIOD_SECONDS = 10.0
"""Seconds between two lines of one worker, so that nothing is told of a small model."""


class LoadingProgress:
    """Tells how much of a model is in place, at most once in `PERIOD_SECONDS`.

    Args:
        name: Name of the model.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._told_at = time.monotonic()

    def __call__(self, done: int, whole: int) -> None:
        """Tell it where it is time.

        Args:
            done: Bytes of the model that are on their device.
            whole: Bytes of the whole model.
        """
        if done < whole and self._is_time():
            tell(f"has loaded {done / whole:.0%} of {self._name} ({whole / 2**30:.1f} GiB)")

    @contextmanager
    def of_files(self) -> Iterator[None]:
        """Tell how many weights transformers has read from the files, for the length of a block.

        Versions of transformers whose bar of progress cannot be followed tell nothing.
        """
        from transformers.utils import logging

        if not hasattr(logging, "set_tqdm_hook"):
            yield
            return

        before = logging.set_tqdm_hook(self._follow)
        try:
            yield
        finally:
            logging.set_tqdm_hook(before)

    def _follow(self, make: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the bar that transformers asks for; that of the weights also tells how far it is."""
        bar = make(*args, **kwargs)
        is_of_weights = kwargs.get("desc") == "Loading weights" and args and hasattr(args[0], "__len__")
        return self._counted(bar, len(args[0])) if is_of_weights else bar

    def _counted(self, entries: Any, whole: int) -> Iterator[Any]:
        for done, entry in enumerate(entries):
            if self._is_time():
                tell(f"has read {done} of {whole} weights of {self._name}")
            yield entry

    def _is_time(self) -> bool:
        now = time.monotonic()
        if now - self._told_at < PERIOD_SECONDS:
            return False
        self._told_at = now
        return True
