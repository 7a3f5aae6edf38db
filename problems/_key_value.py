"""Key-value retrieval: a JSON object of UUID pairs, and one key whose value is asked for.

The task of Liu et al., *Lost in the Middle* (https://arxiv.org/abs/2307.03172), with its wording.
"""

import gzip
import hashlib
import json
import zlib
from collections.abc import Sequence
from pathlib import Path

from lpes_evo.errors import TaskError
from lpes_evo.problems._draws import Draws
from lpes_evo.problems._task import Example, Split, Task, check_count, check_draw, slot_of

MAX_PAIRS = 100_000
"""Most pairs of a prompt, some millions of tokens."""

Pair = tuple[str, str]
Record = tuple[str, tuple[Pair, ...], Pair]
"""Identity of a record, its pairs without the gold pair, and the gold pair."""


class KeyValueTask(Task):
    """Key-value retrieval from drawn pairs or from a file of the lost-in-the-middle project.

    The examples of drawn pairs are independent of each other. A record of a file serves every position, with
    the gold pair moved there; the records of the two splits never overlap.

    Args:
        n_pairs: Pairs shown in the prompt. With a file, this many pairs of a record are kept: the gold pair
            and the first of the others. ``None`` keeps all pairs of a record, and means 75 without a file. At
            most `MAX_PAIRS`.
        data: A ``.jsonl`` or ``.jsonl.gz`` file whose lines have the fields ``ordered_kv_records``, ``key``
            and ``value``; ``None`` draws the pairs.

    Raises:
        TaskError: ``n_pairs`` is not an integer from 2 to `MAX_PAIRS`, ``data`` is not a path, or the file
            cannot be read, has a malformed line, or a record with fewer pairs than ``n_pairs``.
    """

    name = "kv"

    def __init__(self, n_pairs: int | None = None, data: str | Path | None = None) -> None:
        if n_pairs is not None:
            n_pairs = check_count("n_pairs", n_pairs, least=2, most=MAX_PAIRS)
        if data is not None and not isinstance(data, (str, Path)):
            raise TaskError(
                f"Expected data to be the path of a .jsonl or .jsonl.gz file, but got {data!r:.80}. "
                "Leave it out to draw the pairs."
            )
        self._n_pairs = 75 if n_pairs is None else n_pairs
        self._records = None if data is None else _read_records(Path(data), n_pairs)

    def examples(
        self, *, positions: Sequence[float], n_per_position: int, seed: int, split: Split
    ) -> list[Example]:
        """Make the examples, see `Task.examples`.

        Args:
            positions: Gold positions, each from 0 to 1.
            n_per_position: Examples at each position.
            seed: Seed of the draw.
            split: Which of the two disjoint splits the examples belong to.

        Returns:
            The examples.

        Raises:
            TaskError: An argument is not valid, see `Task.examples`, or the file has too few records.
        """
        places, n_per_position, seed = check_draw(positions, n_per_position, seed, split)
        made = []
        if self._records is not None:
            chosen = _choose_records(self._records, n_per_position, seed, split)
        for place in places:
            for number in range(n_per_position):
                record = (
                    self._drawn_record(split, seed, place, number)
                    if self._records is None
                    else chosen[number]
                )
                made.append(_example(record, place, number, split, seed))
        return made

    def _drawn_record(self, split: str, seed: int, position: float, number: int) -> Record:
        source = f"kv/{split}/{seed}/{position!r}/{number}/{self._n_pairs}"
        draws = Draws(source)
        pairs = [(draws.uuid(), draws.uuid()) for _ in range(self._n_pairs)]
        return source, tuple(pairs[1:]), pairs[0]


def _example(record: Record, position: float, number: int, split: str, seed: int) -> Example:
    source, others, gold = record
    slot = slot_of(position, len(others) + 1)
    pairs = [*others[:slot], gold, *others[slot:]]
    shown = ",\n ".join(f'"{key}": "{value}"' for key, value in pairs)
    prompt = (
        "Extract the value corresponding to the specified key in the JSON object below.\n\n"
        f'JSON data:\n{{{shown}}}\n\nKey: "{gold[0]}"\nCorresponding value:'
    )
    return Example(
        id=f"kv/{split}/{seed}/{position!r}/{number}",
        position=position,
        prompt=prompt,
        answer=gold[1],
        source=source,
    )


def _choose_records(records: Sequence[Record], n_records: int, seed: int, split: Split) -> Sequence[Record]:
    # The order, and with it the border between the splits, depends on the file alone: runs with different
    # seeds must not report what another one searched on.
    shuffled = Draws("kv split", len(records)).sample(records, len(records))
    half = len(records) // 2
    part = shuffled[:half] if split == "search" else shuffled[half:]
    if len(part) < n_records:
        raise TaskError(
            f"Expected at least {n_records} records for the {split} split, but the file gives it "
            f"{len(part)} of its {len(records)}. Ask for fewer examples per position or use a longer file."
        )
    return Draws("kv choice", split, seed).sample(part, n_records)


def _read_records(path: Path, n_pairs: int | None) -> tuple[Record, ...]:
    opener = gzip.open if path.suffix == ".gz" else open
    records = []
    try:
        # Editors on Windows put a byte order mark in front of UTF-8.
        with opener(path, "rt", encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, start=1):
                records.append(_read_record(line, number, path, n_pairs))
    except TaskError:
        raise
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise TaskError(
            f"Expected {path} to be a readable .jsonl or .jsonl.gz file in UTF-8, but reading it failed: "
            f"{error}"
        ) from error
    if not records:
        raise TaskError(f"Expected {path} to hold one JSON record per line, but it is empty.")
    return tuple(records)


def _read_record(line: str, number: int, path: Path, n_pairs: int | None) -> Record:
    expected = f"Expected line {number} of {path} to be a JSON object"
    if not line.strip():
        raise TaskError(f"{expected}, but it is blank. Remove the line.")
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise TaskError(f"{expected}, but it is not JSON: {error}") from error
    fields = ("ordered_kv_records", "key", "value")
    if not isinstance(record, dict) or any(field not in record for field in fields):
        found = sorted(record) if isinstance(record, dict) else type(record).__name__
        raise TaskError(f"{expected} with the fields {', '.join(fields)}, but got {found}.")
    pairs, gold = record["ordered_kv_records"], (record["key"], record["value"])
    if not isinstance(pairs, list) or not all(_is_pair(pair) for pair in [*pairs, list(gold)]):
        raise TaskError(f"{expected} whose ordered_kv_records is a list of [key, value] pairs of strings.")
    others = tuple((key, value) for key, value in pairs if key != gold[0])
    if list(gold) not in pairs or len(others) != len(pairs) - 1:
        raise TaskError(
            f"{expected} in which the pair of key and value stands once, but key {gold[0]!r} does not."
        )
    if n_pairs is not None and len(pairs) < n_pairs:
        raise TaskError(f"{expected} with at least n_pairs = {n_pairs} pairs, but it has {len(pairs)}.")
    # Named by its content, a record is known again in a slice, a copy or another order of the file.
    source = f"kv/record/{hashlib.sha256(json.dumps(gold).encode()).hexdigest()[:24]}"
    return source, others if n_pairs is None else others[: n_pairs - 1], gold


def _is_pair(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(isinstance(part, str) for part in value)
