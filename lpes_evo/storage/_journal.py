"""Journal: an append-only JSON-lines file with checksums, which survives a kill at any moment."""

import codecs
import errno
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from lpes_evo.errors import JournalError, StorageError
from lpes_evo.storage._files import to_json
from lpes_evo.storage._locks import lock_descriptor
from lpes_evo.storage._text import check_numbers

_VERSION = 2
_CHECK = "check"
_CHECK_LENGTH = 16
_SINCE_VERSION_2 = ("settings",)
_DAMAGED = "The file was edited or damaged; restore it or start a new run."
_SPARE_BYTES = 1 << 18
# Longer values are hashes, which are of no use to a reader.
_LONGEST_VALUE = 40
_MOST_PARTS = 6


@dataclass(frozen=True)
class JournalLines:
    """The finished lines of a journal, after a check.

    Attributes:
        header: The facts of the run that the journal belongs to, without version and checksum.
        version: Version of the file. Lines of version 1 have no checksums, unless a later version appended them.
        records: The records by key, in the order in which they were finished, without their checksums.
        n_bytes: Size of the finished lines in bytes.
        n_torn: Number of bytes after the last newline, which a kill in the middle of a write leaves.
        salt: A text that enters the checksum of every record.
    """

    header: dict[str, Any]
    version: int
    records: dict[str, dict[str, Any]]
    n_bytes: int
    n_torn: int
    salt: str


def read_journal(path: Path, *, kind: str | None = None) -> JournalLines:
    """Read the finished lines of a journal, also while another process writes it; the file is not changed.

    Args:
        path: The file.
        kind: The ``format`` that the header must state; ``None`` for any format.

    Returns:
        The header and the records. The header is empty if no line is finished.

    Raises:
        JournalError: The file cannot be read, or is of another format. Or a finished line is malformed, has no checksum
            or a wrong one, or has the key of another line.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise JournalError(
            f"Expected a journal at {path}, but it cannot be read: {error.strerror}. Check the path."
        ) from error

    n_bytes = data.rfind(b"\n") + 1
    n_torn = len(data) - n_bytes
    lines = [
        _parse(raw, number, path)
        for number, raw in enumerate(data[:n_bytes].removeprefix(codecs.BOM_UTF8).splitlines(), start=1)
    ]
    if not lines:
        return JournalLines({}, _VERSION, {}, n_bytes, n_torn, "")

    header, *records = lines
    if kind is not None and header.get("format") != kind:
        raise JournalError(
            f"Expected line 1 of {path} to be of a journal of format {kind!r}, but got {header.get('format')!r:.60}. "
            "It is another file, or damaged."
        )

    keys = set()
    for number, record in enumerate(records, start=2):
        key = record.get("key")
        if not isinstance(key, str) or key in keys:
            raise JournalError(
                f"Expected line {number} of {path} to have a key of its own, but got {key!r:.80}. {_DAMAGED}"
            )
        keys.add(key)

    version, salt = _check_first_line(header, path)
    for number, record in enumerate(records, start=2):
        _compare(record.pop(_CHECK, None), _checksum(record, salt), version, number, path)

    return JournalLines(header, version, {record["key"]: record for record in records}, n_bytes, n_torn, salt)


def read_header(path: Path) -> dict[str, Any]:
    """Read the header of a journal alone.

    Args:
        path: The file.

    Returns:
        The header without version and checksum; empty if there is no file, or its first line is not finished.

    Raises:
        JournalError: The first line is malformed, or was changed after it was written.
        StorageError: The file cannot be read.
    """
    if not path.is_file():
        return {}

    with _Explained(f"Expected to read {path}"), path.open("rb") as file:
        raw = file.readline()
    if not raw.endswith(b"\n"):
        return {}

    header = _parse(raw.removeprefix(codecs.BOM_UTF8), 1, path)
    _check_first_line(header, path)
    return header


def _check_first_line(header: dict[str, Any], path: Path) -> tuple[int, str]:
    """Remove version and checksum from a header, and return the version and the salt of the other checksums."""
    version = header.pop("version", 1)
    if type(version) is not int or not 1 <= version <= _VERSION:
        raise JournalError(
            f"Expected {path} to be a journal of version 1 to {_VERSION}, but got {version!r:.40}. It is damaged, or a "
            "later version of lpes-evo wrote it, which can read it."
        )

    stated = header.pop(_CHECK, None)
    salt = _checksum({**header, "version": version}, "")
    _compare(stated, salt, version, 1, path)
    return version, salt


def _parse(raw: bytes, number: int, path: Path) -> dict[str, Any]:
    """Return a line as a dict whose numbers are all finite.

    Raises:
        JournalError: The line is not such a JSON object.
    """
    try:
        line = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise JournalError(
            f"Expected line {number} of {path} to be a JSON object, but got {raw[:60]!r}. {_DAMAGED}"
        ) from error

    if not isinstance(line, dict):
        raise JournalError(
            f"Expected line {number} of {path} to be a JSON object, but got {type(line).__name__}. {_DAMAGED}"
        )

    check_numbers(line, f"line {number} of {path}", JournalError, _DAMAGED)
    return line


def _checksum(line: dict[str, Any], salt: str) -> str:
    """Return the checksum of the values of a line, which does not depend on their order or on spaces.

    The checksum of a record includes that of the header, so that a line of another journal is noticed. It does not
    include earlier records. So if one line is lost, only the work of this line is done again.
    """
    text = json.dumps(line, sort_keys=True, allow_nan=False)
    return hashlib.sha256((salt + text).encode()).hexdigest()[:_CHECK_LENGTH]


def _compare(stated: Any, expected: str, version: int, number: int, path: Path) -> None:
    """Refuse a line that was changed after it was written.

    Raises:
        JournalError: The checksum is wrong, or is missing in a file whose lines all have one.
    """
    if stated == expected or (stated is None and version == 1):
        return
    came = "has none" if stated is None else f"says {stated!r:.40}"
    raise JournalError(
        f"Expected line {number} of {path} to have the checksum {expected}, but it {came}. The line is not what was "
        "written: the file was edited or damaged; restore it, or remove the line to have its work done again."
    )


class Journal:
    """A durable map from keys to records.

    The first line is the header, which states the facts of the run that the journal belongs to. Every other line is
    ``{"key": ..., ..., "check": ...}``, with a checksum over the rest of the line and the header. A line is finished
    once its newline is on the disk. A kill in the middle of a write leaves a torn last line, which is cut off when the
    journal is opened again. A spare file of 256 KiB reserves room for one more record, so that an evaluation that
    finishes on a full disk is saved before the run stops.

    A journal has one writer. Opening it a second time, in this process or another, is refused. A journal of version 1,
    whose lines have no checksums, can be continued; the lines that are appended have checksums.

    Args:
        path: The journal file, which is created if it does not exist.
        header: Facts of the run, such as the format and the hash of a configuration. The entries ``version`` and
            ``check`` are reserved for the journal.
        on_event: Called with one line if a torn last line was cut off.

    Raises:
        JournalError: A finished line is malformed or was changed, the file has another header, or another journal has
            it open.
        StorageError: The file cannot be read or written, or its file system supports no locks.
    """

    def __init__(
        self, path: Path, header: dict[str, Any], *, on_event: Callable[[str], None] | None = None
    ) -> None:
        self.path = path
        self._spare = path.with_name(f".{path.name}.spare")
        self._records: dict[str, dict[str, Any]] = {}
        header = {name: value for name, value in header.items() if name not in ("version", _CHECK)}

        with self._explained("open"):
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)

        try:
            taken = "it is open already, in this process or another"
            lock_descriptor(self._descriptor, path, str(path), taken=taken)

            found = read_journal(path)
            if found.n_bytes:
                self._check_header(found, header)

            with self._explained("append to"):
                os.ftruncate(self._descriptor, found.n_bytes)

            if found.n_bytes:
                self._salt = found.salt
            else:
                first = {"format": header["format"]} if "format" in header else {}
                first |= {"version": _VERSION, **header}
                self._salt = _checksum(first, "")
                self._append_line(first | {_CHECK: self._salt})

            self._records = found.records
            if found.n_torn and on_event is not None:
                on_event(
                    f"{path.name} ended in the middle of a line, as after a kill: the {found.n_torn} bytes were cut "
                    "off, and their work is done again"
                )

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
        """Iterate over the records in the order in which they were finished."""
        return iter(self._records.values())

    def get(self, key: str) -> dict[str, Any] | None:
        """Return the record of ``key``, or ``None`` if there is none."""
        return self._records.get(key)

    def append(self, key: str, record: dict[str, Any]) -> None:
        """Write a record, and return once it is on the disk.

        Args:
            key: A key that was not used before.
            record: Values that `json` can write.

        Raises:
            JournalError: The key is in use or not a text, or the record has a field ``key`` or ``check``.
            StorageError: The record cannot be written.
        """
        if not isinstance(key, str) or "key" in record or _CHECK in record:
            raise JournalError(
                "Expected a key that is text and a record without a key and a check, but got "
                f"{key!r} and {record!r:.60}."
            )
        if key in self._records:
            raise JournalError(f"Expected a new key, but {key!r} is already in {self.path}.")

        line = {"key": key, **record}
        self._append_line(line | {_CHECK: _checksum(line, self._salt)})
        self._records[key] = line

    def close(self) -> None:
        """Close the file and remove the spare file; a second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            with suppress(OSError):
                self._spare.unlink(missing_ok=True)

    def _check_header(self, lines: JournalLines, expected: dict[str, Any]) -> None:
        found = lines.header
        if lines.version == 1:
            # Entries that headers of version 1 did not have yet cannot be compared.
            expected = {
                key: value for key, value in expected.items() if key in found or key not in _SINCE_VERSION_2
            }

        if found.get("format") != expected.get("format"):
            # The file belongs to another program, so nothing else in it can be compared.
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

                # The record takes the room of the spare file, and the run stops all the same.
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
        return _Explained(f"Expected to {action} {self.path}")


def _change(key: str, found: Any, expected: Any) -> str:
    """Describe the difference of a header entry: the names of differing parts, or both values unless they are long."""
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
    """A context that turns an `OSError` of the block into a `StorageError` of one line."""

    def __init__(self, expected: str) -> None:
        self._expected = expected

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
