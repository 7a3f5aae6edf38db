"""Key-value retrieval: a JSON object of UUID pairs, and one key whose value is asked for.

The task of Liu et al., *Lost in the Middle* (https://arxiv.org/abs/2307.03172), with its wording.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lpes_evo.errors import TaskError
from lpes_evo.problems._checks import check_count
from lpes_evo.problems._data import DataRecord, find_files, read_records
from lpes_evo.problems._draws import Draws
from lpes_evo.problems._example import Example
from lpes_evo.problems._task import DataRequest, check_draw, check_places, slot_of
from lpes_evo.problems.tasks._retrieval import RetrievalTask

MAX_PAIRS = 100_000
"""Most pairs of a prompt, some millions of tokens."""

_N_DRAWN = 75
"""Pairs of a prompt that are drawn where no number is given."""

_FILE = re.compile(r"kv-retrieval-(\d+)_keys\..*")
_HEAD = "Extract the value corresponding to the specified key in the JSON object below.\n\nJSON data:\n{"

Pair = tuple[str, str]


@dataclass(frozen=True)
class _Material:
    """The pairs of a prompt.

    Attributes:
        source: Identity of the material.
        others: The pairs without the gold pair.
        gold: The gold pair.
    """

    source: str
    others: tuple[Pair, ...]
    gold: Pair


class KeyValueTask(RetrievalTask):
    """Key-value retrieval from drawn pairs or from a file of the lost-in-the-middle project.

    The examples of drawn pairs are independent of each other. A record of a file serves every position, with
    the gold pair moved there; the records of the two splits never overlap.

    Args:
        n_pairs: Pairs shown in the prompt, at most `MAX_PAIRS`. With a file, this many pairs of a record are kept: the
            gold pair and the first of the others. ``None`` keeps all pairs of a record, and means 75 without a file.
        data: A ``.jsonl`` or ``.jsonl.gz`` file whose lines have the fields ``ordered_kv_records``, ``key`` and
            ``value``. ``None`` reads a file ``kv-retrieval-N_keys.jsonl.gz`` of the data folder, the one with the
            fewest pairs that has enough, and draws the pairs where there is no folder.
        drawn: Whether to draw the pairs although there is a data folder.

    Raises:
        TaskError: ``n_pairs`` is not an integer from 2 to `MAX_PAIRS`, ``data`` is not a path or does not go with
            ``drawn``, or the file cannot be read, has a malformed line, or a record with fewer pairs than ``n_pairs``.
    """

    def __init__(
        self, n_pairs: int | None = None, data: str | Path | None = None, *, drawn: bool = False
    ) -> None:
        self._n_pairs = None if n_pairs is None else check_count("n_pairs", n_pairs, least=2, most=MAX_PAIRS)
        if data is not None and (not isinstance(data, (str, Path)) or drawn):
            raise TaskError(
                f"Expected data to be the path of a .jsonl or .jsonl.gz file, but got {data!r:.80} and "
                f"drawn={drawn!r:.80}. Leave data out to draw the pairs."
            )

        self._records = None if data is None else _read(Path(data), self._n_pairs)
        self._drawn = drawn
        self.reads_data = not drawn and data is None
        self.name = (
            "kv" + ("" if self._n_pairs is None else f":{self._n_pairs}") + ("+drawn" if drawn else "")
        )

    def examples(self, request: DataRequest) -> list[Example]:
        """Draw or read the examples, see `Task.examples`.

        Args:
            request: Positions, seed, split, and the most examples at each position. `DRAWN_PER_POSITION` is the default
                of drawn pairs; a file gives each split the half of its records at most.

        Returns:
            The examples, ordered by position.

        Raises:
            TaskError: The request is not valid, or a file is missing or malformed.
        """
        records = self._records
        if records is None and request.folder is not None and not self._drawn:
            records = _read(self._file(request.folder), self._n_pairs)

        if records is None:
            places, n_each, seed = check_draw(request)
        else:
            places, seed = check_places(request)
            chosen = _choose(records, request, seed)
            n_each = len(chosen)

        made = []
        for place in places:
            for number in range(n_each):
                name = f"kv/{request.drawn_split}/{seed}/{place!r}/{number}"
                made.append(_example(name, place, self._draw(name) if records is None else chosen[number]))
        return made

    def _draw(self, name: str) -> _Material:
        """Return drawn pairs."""
        n_pairs = self._n_pairs or _N_DRAWN
        source = f"{name}/{n_pairs}"
        draws = Draws(source)
        pairs = [(draws.uuid(), draws.uuid()) for _ in range(n_pairs)]
        return _Material(source, tuple(pairs[1:]), pairs[0])

    def _file(self, folder: Path) -> Path:
        """Return the file of a folder with the fewest pairs that has enough."""
        sizes = [
            (_n_pairs_of(path), path) for path in find_files(folder, ("kv-retrieval-*_keys.*",), self.name)
        ]
        fits = [(size, path) for size, path in sizes if self._n_pairs is None or size >= self._n_pairs]
        # Where all are too short, reading refuses the longest and says what it has.
        return min(fits)[1] if fits else max(sizes)[1]


def _n_pairs_of(path: Path) -> int:
    """Return the pairs of a record that the name of a file promises."""
    named = _FILE.fullmatch(path.name)
    return int(named[1]) if named else 0


def _example(name: str, position: float, material: _Material) -> Example:
    """Return the example of a name, with the gold pair of its material at a position."""
    slot = slot_of(position, len(material.others) + 1)
    pairs = [*material.others[:slot], material.gold, *material.others[slot:]]
    lines = [f'"{key}": "{value}"' for key, value in pairs]
    shown = ",\n ".join(lines)

    start = len(_HEAD) + sum(len(line) + len(",\n ") for line in lines[:slot])
    return Example(
        id=name,
        prompt=f'{_HEAD}{shown}}}\n\nKey: "{material.gold[0]}"\nCorresponding value:',
        answers=(material.gold[1],),
        position=position,
        source=material.source,
        cut=(len(_HEAD), len(_HEAD) + len(shown)),
        gold=(start, start + len(lines[slot])),
    )


def _choose(records: Sequence[_Material], request: DataRequest, seed: int) -> Sequence[_Material]:
    """Return the records of a split that a request asks for."""
    # The order, and with it the border between the splits, depends on the file alone: runs with different
    # seeds must not report what another one searched on.
    shuffled = Draws("kv split", len(records)).sample(records, len(records))
    half = len(records) // 2
    part = shuffled[:half] if request.split == "search" else shuffled[half:]
    limit = len(part) if request.limit is None else check_count("the limit of examples", request.limit)
    return Draws("kv choice", request.drawn_split, seed).sample(part, min(limit, len(part)))


def _read(path: Path, n_pairs: int | None) -> tuple[_Material, ...]:
    """Read the records of a file.

    Raises:
        TaskError: The file cannot be read, or a record is malformed or has fewer pairs than ``n_pairs``.
    """
    return tuple(_material(record, n_pairs) for record in read_records(path))


def _material(record: DataRecord, n_pairs: int | None) -> _Material:
    """Return the pairs of a record; with ``n_pairs``, the gold pair and the first of the others."""
    pairs, gold = record.get("ordered_kv_records"), (record.get("key"), record.get("value"))
    if not isinstance(pairs, list) or not all(_is_pair(pair) for pair in [*pairs, list(gold)]):
        raise record.error(
            "hold a list of [key, value] pairs of strings in the field 'ordered_kv_records'",
            f"it holds {pairs!r:.60}",
        )

    others = tuple((key, value) for key, value in pairs if key != gold[0])
    if list(gold) not in pairs or len(others) != len(pairs) - 1:
        raise record.error(
            "hold the pair of its key and value once", f"{gold[0]!r:.60} does not stand there once"
        )
    if n_pairs is not None and len(pairs) < n_pairs:
        raise record.error(f"hold at least n_pairs = {n_pairs} pairs", f"it has {len(pairs)}")

    # Named by its content, a record is known again in a slice, a copy or another order of the file.
    source = f"kv/record/{hashlib.sha256(json.dumps(gold).encode()).hexdigest()[:24]}"
    return _Material(source, others if n_pairs is None else others[: n_pairs - 1], gold)


def _is_pair(value: object) -> bool:
    """Return whether a value is a list of two strings."""
    return isinstance(value, list) and len(value) == 2 and all(isinstance(part, str) for part in value)
