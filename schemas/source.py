"""The tables `[source]`, `[columns]` and `[filter]` of the issuer's TOML: how its extract is written."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

import polars as pl
from pydantic import AfterValidator, Field, StringConstraints, model_validator

from schemas import portal
from schemas.settings import Settings

Format = Literal["MMYY", "YYMM", "MM/YY", "MM/YYYY", "YYYY-MM", "YYYY-MM-DD", "SURNAME/GIVEN"]


def _portal_column(name: str) -> str:
    if name not in portal.columns():
        raise ValueError(f"the portal has no column {name}; it has {', '.join(portal.columns())}")
    return name


def _pattern(text: str) -> str:
    """Check a regular expression with both engines that will read it."""
    try:
        re.compile(text)
        pl.Series([""]).str.contains(text)
    except (re.error, pl.exceptions.PolarsError) as error:
        raise ValueError("not a regular expression, or one that looks around or back") from error
    return text


Header = Annotated[str, StringConstraints(min_length=1)]
Pattern = Annotated[str, AfterValidator(_pattern)]
PortalColumn = Annotated[str, AfterValidator(_portal_column)]


class SourceSettings(Settings):
    """How the extract is written: format, delimiter, encoding, header, comments and trailer."""

    pattern: str = "*"
    format: Literal["csv", "fixed"] = "csv"
    width: int | None = Field(None, ge=1)  # fixed: characters of every line
    delimiter: Literal[",", ";", "\t", "|"] = ","
    encoding: Literal["utf-8", "cp1252", "latin-1", "utf-16"] = "utf-8"
    header_rows: int = Field(1, ge=0)  # lines before the data; the last of them bears the names
    names: tuple[Header, ...] = ()  # the names, where the extract has no header
    comment: str | None = Field(None, min_length=1)  # lines that begin like this are no rows
    trailer: Pattern | None = None  # regular expression of the trailer; its first group is the count
    trailer_field: int | None = Field(None, ge=1)  # or: which field of the trailer holds the count, from 1
    final_newline: bool = False  # true: an extract whose last line has no newline was cut off
    strict: bool = False  # true: a header that no column asks for refuses the extract

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.format == "fixed" and self.width is None:
            raise ValueError("format = 'fixed' needs width, the number of characters of a line")
        if self.format == "csv" and self.header_rows == 0 and len(self.names) < 2:
            raise ValueError("header_rows = 0 needs names, the columns of the extract in order")
        if self.trailer is not None and self.trailer_field is None and re.compile(self.trailer).groups < 1:
            raise ValueError("trailer needs a group around the count, or trailer_field")
        return self


class From(Settings):
    """One portal column made of one source column (or the first found of several), or of fixed positions."""

    source: Header | tuple[Header, ...] | None = Field(None, alias="from")
    at: tuple[int, int] | None = None  # fixed width: first and last character, from 1
    format: Format | None = None  # which part is taken, the portal column says
    pad: int | None = Field(None, ge=1, le=16)  # zeros in front of digits, to this many; before the format

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.source is None) == (self.at is None):
            raise ValueError("give either `from` or `at`")
        if self.at is not None and not 1 <= self.at[0] <= self.at[1]:
            raise ValueError("`at` is [first, last], counted from 1")
        return self


class Constant(Settings):
    """One portal column with the same text in every row."""

    constant: Header


class Except(Settings):
    """A filter by what does not count."""

    exclude: tuple[str, ...] = Field(alias="not", min_length=1)


Columns = dict[PortalColumn, Header | tuple[Header, ...] | From | Constant]  # portal column -> where it comes from
Filter = dict[str, str | tuple[str, ...] | Except]  # source header -> the values of rows that count
