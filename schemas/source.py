"""[source]: how an extract is written, and what proves it whole."""

import re
from typing import Annotated, ClassVar, Literal, Self

from pydantic import StringConstraints, model_validator

from schemas.mapping import Header, Span
from schemas.patterns import Comment, Pattern, beginning
from schemas.settings import Settings, setting

Names = tuple[str, ...] | dict[str, Span]  # of delimited text; of text in fixed format


def refuse(problem: str) -> None:
    """Raise ValueError where there is a problem."""
    if problem:
        raise ValueError(problem)


def problem_of_spans(names: Names, width: int | None) -> str:
    """Return what is wrong with columns in fixed format, "" where nothing is."""
    if not isinstance(names, dict):
        return "in fixed format each column needs its first and last character: CUST = [3, 10]"
    for name, (first, last) in names.items():
        if not 1 <= first <= last:
            return f"{name}: [first, last] is counted from 1"
        if width is not None and last > width:
            return f"{name} ends at {last}, and a line has {width} characters"
    return ""


class SourceSettings(Settings):
    """How the extract is written: format, delimiter, encoding, header, comments, trailer; and what
    proves it whole.
    """

    # those that prove an extract whole; they never change which rows it has, or how it is written
    PROOFS: ClassVar[frozenset[str]] = frozenset(
        {
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

    pattern: str = setting("*", "names of files that are extracts, as a shell pattern")
    format: Literal["csv", "fixed"] = setting("csv", "delimited text, or fields at fixed positions")
    width: int | None = setting(None, "fixed format: characters per line", ge=1)
    delimiter: Literal[",", ";", "\t", "|"] = setting(",", "field separator")
    encoding: Literal["utf-8", "cp1252", "latin-1", "utf-16"] = setting(
        "utf-8", "character encoding; never guessed"
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
        return "header record" if self.trailer is None else "trailer"

    # What a form that an extension reads says otherwise

    @property
    def has_named_columns(self) -> bool:
        """Whether a layout of the header's names says how the extract is written."""
        return self.format == "csv"

    @property
    def is_workbook(self) -> bool:
        """Whether it has dates of its own, and cannot be cut off unnoticed."""
        return False

    def second_of(self, key: str) -> str | None:
        """Return the key of the second file of an extract, None where it has none."""
        del key
        return None

    def is_second(self, name: str) -> bool:
        """Return whether a file of this name is the second of an extract, and none itself."""
        del name
        return False

    @property
    def has_named_places(self) -> bool:
        """Whether columns in fixed format have names."""
        return bool(self.names)

    # What fits together

    @model_validator(mode="after")
    def _describes_lines(self) -> Self:
        self.check_lines()
        return self

    def check_lines(self) -> None:
        """Raise ValueError where the columns of lines are not those of the format."""
        if self.format == "fixed" and self.width is None:
            raise ValueError("format = 'fixed' needs width, the number of characters of a line")
        if self.format == "fixed" and self.names:
            refuse(problem_of_spans(self.names, self.width))
        elif isinstance(self.names, dict):
            raise ValueError("first and last characters of columns are for format = 'fixed'")
        if self.format != "fixed" and self.header_rows == 0 and len(self.names) < 2:
            raise ValueError("header_rows = 0 needs names, the columns of the extract in order")

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
                fits = self.format != "fixed" or self.has_named_places
            case first, last:
                is_whole_line = self.format == "fixed" and not self.has_named_places
                fits = is_whole_line and first <= last
        if not fits:
            raise ValueError(
                "hash_total is a column; in fixed format [first, last], counted from 1"
            )
        return self
