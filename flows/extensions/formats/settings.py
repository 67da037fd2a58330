"""[source], with what the kernel's own settings of extracts do not say: workbooks, records without
line ends, record types, and a second file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, cast

from pydantic import model_validator

from flows.configuration import read_file
from flows.extensions.formats.code_pages import EbcdicPage
from flows.extensions.formats.record_layout import Layout, read_layout
from flows.extensions.formats.record_types import (
    RecordTypes,
    problem_of_keys,
    problem_of_types,
)
from schemas.mapping import Header, Span, Texts
from schemas.settings import Settings, setting
from schemas.source import Names, SourceSettings, refuse

NAMED_FOR_THE_PAIR = {"pattern", "key", "other_key"}
_AS_ABOVE = "of the second file, as in `[source]`"


class JoinSettings(Settings):
    """A second file each night, such as addresses: its columns are joined to the rows of the
    extract by key, and mapped like its own. A row without one there is refused.
    """

    pattern: str = setting(
        ...,
        "name of the second file; its `*` stands for what that of `[source] pattern` stands for: "
        "cards-20261120.csv has addresses-20261120.csv. Without it the extract waits",
    )
    key: tuple[Header, ...] = setting(
        ..., "columns of the extract that say which row of the second file is its own", min_length=1
    )
    other_key: tuple[Header, ...] = setting(
        (), "their names in the second file, in the same order, where they differ"
    )
    delimiter: Literal[",", ";", "\t", "|"] = setting(",", f"field separator {_AS_ABOVE}")
    encoding: Literal["utf-8", "cp1252", "latin-1", "utf-16"] | EbcdicPage = setting(
        "utf-8", f"character encoding {_AS_ABOVE}"
    )
    quoting: Literal["doubled", "excel", "backslash"] = setting(
        "doubled", f"how a cell with quotes is written, {_AS_ABOVE}"
    )
    header_rows: int = setting(1, f"lines before the data {_AS_ABOVE}", ge=0)
    names: tuple[Header, ...] = setting((), f"column names {_AS_ABOVE}")
    comment: str | None = setting(None, f"beginning of comments {_AS_ABOVE}", min_length=1)
    trailer: str | None = setting(None, f"regular expression of the trailer {_AS_ABOVE}")
    final_newline: bool = setting(True, f"whether its last line has a newline, {_AS_ABOVE}")
    record_format: Literal["F", "FB", "V", "VB"] | None = setting(
        None, f"format of the records {_AS_ABOVE}"
    )
    copybook: str | None = setting(None, f"copybook {_AS_ABOVE}")
    short_records: bool = setting(False, f"whether records may be short, {_AS_ABOVE}")

    @model_validator(mode="after")
    def _has_as_many_keys(self) -> Self:
        if self.other_key and len(self.other_key) != len(self.key):
            raise ValueError("other_key needs as many columns as key, in the same order")
        return self


class FormatSettings(SourceSettings):
    """How the extract is written: format, delimiter, encoding, header, comments, trailer; and what
    proves it whole.
    """

    PROOFS: ClassVar[frozenset[str]] = SourceSettings.PROOFS | {"trailer_counts"}

    # more values than the kernel's: a type checker wants fewer
    format: Literal["csv", "fixed", "xlsx"] = setting(  # type: ignore[assignment]
        "csv",
        "delimited text, fields at fixed positions, or an Excel workbook (with the extra "
        "`cardlink[excel]`), whose dates are read under any `format`",
    )
    sheet: str | None = setting(None, "xlsx: the sheet, where the workbook has several")
    encoding: Literal["utf-8", "cp1252", "latin-1", "utf-16"] | EbcdicPage = setting(  # type: ignore[assignment]
        "utf-8",
        "character encoding; never guessed. `cp037`, `cp500`, `cp1140`, `cp273` and so on are code "
        "pages of EBCDIC",
    )
    record_format: Literal["F", "FB", "V", "VB"] | None = setting(
        None,
        "records without line ends: `F`, `FB` of `record_length` bytes; `V` each behind a record "
        "descriptor word, `VB` in blocks behind a block descriptor word too",
    )
    record_length: int | None = setting(
        None, "`F` and `FB`: bytes of a record; with a copybook, which says it, to compare", ge=1
    )
    copybook: str | None = setting(
        None,
        "COBOL copybook beside the TOML that describes the records; its fields are the columns. "
        "Beyond PIC X and 9: COMP, COMP-3, COMP-5, OCCURS, REDEFINES",
    )
    segment_field: Header | None = setting(
        None, "column that says of which type a record is, where a file has several types (01, 02)"
    )
    segments: dict[str, str | tuple[Header, ...] | dict[Header, Span]] = setting(
        {},
        "the types in the order of the file: what `segment_field` says = the names of its columns; "
        "in fixed format, each with its first and last character; or with a copybook its group or "
        "record",
    )
    segment_row: str | None = setting(
        None,
        "the type whose records are rows; default: the first. Types before it hold for all rows up "
        "to the next of them, types after it belong to the row before",
    )
    segment_key: Texts | dict[str, Texts] = setting(
        (),
        "columns that all types have, by which records of other types belong to a row, wherever "
        "they are in the file; where their names differ, by type",
    )
    segment_optional: Texts = setting(
        (), "with `segment_key`: the types that a row may lack; one without another is rejected"
    )
    trailer_counts: Literal["rows", "records"] = setting(
        "rows", "what the trailer counts, where a file has several types: rows, or all records"
    )
    join: JoinSettings | None = None  # a second file, where there is one

    @property
    def counted_in(self) -> Literal["trailer", "total row", "header record"]:
        """What states the number of rows, in words; only where something does."""
        if self.header_record and self.trailer_counts == "records":
            return "header record"
        is_row = self.format == "xlsx" and self.trailer is not None
        return "total row" if is_row else super().counted_in

    @property
    def has_named_columns(self) -> bool:
        """Whether a layout of the header's names says how the extract is written."""
        return self.format == "csv" and self.copybook is None

    @property
    def is_workbook(self) -> bool:
        """Whether it has dates of its own, and cannot be cut off unnoticed."""
        return self.format == "xlsx"

    def second_of(self, key: str) -> str | None:
        """Return the key of the second file of an extract, None where it has none."""
        if self.join is None:
            return None
        issuer, extracts, name = key.partition("/extracts/")
        folder = issuer + extracts
        if not extracts:
            folder = ""
            name = key
        before, _, after = self.pattern.partition("*")
        shape = f"{re.escape(before)}(.*){re.escape(after)}"
        own = re.fullmatch(shape, name, re.DOTALL)
        return folder + self.join.pattern.replace("*", own[1]) if own else None

    def is_second(self, name: str) -> bool:
        """Return whether a file of this name is the second of an extract, and none itself."""
        return self.join is not None and fnmatchcase(name, self.join.pattern)

    @property
    def row_segment(self) -> str:
        """The type whose records are rows; only where a file has several."""
        return self.segment_row or next(iter(self.segments))

    @property
    def segment_keys(self) -> dict[str, tuple[str, ...]]:
        """The key columns of each type, none where types are joined by their order."""
        if isinstance(self.segment_key, dict):
            return self.segment_key
        return dict.fromkeys(self.segments, self.segment_key) if self.segment_key else {}

    @property
    def record_types(self) -> RecordTypes:
        """The columns of each type; only where there are several, and no copybook."""
        return RecordTypes(cast("dict[str, Names]", self.segments), self.row_segment, self.width)

    @cached_property
    def second_file(self) -> FormatSettings:
        """How the second file is written; only where there is one."""
        written = self.join.model_dump(exclude=NAMED_FOR_THE_PAIR) if self.join else {}
        return FormatSettings.model_validate(written)

    @cached_property
    def layout(self) -> Layout:
        """The fields of a record by the copybook; only where there is one."""
        groups = [str(group) for group in self.segments.values()]
        return read_layout(self.copybook or "", groups)

    @property
    def record_size(self) -> int:
        """The bytes of a record of format F or FB."""
        return self.layout.size if self.copybook else self.record_length or 0

    @property
    def has_named_places(self) -> bool:
        """Whether columns in fixed format have names."""
        return bool(self.names or self.segments)

    @model_validator(mode="after")
    def _describes_types(self) -> Self:
        if bool(self.segments) != bool(self.segment_field):
            raise ValueError("segment_field and segments belong together: set both")
        if not self.segments:
            return self
        if len(self.segments) < 2 or self.row_segment not in self.segments:
            raise ValueError("segments needs two types or more, and segment_row one of them")
        if self.copybook is not None:
            self._describes_groups()
        elif self.format == "xlsx" or self.header_rows:
            raise ValueError(
                "record types without a copybook are read as delimited text or in fixed format, "
                "with header_rows = 0"
            )
        else:
            fixed = self.format == "fixed"
            refuse(problem_of_types(self.record_types, self.segment_field or "", fixed=fixed))
        self._describes_keys()
        return self

    @model_validator(mode="after")
    def _counts_records_of_types(self) -> Self:
        if self.trailer_counts == "records" and not (self.segments and self.trailer):
            raise ValueError("trailer_counts = 'records' needs segments and trailer")
        return self

    def _describes_groups(self) -> None:
        if not all(isinstance(group, str) for group in self.segments.values()):
            raise ValueError("with a copybook, segments needs its group or record for each type")
        if "\n" in (self.copybook or "") and not self.layout.named(self.segment_field or ""):
            raise ValueError(f"segment_field: the copybook has no field {self.segment_field}")

    def _describes_keys(self) -> None:
        """Refuse a `segment_key` that is not in each type, where that is known."""
        if self.segment_optional and not self.segment_key:
            raise ValueError("segment_optional needs segment_key: by order, parts may be lacking")
        optional = {self.row_segment, *self.segments}.intersection(self.segment_optional)
        if len(optional) < len(self.segment_optional) or self.row_segment in optional:
            raise ValueError("segment_optional names types of segments other than the rows'")
        if not self.segment_key:
            return
        types = self.record_types
        names = {} if self.copybook else {kind: types.names(kind) for kind in self.segments}
        refuse(problem_of_keys(self.segment_keys, types, names))

    @model_validator(mode="after")
    def _describes_records(self) -> Self:
        if self.copybook is None:
            if self.record_format in ("F", "FB") and self.record_length is None:
                raise ValueError(f"record_format = '{self.record_format}' needs record_length")
            if self.record_format in ("F", "FB") and self.format != "fixed":
                raise ValueError("records without a copybook are text: set format = 'fixed'")
            return self
        if self.record_format is None:
            raise ValueError("copybook needs record_format: F, FB, V or VB")
        if "\n" not in self.copybook:  # the name of a file that was not read yet
            return self
        if self.encoding == "utf-16":
            raise ValueError("a copybook counts bytes, and in utf-16 a character has two")
        size = self.layout.size
        if self.record_length not in (None, size):
            raise ValueError(
                f"record_length = {self.record_length}, but the copybook describes {size} bytes"
            )
        return self

    @model_validator(mode="after")
    def _describes_the_pair(self) -> Self:
        if self.join is None:
            return self
        for pattern in (self.pattern, self.join.pattern):
            if pattern.count("*") != 1 or set(pattern) & set("?[]"):
                raise ValueError(
                    f"two files are joined by what `*` stands for in the name of each: {pattern!r} "
                    "needs one `*` and no other wildcard, such as cards-*.csv"
                )
        if self.pattern == self.join.pattern:
            raise ValueError("the extract and its second file need different patterns")
        self.second_file  # noqa: B018  what is wrong in it is an error of the settings
        return self

    @model_validator(mode="after")
    def _describes_lines(self) -> Self:
        if self.copybook is None and not self.segments:
            self.check_lines()
        return self


TABLES = {"source": (FormatSettings, FormatSettings())}


def with_files(content: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the content of a TOML with the text of copybooks in place of the names of files."""
    source = _with_copybook(content.get("source"), "source", folder)
    if not isinstance(source, dict):
        return content
    if "join" in source:
        source["join"] = _with_copybook(source["join"], "source.join", folder)
    return {**content, "source": source}


def _with_copybook(table: Any, name: str, folder: Path) -> Any:
    if not isinstance(table, Mapping):
        return table
    if not isinstance(table.get("copybook"), str):
        return dict(table)
    content = read_file(folder / table["copybook"], f"the copybook of [{name}]")
    return {**table, "copybook": copybook_text(content)}


def copybook_text(content: bytes) -> str:
    """Return a copybook as the settings hold it: its lines, whatever ends them."""
    lines = content.decode("utf-8", "replace").splitlines()
    return "".join(f"{line}\n" for line in lines)
