"""An append-only file of finished work, one JSON object a line, that survives a kill at any moment."""

import errno
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from lpes_evo._files import to_json
from lpes_evo.errors import JournalError, StorageError

_SPARE_BYTES = 1 << 18
# Longer values are hashes, which tell a reader nothing.
_LONGEST_VALUE = 40
_MOST_PARTS = 6


class Journal:
    """A durable map from keys to records.

    The first line says what the journal belongs to; every other line is ``{"key": ..., ...}``. A line counts once
    its newline is on the disk: a torn last line, left by a kill in the middle of a write, is cut off when the
    journal is opened again. A spare file of 256 KiB keeps room for the record in hand, so that an evaluation that
    finishes on a full disk is saved before the run stops.

    Args:
        path: The journal file; made when it does not exist.
        header: What the journal belongs to, such as the hash of a configuration.

    Raises:
        JournalError: A finished line is malformed, or the file has another header.
        StorageError: The file cannot be read or written.
    """

    def __init__(self, path: Path, header: dict[str, Any]) -> None:
        self.path = path
        self._spare = path.with_name(f".{path.name}.spare")
        self._records: dict[str, dict[str, Any]] = {}
        with self._explained("open"):
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            with self._explained("read"):
                finished = self._read(header)
                os.ftruncate(self._descriptor, finished)
            if finished == 0:
                self._append_line(header)
            self._keep_spare()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Journal":
        """Return the journal."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the journal."""
        self.close()

    def __len__(self) -> int:
        """Return the number of finished records."""
        return len(self._records)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Iterate over the records in the order they were finished."""
        return iter(self._records.values())

    def get(self, key: str) -> dict[str, Any] | None:
        """Return the record of ``key``, or ``None`` where there is none."""
        return self._records.get(key)

    def append(self, key: str, record: dict[str, Any]) -> None:
        """Write a record and return once it is on the disk.

        Args:
            key: The key, not used before.
            record: Values that `json` can write.

        Raises:
            JournalError: The key is taken or no text, or the record has a field ``key``.
            StorageError: The record cannot be written.
        """
        if not isinstance(key, str) or "key" in record:
            raise JournalError(
                f"Expected a key that is text and a record without a key, but got {key!r} and {record!r:.60}."
            )
        if key in self._records:
            raise JournalError(f"Expected a new key, but {key!r} is already in {self.path}.")
        line = {"key": key, **record}
        self._append_line(line)
        self._records[key] = line

    def close(self) -> None:
        """Close the file and remove the spare; closing twice is closing once."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            with suppress(OSError):
                self._spare.unlink(missing_ok=True)

    def _read(self, header: dict[str, Any]) -> int:
        """Load all finished lines and return the size of that part in bytes."""
        data = self.path.read_bytes()
        finished = data.rfind(b"\n") + 1
        for number, raw in enumerate(data[:finished].splitlines(), start=1):
            line = self._parse(raw, number)
            if number == 1:
                self._check_header(line, header)
            elif not isinstance(line.get("key"), str) or line["key"] in self._records:
                raise JournalError(
                    f"Expected line {number} of {self.path} to have a key of its own, but got {line.get('key')!r}. "
                    "The file was edited; restore it or start a new run."
                )
            else:
                self._records[line["key"]] = line
        return finished

    def _parse(self, raw: bytes, number: int) -> dict[str, Any]:
        try:
            line = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise JournalError(
                f"Expected line {number} of {self.path} to be a JSON object, but got {raw[:60]!r}. "
                "The file was edited or damaged; restore it or start a new run."
            ) from error
        if not isinstance(line, dict):
            raise JournalError(
                f"Expected line {number} of {self.path} to be a JSON object, but got {type(line).__name__}. "
                "The file was edited or damaged; restore it or start a new run."
            )
        return line

    def _check_header(self, found: dict[str, Any], expected: dict[str, Any]) -> None:
        if found.get("format") != expected.get("format"):
            # The file of another program: nothing else of it can be compared.
            found, expected = ({"format": line.get("format")} for line in (found, expected))
        differing = sorted(
            key for key in expected.keys() | found.keys() if expected.get(key) != found.get(key)
        )
        if differing:
            changes = ", ".join(_change(key, found.get(key), expected.get(key)) for key in differing)
            raise JournalError(
                f"Expected {self.path} to belong to this run, but {changes}. Resume with the configuration, data, "
                "weights and kind of device it was made with, or choose another folder."
            )

    def _append_line(self, line: dict[str, Any]) -> None:
        data = (to_json(line) + "\n").encode()
        with self._explained("append to"):
            end = os.fstat(self._descriptor).st_size
            try:
                self._write(data)
            except OSError as error:
                os.ftruncate(self._descriptor, end)
                if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not self._spare.exists():
                    raise
                self._spare.unlink()
                self._write(data)
                raise

    def _write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._descriptor, data) :]
        os.fsync(self._descriptor)

    def _keep_spare(self) -> None:
        with self._explained("reserve space beside"):
            self._spare.write_bytes(b"\0" * _SPARE_BYTES)

    def _explained(self, action: str) -> "_Explained":
        return _Explained(f"Expected to {action} {self.path}", self._records)


def _change(key: str, found: Any, expected: Any) -> str:
    """Say in what an entry of a header is another one: of several named parts the names, of a hash nothing more."""
    if isinstance(found, dict) and isinstance(expected, dict):
        parts = sorted(
            part for part in found.keys() | expected.keys() if found.get(part) != expected.get(part)
        )
        shown = [str(part)[:40] for part in parts[:_MOST_PARTS]]
        more = [f"{len(parts) - _MOST_PARTS} more"] if len(parts) > _MOST_PARTS else []
        return f"its {key.replace('_', ' ')} of {' and '.join([*shown, *more])} is another"
    if any(
        isinstance(value, (dict, list)) or len(str(value)) > _LONGEST_VALUE for value in (found, expected)
    ):
        return f"its {key.replace('_', ' ')} is another"
    return f"its {key.replace('_', ' ')} is {found!r} and this run's is {expected!r}"


class _Explained:
    """Turns an `OSError` of the block into one clear `StorageError`."""

    def __init__(self, expected: str, records: dict[str, Any]) -> None:
        self._expected = expected
        self._records = records

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, OSError):
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            remedy = "free some space" if full else "see that the folder exists and that you may write to it"
            raise StorageError(
                f"{self._expected}, but the system said: {error.strerror or error}. Finished work is safe; "
                f"{remedy}, then run again with --resume."
            ) from error
