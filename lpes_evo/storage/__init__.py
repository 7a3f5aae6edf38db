"""What every file that is read back is made with: one strict model a file, checksums for lines, locks for files."""

from lpes_evo.storage._leftovers import remove_leftovers
from lpes_evo.storage._locks import FileLock, lock_descriptor
from lpes_evo.storage._record import Record
from lpes_evo.storage._text import check_numbers, parse_json, parse_yaml, read_text, shown

__all__ = [
    "FileLock",
    "Record",
    "check_numbers",
    "lock_descriptor",
    "parse_json",
    "parse_yaml",
    "read_text",
    "remove_leftovers",
    "shown",
]
