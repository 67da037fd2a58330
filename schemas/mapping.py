"""How a portal column is made of an issuer's columns: a source, and steps applied to its text.

A step is one field of `Cell`: name, values and meaning; and its expression in `STEPS`. Steps have
the order they have here. Everything else is derived: validation, `deploy/SETTINGS.md`, and the
expression of a column.

A mapping that needs another order of steps has a table in `from`. `auto` dates take the one form
that fits all rows, or refuse the extract.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection
from typing import Annotated, Any, Literal, Self

import polars as pl
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    model_validator,
)

from schemas import portal
from schemas.cell_formats import (
    AUTO,
    NAMES,
    READINGS,
    date_part,
    date_tokens,
    name_part,
    present,
)
from schemas.expressions import UNREADABLE
from schemas.settings import Settings, setting

Header = Annotated[str, StringConstraints(min_length=1)]
Span = tuple[int, int]


class Except(Settings):
    """A filter that leaves out rows with these values."""

    exclude: tuple[str, ...] = setting(
        ..., "values of rows to leave out", alias="not", min_length=1
    )


Filter = dict[str, str | tuple[str, ...] | Except]  # source header -> the values of rows that count


def nearest(word: str, words: Collection[str]) -> str:
    """Return which of `words` is most like a wrong one."""
    return next(iter(difflib.get_close_matches(word, words, n=1, cutoff=0)), "")


def _format(text: str) -> str:
    if text in (AUTO, *NAMES) or date_tokens(text):
        return text
    names = ", ".join(map(repr, NAMES))
    raise ValueError(
        f"{text!r} is no format: a date has YYYY or YY, MM or MON, and perhaps DD, in any order; a "
        f"name is one of {names}; did you mean {nearest(text, (*READINGS, *NAMES))!r}?"
    )


# Steps


def _stripped(value: pl.Expr, cell: Cell, _: str) -> pl.Expr:
    for prefix in cell.strip_prefix or ():
        value = value.str.strip_prefix(prefix)
    for suffix in cell.strip_suffix or ():
        value = value.str.strip_suffix(suffix)
    return present(value)


def _bounds(length: pl.Expr, span: Span) -> tuple[pl.Expr, pl.Expr]:
    """Return offset and length of a span that counts from 1, or from the right where it is
    negative.
    """
    length = length.cast(pl.Int64)
    begin, end = (pl.lit(place) if place > 0 else length + (place + 1) for place in span)
    begin = pl.max_horizontal(begin, 1) - 1
    return begin, pl.max_horizontal(end - begin, 0)


def _split(value: pl.Expr, cell: Cell, _: str) -> pl.Expr:
    separator = cell.split or ""
    parts = value.str.extract_all(r"\S+") if separator == " " else value.str.split(separator)
    if isinstance(cell.part, tuple):
        chosen = parts.list.slice(*_bounds(parts.list.len(), cell.part))
        return present(chosen.list.join(separator))
    number = cell.part or 1
    index = number - 1 if number > 0 else number
    return present(parts.list.get(index, null_on_oob=True))


def _formatted(value: pl.Expr, cell: Cell, target: str) -> pl.Expr:
    form = cell.format or AUTO
    if form in NAMES:
        return name_part(value, form, target)
    return value if form == AUTO else date_part(value, form, target)


def _looked_up(value: pl.Expr, cell: Cell, _: str) -> pl.Expr:
    table = cell.lookup if isinstance(cell.lookup, dict) else {}
    known = list(table)
    texts = list(table.values())
    match cell.unknown:
        case "reject":
            unknown = pl.lit(UNREADABLE)
        case "empty":
            unknown = pl.lit(None, pl.String)
        case "keep":
            unknown = value
    looked_up = value.replace_strict(known, texts, default=None, return_dtype=pl.String)
    return present(
        pl.when(value.is_in(known)).then(looked_up).when(value.is_not_null()).then(unknown)
    )


def _ordered(places: int | Span | None) -> int | Span | None:
    if places is None:
        return None
    first, last = places if isinstance(places, tuple) else (places, places)
    same_side = (first > 0) == (last > 0)
    if 0 in (first, last) or (same_side and first > last):
        raise ValueError(
            "places are counted from 1, or from -1 at the right; the first before the last"
        )
    return places


_Ordered = AfterValidator(_ordered)
_OneOrMore = BeforeValidator(
    lambda texts: (texts,) if isinstance(texts, str) else texts,
    json_schema_input_type=Header | tuple[Header, ...],
)
Texts = Annotated[tuple[Header, ...], _OneOrMore]


class Cell(Settings):
    """One portal column: exactly one source, then steps, in this order; another order is a table in
    `from`.
    """

    source: Spec | None = setting(
        None, "source column; of several, the first that exists; or such a table", alias="from"
    )
    at: Span | None = setting(None, "fixed format: first and last character of the field, from 1")
    constant: Header | None = setting(None, "the same text in every row")
    join: tuple[Spec, ...] | None = setting(
        None, "several, joined; empty ones are left out", min_length=1
    )
    between: str = setting(" ", "what `join` puts between them", alias="with")
    first: tuple[Spec, ...] | None = setting(
        None, "of several, the first that is not empty", min_length=1
    )
    strip_prefix: Texts | None = setting(None, "texts taken away at the beginning")
    strip_suffix: Texts | None = setting(None, "texts taken away at the end")
    split: Header | None = setting(
        None, "where the text is taken apart; a blank: at any number of blanks"
    )
    part: Annotated[int | Span | None, _Ordered] = setting(
        None,
        "which part of `split`, from 1, or from -1 at the right; `[first, last]`: these and those "
        "between",
    )
    slice: Annotated[Span, _Ordered] | None = setting(
        None, "first and last character, from 1, or from -1 at the right"
    )
    pad: int | None = setting(None, "left-pad digits with zeros to this length", ge=1, le=16)
    format: Annotated[Header, AfterValidator(_format)] | None = setting(
        None,
        "how a date or a name is written; the part its portal column needs is taken. Dates: YYYY "
        "or YY, MM or MON (English names), DD, in any order, with any separators; `auto`: the one "
        f"reading that fits all rows. Names: {', '.join(map(repr, NAMES))}; particles (`van der`) "
        "and suffixes (Jr, Sr, II, III, IV) go with LAST",
    )
    lookup: dict[str, str] | str | None = setting(
        None, "text by text; or a CSV file beside the TOML: two columns, no header"
    )
    unknown: Literal["reject", "empty", "keep"] = setting(
        "reject",
        "what a text that is not in `lookup` means: its row is rejected, it is empty, or kept",
    )
    when: Filter | None = setting(None, "rows that have these values; in others it is empty")

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        sources = (self.source, self.at, self.constant, self.join, self.first)
        if sources.count(None) != len(sources) - 1:
            raise ValueError("give exactly one of `from`, `at`, `constant`, `join`, `first`")
        return self

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.at is not None and not 1 <= self.at[0] <= self.at[1]:
            raise ValueError("`at` is [first, last], counted from 1")
        if (self.split is None) != (self.part is None):
            raise ValueError("`split` and `part` belong together")
        for name, needs in {"between": "join", "unknown": "lookup"}.items():
            if name in self.model_fields_set and getattr(self, needs) is None:
                raise ValueError(f"`{type(self).model_fields[name].alias or name}` needs `{needs}`")
        return self

    @model_validator(mode="after")
    def _reads_dates_last(self) -> Self:
        inner = (self.source, *(self.join or ()), *(self.first or ()))
        inside = any(isinstance(spec, Cell) and spec.format == AUTO for spec in inner)
        if inside or (self.format == AUTO and self.lookup):
            raise ValueError("`auto` belongs in the outermost table, without `lookup`")
        return self


def _kind_of_spec(spec: Any) -> str:
    match spec:
        case str():
            return "header"
        case dict() | Cell():
            return "table"
    return "headers"


# A source column, several of which the first that exists counts, or a table.
Spec = Annotated[
    Annotated[Header, Tag("header")]
    | Annotated[tuple[Header, ...], Field(min_length=1), Tag("headers")]
    | Annotated[Cell, Tag("table")],
    Discriminator(_kind_of_spec),
]
Cell.model_rebuild()  # it holds itself

# The expression of each step of a cell, of text, settings and portal column, in the order of the
# fields.
STEPS: dict[str, Callable[[pl.Expr, Cell, str], pl.Expr]] = {
    "strip_prefix": _stripped,
    "strip_suffix": _stripped,
    "split": _split,
    "slice": lambda value, cell, _: present(
        value.str.slice(*_bounds(value.str.len_chars(), cell.slice or (1, -1)))
    ),
    "pad": lambda value, cell, _: (
        pl.when(value.str.contains("^[0-9]+$"))
        .then(value.str.zfill(cell.pad or 0))
        .otherwise(value)
    ),
    "format": _formatted,
    "lookup": _looked_up,
}


def _portal_column(name: str) -> str:
    if name not in portal.columns():
        raise ValueError(
            f"the portal has no column {name!r}; did you mean {nearest(name, portal.columns())!r}?"
        )
    return name


PortalColumn = Annotated[str, AfterValidator(_portal_column)]


def _checked(columns: dict[str, Any]) -> dict[str, Any]:
    for target, spec in columns.items():
        dated = isinstance(spec, Cell) and spec.format is not None and spec.format not in NAMES
        if dated and target not in (portal.YEAR, portal.MONTH):
            raise ValueError(
                f"{target}: format = {spec.format!r} is for {portal.YEAR} and {portal.MONTH}"
            )
    return columns


# portal column -> where it comes from
Columns = Annotated[dict[PortalColumn, Spec], AfterValidator(_checked)]
