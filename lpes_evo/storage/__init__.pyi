from ._files import (
    check_new_file as check_new_file,
    make_folder as make_folder,
    to_json as to_json,
    write_atomic as write_atomic,
)
from ._folders import WorkFolder as WorkFolder
from ._journal import Journal as Journal, read_header as read_header, read_journal as read_journal
from ._leftovers import remove_leftovers as remove_leftovers
from ._locks import FileLock as FileLock, lock_descriptor as lock_descriptor
from ._record import Record as Record
from ._text import (
    check_numbers as check_numbers,
    parse_json as parse_json,
    parse_yaml as parse_yaml,
    read_text as read_text,
    shown as shown,
)
from .provenance import (
    RunProvenance as RunProvenance,
    describe as describe,
    package_versions as package_versions,
)
