"""Record: the strict model by which every file, and every line of a journal, is written and read."""

import hashlib
import json
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from lpes_evo.errors import JournalError, LpesError
from lpes_evo.storage._files import to_json, write_atomic
from lpes_evo.storage._text import check_numbers, parse_json, read_text, shown, without_halves

_Self = TypeVar("_Self", bound="Record")
_CHECK = "check"
_CHECK_DIGITS = 16


class Record(BaseModel):
    """Base of all data that is read back from a file: each field has its type, and none is missing or unknown.

    A subclass for a whole file has the fields ``format`` and ``version``, each a `Literal` with a default. A subclass
    for a part of a file, or for a line of a journal, has neither.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    WHAT: ClassVar[str] = "a record"
    """Description of the file, a noun with its article."""
    SOUGHT: ClassVar[str] = "a record at"
    """Description of a missing file, with a preposition at its end."""
    ERROR: ClassVar[type[LpesError]] = JournalError
    """Class of the errors about the file."""
    MISSING: ClassVar[str] = "Check the path."
    """The remedy for a missing file, as a sentence."""
    REMEDY: ClassVar[str] = "Restore it."
    """The remedy for a damaged file, as a sentence."""
    CHECKED: ClassVar[bool] = False
    """Whether the file has a checksum of its content under ``check``; files of earlier versions have none."""

    @classmethod
    def of(cls: type[_Self], values: Any, place: str) -> _Self:
        """Return the record of values that come from JSON, after a check.

        Args:
            values: The parsed values.
            place: Source of the values, for messages: a file, or a line of a file.

        Returns:
            The record.

        Raises:
            LpesError: The format is wrong; a field is missing, unknown or of a wrong type; or the fields contradict
                each other. The class is ``ERROR``.
        """
        cls._check_format(values, place)
        check_numbers(values, place, cls.ERROR, cls.REMEDY)

        try:
            # A strict model accepts tuples from Python, or lists from JSON. So the values are written as JSON again.
            text = to_json(values)
            return cls.model_validate_json(to_json(without_halves(values)) if "\\ud" in text else text)
        except ValidationError as failure:
            raise cls.ERROR(cls._explanation(failure, place)) from failure
        except (ValueError, RecursionError) as failure:
            raise cls.ERROR(
                f"Expected {place} to be {cls.WHAT}, but got {failure}. {cls.REMEDY}"
            ) from failure

    @classmethod
    def load(cls: type[_Self], file: Path) -> _Self:
        """Read a file.

        Args:
            file: The file, in UTF-8 with or without a byte-order mark.

        Returns:
            The record.

        Raises:
            LpesError: The file is missing, is not JSON, or is not such a record. The class is ``ERROR``.
        """
        text = read_text(file, cls.SOUGHT, cls.ERROR, cls.MISSING)
        values = parse_json(text, str(file), cls.ERROR, cls.REMEDY)
        check = values.pop(_CHECK, None) if cls.CHECKED and isinstance(values, dict) else None

        record = cls.of(values, str(file))
        if check is not None and check != _checksum(values):
            raise cls.ERROR(
                f"Expected {file} to be as it was written, but its content does not fit its checksum. It was edited or "
                f"damaged. {cls.REMEDY}"
            )
        return record

    def save(self, file: Path) -> None:
        """Write the file without the fields that were not given.

        Args:
            file: The file; its folder must exist.

        Raises:
            StorageError: The file cannot be written.
        """
        values = self.to_json()
        if self.CHECKED:
            values[_CHECK] = _checksum(values)
        write_atomic(file, to_json(values, indent=1) + "\n")

    def to_json(self) -> dict[str, Any]:
        """Return the fields that were given, as values that `json` can write."""
        given = self.model_dump(mode="json", exclude_unset=True)
        stated = {
            name: getattr(self, name) for name in ("format", "version") if name in type(self).model_fields
        }
        return stated | given

    @classmethod
    def _check_format(cls, values: Any, place: str) -> None:
        """Refuse a file of another kind or version, before its fields are looked at."""
        fields = cls.model_fields
        if "format" not in fields:
            return

        expected = fields["format"].default, fields["version"].default
        found = (
            (values.get("format"), values.get("version"))
            if isinstance(values, dict)
            else type(values).__name__
        )

        # True and 1.0 equal 1 in Python.
        if found != expected or type(found[1]) is not int:
            raise cls.ERROR(
                f"Expected {place} to have format {expected[0]!r}, version {expected[1]}, but got {shown(found)}. "
                f"It is another file, or of another version of lpes-evo. {cls.REMEDY}"
            )

    @classmethod
    def _explanation(cls, failure: ValidationError, place: str) -> str:
        """Return one line with the field at fault, its expectation and the value that came."""
        first = failure.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        if first["type"] == "missing":
            return f"Expected {place} to have the field {where!r}, but it is missing. {cls.REMEDY}"

        if first["type"] == "extra_forbidden":
            return (
                f"Expected {place} to have no field {where!r}, which {cls.WHAT} does not have. {cls.REMEDY}"
            )

        rule = first.get("ctx", {}).get("error")
        if rule is not None:
            # Rules of other modules raise errors whose texts are whole sentences.
            if isinstance(rule, LpesError):
                return f"{place}: {rule} {cls.REMEDY}"
            return f"Expected the parts of {place} to fit each other, but {rule}. {cls.REMEDY}"

        reason = first["msg"][0].lower() + first["msg"][1:]
        return (
            f"Expected {place} to be {cls.WHAT}, but {where or 'its root'} is {shown(first['input'])}: {reason}. "
            f"{cls.REMEDY}"
        )


def _checksum(values: dict[str, Any]) -> str:
    """Return the first digits of the SHA-256 of values, which does not depend on the order of their names."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:_CHECK_DIGITS]
