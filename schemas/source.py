"""[source]: how an extract is written, and what proves it whole."""

import re
from functools import cached_property
from typing import Annotated, Literal, Self, cast

from pydantic import StringConstraints, model_validator

from flows.extensions import names as extension_names
from schemas.code_pages import EbcdicPage
from schemas.join import NAMED_FOR_THE_PAIR, JoinSettings
from schemas.mapping import Header, Span, Texts
from schemas.patterns import Comment, Pattern, beginning
from schemas.record_layout import Layout, read_layout
from schemas.record_types import (
    Names,
    RecordTypes,
    problem_of_keys,
    problem_of_spans,
    problem_of_types,
)
from schemas.settings import Settings, setting

# Settings of [source] that prove an extract whole; they never change which rows it has, or how they
# are written.
PROOFS = frozenset(
    {
        "trailer_counts",
        "final_newline",
        "header_record",
        "hash_total",
        "hash_total_digits",
        "sidecar",
        "done_marker",
        "min_age_minutes",
        "sequence",
        "sequence_in",
    }
)


def _refuse(problem: str) -> None:
    """Raise ValueError where there is a problem."""
    if problem:
        raise ValueError(problem)


class SourceSettings(Settings):
    """How the extract is written: format, delimiter, encoding, header, comments, trailer; and what
    proves it whole.
    """

    pattern: str = setting("*", "names of files that are extracts, as a shell pattern")
    format: Literal["csv", "fixed", "xlsx"] = setting(
        "csv",
        "delimited text, fields at fixed positions, or an Excel workbook (with the extra "
        "`cardlink[excel]`), whose dates are read under any `format`",
    )
    sheet: str | None = setting(None, "xlsx: the sheet, where the workbook has several")
    width: int | None = setting(None, "fixed format: characters per line", ge=1)
    delimiter: Literal[",", ";", "\t", "|"] = setting(",", "field separator")
    encoding: Literal["utf-8", "cp1252", "latin-1", "utf-16"] | EbcdicPage = setting(
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
    short_records: bool = setting(
        False, "lines in fixed format, and records, may lack the blanks at their end"
    )
    quoting: Literal["doubled", "excel", "backslash"] = setting(
        "doubled",
        'how a cell with quotes is written: `""` in double quotes; `excel`: also `="02108"`, which '
        'is the text 02108; `backslash`: `\\"` and `\\,` and `\\N` for nothing, as MySQL writes '
        "them",
    )
    header_rows: int = setting(
        1, "lines before the data; the last of them holds the column names", ge=0
    )
    names: tuple[Header, ...] | dict[Header, Span] = setting(
        (),
        "column names, where the extract has no header; in fixed format, each with its first and "
        "last character, from 1",
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
    comment: Comment | None = setting(
        None,
        "lines that begin with this text are not rows; one that begins with `^` is a regular "
        "expression of such lines",
        min_length=1,
    )
    trailer: Pattern | None = setting(
        None,
        "regular expression of the trailer line; its first group, or the one named `count`, is the "
        "row count",
    )
    header_record: Pattern | None = setting(
        None,
        "regular expression of a line above the data that states the row count, its first group or "
        "the one named `count`; `header_rows` or `comment` keep that line from the rows",
    )
    trailer_counts: Literal["rows", "records"] = setting(
        "rows", "what the trailer counts, where a file has several types: rows, or all records"
    )
    final_newline: bool = setting(
        True, "an extract without a final newline was cut off; `false`: it is written so"
    )
    hash_total: Header | tuple[int, int] | None = setting(
        None,
        "column whose numbers, digits only, add up to the hash total, the second group of "
        "`trailer` or `header_record`, or the one named `total`; fixed format: first and last "
        "character of the field, from 1",
    )
    hash_total_digits: int = setting(
        12, "low-order digits of the sum that are compared", ge=1, le=18
    )
    sidecar: Literal["sha256", "ctl"] | None = setting(
        None,
        "file beside each extract that proves it: `NAME.sha256` as sha256sum writes it, or "
        "`NAME.ctl` with `key=value` lines (count, bytes, sha256, date); without it an extract "
        "waits",
    )
    done_marker: Annotated[str, StringConstraints(pattern=r"^\.[A-Za-z0-9._-]{1,20}$")] | None = (
        setting(
            None,
            "ending of the marker file, such as `.done`; an extract waits until `NAME.done` exists",
        )
    )
    min_age_minutes: int = setting(
        0, "an extract waits until it has not been modified for this long", ge=0, le=1440
    )
    sequence: Pattern | None = setting(
        None, "regular expression, its group the sequence number: each follows the last"
    )
    sequence_in: Literal["name", "header"] = setting(
        "name", "where `sequence` is: in the file name, or above the data"
    )
    same_name: Literal["hold", "replace"] = setting(
        "hold",
        "the name of a committed extract, other content: `hold` it for a decision; `replace`: it "
        "is the next extract",
    )
    strict: bool = setting(False, "`true`: a source column that nothing uses refuses the extract")
    join: JoinSettings | None = None  # a second file, where there is one

    @property
    def comment_form(self) -> str | None:
        """The regular expression of lines that are comments, where there may be some."""
        if self.comment is None or self.comment.startswith("^"):
            return self.comment
        return beginning(self.comment)

    @property
    def total_in(self) -> Literal["trailer", "header_record"] | None:
        """Which of the two states the hash total, in a second group or one named `total`."""
        if re.compile(self.trailer or "").groups > 1:
            return "trailer"
        return "header_record" if re.compile(self.header_record or "").groups > 1 else None

    @property
    def counted_in(self) -> Literal["trailer", "total row", "header record"]:
        """What states the number of rows, in words; only where something does."""
        if self.trailer is None or (self.header_record and self.trailer_counts == "records"):
            return "header record"
        return "total row" if self.format == "xlsx" else "trailer"

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
    def second_file(self) -> "SourceSettings":
        """How the second file is written; only where there is one."""
        written = self.join.model_dump(exclude=NAMED_FOR_THE_PAIR) if self.join else {}
        return SourceSettings.model_validate(written)

    @cached_property
    def layout(self) -> Layout:
        """The fields of a record by the copybook; only where there is one."""
        groups = [str(group) for group in self.segments.values()]
        return read_layout(self.copybook or "", groups)

    @property
    def _has_named_places(self) -> bool:
        return bool(self.names or self.segments)

    @property
    def record_size(self) -> int:
        """The bytes of a record of format F or FB."""
        return self.layout.size if self.copybook else self.record_length or 0

    @model_validator(mode="after")
    def _can_be_read(self) -> Self:
        if self.format not in ("csv", "fixed", *extension_names("FORMATS")):
            raise ValueError(f"format = '{self.format}' needs an extension that is not here")
        return self

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
            _refuse(problem_of_types(self.record_types, self.segment_field or "", fixed=fixed))
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
        _refuse(problem_of_keys(self.segment_keys, types, names))

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
        if self.copybook is not None:
            return self
        if self.segments:
            return self
        if self.format == "fixed" and self.width is None:
            raise ValueError("format = 'fixed' needs width, the number of characters of a line")
        if self.format == "fixed" and self.names:
            _refuse(problem_of_spans(self.names, self.width))
        elif isinstance(self.names, dict):
            raise ValueError("first and last characters of columns are for format = 'fixed'")
        if self.format != "fixed" and self.header_rows == 0 and len(self.names) < 2:
            raise ValueError("header_rows = 0 needs names, the columns of the extract in order")
        return self

    @model_validator(mode="after")
    def _groups_hold_what_is_read(self) -> Self:
        for key, pattern in (("trailer", self.trailer), ("header_record", self.header_record)):
            if pattern is not None and re.compile(pattern).groups < 1:
                raise ValueError(f"{key} needs a group around the count")
        if self.sequence is not None and re.compile(self.sequence).groups != 1:
            raise ValueError("sequence needs exactly one group, around the number")
        if self.hash_total is not None and self.total_in is None:
            raise ValueError("hash_total needs a trailer or header_record with a second group")
        return self

    @model_validator(mode="after")
    def _places_the_hash_total(self) -> Self:
        match self.hash_total:
            case None:
                fits = True
            case str():
                fits = self.format != "fixed" or self._has_named_places
            case first, last:
                is_whole_line = self.format == "fixed" and not self._has_named_places
                fits = is_whole_line and first <= last
        if not fits:
            raise ValueError(
                "hash_total is a column; in fixed format [first, last], counted from 1"
            )
        return self
