"""Readers of data files: JSON lines, plain, gzipped or zipped, and Parquet."""

import gzip
import io
import json
import lzma
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, Any, TypeVar

from lpes_evo.errors import TaskError, install_command
from lpes_evo.problems._draws import Draws

T = TypeVar("T")

# Members of a zip can be packed in any of these ways.
_DAMAGED = (zlib.error, lzma.LZMAError, zipfile.BadZipFile)


def optional_module(name: str, purpose: str) -> Any:
    """Import a module of the extra ``[eval]``.

    Args:
        name: Name of the module.
        purpose: The purpose of the module, to complete "to ...".

    Returns:
        The module.

    Raises:
        TaskError: The module is not installed.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise TaskError(
            f"Expected the package {name} to {purpose}, but it is not installed. Run in the clone: "
            f"{install_command('eval')}"
        ) from error


def is_file(path: Path) -> bool:
    """Return whether a path is a file; a path that the system refuses, such as a name too long, is none."""
    try:
        return path.is_file()
    except OSError:
        return False


def is_folder(path: Path) -> bool:
    """Return whether a path is a folder; a path that the system refuses, such as a name too long, is none."""
    try:
        return path.is_dir()
    except OSError:
        return False


@dataclass(frozen=True)
class DataRecord:
    """One row of a file.

    Attributes:
        place: Where the row stands, such as ``line 3 of tpo.jsonl``.
        fields: The content of the row.
    """

    place: str
    fields: dict[str, Any]

    def error(self, expected: str, came: str, remedy: str = "") -> TaskError:
        """Return an error that names the place."""
        return TaskError(f"Expected {self.place} to {expected}, but {came}. {remedy}".rstrip())

    def get(self, field: str) -> Any:
        """Return a field.

        Raises:
            TaskError: The row lacks the field.
        """
        if field not in self.fields:
            raise self.error(
                f"have the field {field!r}", f"it has {', '.join(map(repr, self.fields)) or 'none'}"
            )
        return self.fields[field]

    def text(self, field: str) -> str:
        """Return a text that is not empty.

        Raises:
            TaskError: The row lacks the field, or the field holds something else.
        """
        value = self.get(field)
        if not isinstance(value, str) or not value.strip():
            raise self.error(f"hold text in the field {field!r}", f"it holds {value!r:.60}")
        return value

    def texts(self, field: str) -> tuple[str, ...]:
        """Return a list of texts that are not empty, at least one.

        Raises:
            TaskError: The row lacks the field, the field holds something else, or the list or a text in it is empty.
        """
        value = self.get(field)
        if not isinstance(value, list) or not value or not all(isinstance(part, str) for part in value):
            raise self.error(f"hold a list of texts in the field {field!r}", f"it holds {value!r:.60}")
        empty = next((number for number, part in enumerate(value, start=1) if not part.strip()), None)
        if empty is not None:
            raise self.error(f"hold no empty text in the field {field!r}", f"number {empty} is empty")
        return tuple(value)

    def span(self, start: str, end: str, length: int) -> tuple[int, int]:
        """Return a span that is not empty and lies within a text of ``length`` characters.

        Raises:
            TaskError: The row lacks one of the two fields, or the fields hold no such span.
        """
        first, last = self.get(start), self.get(end)
        if not all(type(value) is int for value in (first, last)) or not 0 <= first < last <= length:
            raise self.error(
                f"have 0 <= {start} < {end} <= {length}, the length of its input",
                f"it has {first!r:.30} and {last!r:.30}",
                "A document that is empty cannot be asked about.",
            )
        return first, last


def read_records(path: Path, member: str = "") -> list[DataRecord]:
    """Read a file.

    Args:
        path: A ``.jsonl``, ``.jsonl.gz``, ``.zip`` or ``.parquet`` file.
        member: Name of the file inside a ``.zip``, without its folder.

    Returns:
        The rows, at least one.

    Raises:
        TaskError: The file cannot be read, is empty, or a line is not a JSON object.
    """
    if path.suffix == ".parquet":
        records = _read_parquet(path)
    else:
        name = f"{path}:{member}" if path.suffix == ".zip" else str(path)
        with _lines(path, member) as lines:
            records = [_parse(line, f"line {number} of {name}") for number, line in enumerate(lines, start=1)]
    if not records:
        raise TaskError(f"Expected {path} to hold at least one row, but it is empty.")
    return records


@contextmanager
def _lines(path: Path, member: str) -> Iterator[IO[str]]:
    """Open a file as text for the length of a block, and turn each failure of reading into one line."""
    try:
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                # Archives made on a Mac hold a second, hidden file of the same name.
                found = [
                    name
                    for name in archive.namelist()
                    if name.rpartition("/")[2] == member and not name.startswith("__MACOSX")
                ]
                if len(found) != 1:
                    raise TaskError(
                        f"Expected {path} to hold one file {member}, but it holds "
                        f"{', '.join(archive.namelist()) or 'nothing'}."
                    )
                with archive.open(found[0]) as raw, io.TextIOWrapper(raw, encoding="utf-8-sig") as lines:
                    yield lines
        else:
            opener = gzip.open if path.suffix == ".gz" else open
            # Editors on Windows put a byte order mark in front of UTF-8.
            with opener(path, "rt", encoding="utf-8-sig") as lines:
                yield lines
    except TaskError:
        raise
    except (OSError, EOFError, ValueError, RuntimeError, *_DAMAGED) as error:
        raise TaskError(
            f"Expected {path} to be a readable file in UTF-8, but reading it failed: {error}. Download it again."
        ) from error


def _parse(line: str, place: str) -> DataRecord:
    """Return the row of a line.

    Raises:
        TaskError: The line is not a JSON object, or holds text that is not Unicode.
    """
    if not line.strip():
        raise TaskError(f"Expected {place} to be a JSON object, but it is blank. Remove the line.")
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise TaskError(f"Expected {place} to be a JSON object, but it is not JSON: {error}.") from error
    if not isinstance(fields, dict):
        raise TaskError(f"Expected {place} to be a JSON object, but it is {fields!r:.60}.")
    if "\\u" in line and not _is_unicode(fields):
        raise TaskError(f"Expected {place} to hold Unicode text, but it holds half of a surrogate pair.")
    return DataRecord(place, fields)


def _is_unicode(value: Any) -> bool:
    """Return whether all text of a JSON value has a UTF-8 form; an escaped lone surrogate has none."""
    try:
        return json.dumps(value, ensure_ascii=False).encode() is not None
    except (UnicodeEncodeError, RecursionError):
        return False


def _read_parquet(path: Path) -> list[DataRecord]:
    """Return the rows of a Parquet file.

    Raises:
        TaskError: The file cannot be read, or the package that reads it is not installed.
    """
    parquet = optional_module("pyarrow.parquet", f"read {path.name}")
    try:
        rows = parquet.read_table(path).to_pylist()
    except (OSError, ValueError, NotImplementedError) as error:
        raise TaskError(f"Expected {path} to be a Parquet file, but reading it failed: {error}.") from error
    return [DataRecord(f"row {number} of {path}", fields) for number, fields in enumerate(rows, start=1)]


def load_hub(repository: str, configuration: str, split: str) -> list[DataRecord]:
    """Load a data set of the Hugging Face hub from its Parquet revision, so that no script of it runs.

    Args:
        repository: Hub id.
        configuration: Name of the configuration.
        split: Name of the split.

    Returns:
        The rows, at least one.

    Raises:
        TaskError: The library ``datasets`` is not installed, or the data cannot be loaded.
    """
    datasets = optional_module("datasets", f"load {repository} from the hub")

    try:
        rows = list(
            datasets.load_dataset(repository, configuration, split=split, revision="refs/convert/parquet")
        )
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise TaskError(
            f"Expected to load {configuration} of {repository} from the hub, but it failed: {reason:.200}. "
            "Check the connection, or download the files and give their folder with --data."
        ) from error
    if not rows:
        raise TaskError(
            f"Expected {configuration} of {repository} to hold at least one row, but it is empty."
        )

    place = f"{split} of {configuration} of {repository}"
    return [
        DataRecord(f"row {number} of {place}", dict(fields)) for number, fields in enumerate(rows, start=1)
    ]


def find_files(folder: Path | None, patterns: Sequence[str], task: str) -> list[Path]:
    """Find the data of a task in a folder or up to two folders below it.

    Args:
        folder: The data folder.
        patterns: Patterns of file names, the preferred one first. ``*.pred.jsonl`` files are predictions and never
            match.
        task: Name of the task, for errors.

    Returns:
        The files that match the first pattern which any file matches, all of one folder, sorted by name.

    Raises:
        TaskError: There is no folder, or no such file in it, or files of several folders match.
    """
    wanted = " or ".join(patterns)
    if folder is None:
        raise TaskError(
            f"Expected a folder with {wanted} for the task {task}, but got none. Give it with --data."
        )
    if not is_folder(folder):
        raise TaskError(
            f"Expected {folder} to be a folder with the data of {task}, but there is no such folder."
        )

    for pattern in patterns:
        for depth in ("", "*/", "*/*/"):
            found = sorted(
                path for path in folder.glob(depth + pattern) if not path.name.endswith(".pred.jsonl")
            )
            if len({path.parent for path in found}) > 1:
                raise TaskError(
                    f"Expected the data of {task} in one place of {folder}, but found "
                    f"{', '.join(map(str, found[:4]))}. Name the folder you mean with --data."
                )
            if found:
                return found

    raise TaskError(
        f"Expected {folder}, or a folder in it, to hold {wanted} for the task {task}, but it does not. "
        "Download the file there; docs/tasks.md says from where."
    )


def find_file(folder: Path | None, patterns: Sequence[str], task: str) -> Path:
    """Find the one data file of a task, see `find_files`.

    Raises:
        TaskError: There is none, or more than one.
    """
    found = find_files(folder, patterns, task)
    if len(found) > 1:
        raise TaskError(
            f"Expected one data file for the task {task}, but found {', '.join(map(str, found[:4]))}. "
            "Keep the one you mean in a folder of its own."
        )
    return found[0]


def choose(items: Sequence[T], limit: int | None, seed: int, label: str) -> list[T]:
    """Choose at most ``limit`` items at random, and keep their order.

    Args:
        items: The items.
        limit: Most items; ``None`` for all.
        seed: Seed of the choice.
        label: A name for the choice.

    Returns:
        The chosen items; equal arguments give equal items on every platform.

    Raises:
        TaskError: The limit is not positive.
    """
    if limit is not None and limit < 1:
        raise TaskError(f"Expected the limit of examples to be at least 1, but got {limit}.")

    if limit is None or limit >= len(items):
        return list(items)
    numbers = Draws("choice", label, seed).sample(range(len(items)), limit)
    return [items[number] for number in sorted(numbers)]
