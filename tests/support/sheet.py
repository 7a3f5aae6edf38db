"""A problem without a model that tests of evaluation, of the loop and of kills share."""

import json
import os
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lpes_evo.problems import Problem

N_LAYERS = 8


class Log:
    """An append-only file of events, to which several processes write."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)

    def add(self, what: str, **facts: Any) -> int:
        """Write an event in one piece, and return how many events of its kind there were before it."""
        line = json.dumps({"what": what, "pid": os.getpid(), **facts}) + "\n"
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(descriptor, line.encode())
            end = os.lseek(descriptor, 0, os.SEEK_CUR)
        finally:
            os.close(descriptor)
        before = Path(self._path).read_bytes()[: end - len(line)]
        return before.count(f'"what": "{what}"'.encode())

    def events(self) -> list[dict[str, Any]]:
        """Return all events in the order they were written."""
        path = Path(self._path)
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class Sheet(Problem):
    """Texts with a question in each of three sets; every question wants a curve of its own.

    Args:
        n_texts: Number of texts.
        n_fit: Candidates that share a pass.
        is_exact: See `Problem`.
        delay: Mean seconds of a pass; each pass takes from half of it to one and a half, by curve and block.
        log: Where every pass notes its beginning and its end.
        hold_from: The number of the pass from which on passes never end.
    """

    n_layers = N_LAYERS

    def __init__(
        self,
        n_texts: int = 8,
        n_fit: int = 1,
        is_exact: bool = True,
        delay: float = 0.0,
        log: Log | None = None,
        hold_from: int | None = None,
    ) -> None:
        self.example_ids = tuple(f"{text}/{place}" for text in range(n_texts) for place in ("b", "m", "e"))
        self.groups = ("begin", "middle", "end") * n_texts
        self.sources = tuple(str(text) for text in range(n_texts) for _ in range(3))
        self.n_fit, self.is_exact = n_fit, is_exact
        self.delay, self.log, self.hold_from = delay, log, hold_from
        self.targets = 1 + 0.2 * np.sin(np.arange(3 * n_texts)[:, None] + np.arange(N_LAYERS))
        self.calls: list[tuple[np.ndarray, tuple[str, ...]]] = []

    def score(self, scales: Any, example_ids: Sequence[str] | None = None) -> Any:
        """Score one curve."""
        chosen = [self.example_ids.index(name) for name in example_ids or self.example_ids]
        return -((self.targets[chosen] - scales) ** 2).mean(axis=1)

    def score_many(self, scales: Any, example_ids: Sequence[str] | None = None) -> Any:
        """Score curves, and note it."""
        ids = tuple(example_ids or self.example_ids)
        self.calls.append((np.array(scales), ids))
        facts = {"curves": [name_of(curve) for curve in scales], "block": ids[0]}
        number = self.log.add("begin", **facts) if self.log else 0
        if self.hold_from is not None and number >= self.hold_from:
            time.sleep(1000)
        time.sleep(self.delay * (0.5 + zlib.crc32(scales.tobytes() + ids[0].encode()) % 1000 / 1000))
        scores = np.array([self.score(curve, ids) for curve in scales])
        if self.log:
            self.log.add("end", **facts)
        return scores

    def n_tokens_of(self, example_ids: Sequence[str]) -> int:
        """Return ten tokens for each example."""
        return 10 * len(example_ids)

    def n_candidates_that_fit(self, example_ids: Sequence[str]) -> int:
        """Return what the problem was told."""
        return self.n_fit


def name_of(curve: np.ndarray) -> str:
    """Return a short name of a curve, the same in all processes."""
    return f"{zlib.crc32(np.asarray(curve, dtype=np.float64).tobytes()):08x}"


class Sloped(Sheet):
    """A sheet that knows its gradients, and notes where it was asked for them."""

    def __init__(self, **options):
        super().__init__(**options)
        self.probes = []

    def gradient(self, scales, example_ids=None, weights=None):
        self.probes.append((np.array(scales), tuple(example_ids)))
        chosen = [self.example_ids.index(name) for name in example_ids]
        slopes = -2 * (scales - self.targets[chosen]) / N_LAYERS
        return self.score(scales, example_ids), weights @ slopes


class Faulty(Sheet):
    """Fails for a fourth of all curves.

    Args:
        bad: The score it gives then, or ``raise``, or ``shape`` for scores of a wrong shape.
        **options: See `Sheet`.
    """

    def __init__(self, bad: Any = "raise", **options: Any) -> None:
        super().__init__(**options)
        self.bad = bad

    def score(self, scales: Any, example_ids: Sequence[str] | None = None) -> Any:
        """Score one curve, or fail."""
        scores = super().score(scales, example_ids)
        if zlib.crc32(scales.tobytes()) % 4:
            return scores
        if self.bad == "raise":
            raise RuntimeError("out of luck")
        return np.ones(2) if self.bad == "shape" else np.array([self.bad, *scores[1:]])
