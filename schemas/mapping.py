"""How a portal column is made of an issuer's columns: a source, and the steps applied to its text,
in their order here.

A step is one field of `Cell`: name, values and meaning; and its expression in `STEPS`. Everything
else is derived: validation, `deploy/SETTINGS.md`, and the expression of a column.
"""

from __future__ import annotations

import calendar
import difflib
import re
from collections.abc import Callable, Collection
from typing import Annotated, Any, Literal, Self

import polars as pl
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    StringConstraints,
    Tag,
    model_validator,
)

from schemas import portal
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


def present(text: pl.Expr) -> pl.Expr:
    """Return a text without blanks around it, null where nothing is left."""
    text = text.str.strip_chars()
    return pl.when(text != "").then(text)


# Dates

AUTO = "auto"
_MONTHS = {
    name[:3].lower(): f"{number:02d}" for number, name in enumerate(calendar.month_name) if number
}
_NAMED = (
    "(?i:" + "|".join(f"{name[:3]}(?:{name[3:]})?" for name in calendar.month_name[1:]) + "|sept)"
)
_TOKEN = re.compile(r"YYYY|YY|MON|MM|DD|[^A-Za-z0-9]+")
_SHAPES = {"YYYY": "[0-9]{4}", "YY": "[0-9]{2}", "MM": "[0-9]{2}", "DD": "[0-9]{2}", "MON": _NAMED}
_LONE = {"MM": "[0-9]{1,2}", "DD": "[0-9]{1,2}"}  # between separators, where a zero may be left out
_REAL = _SHAPES | {"YYYY": "20[0-9]{2}", "MM": "0[1-9]|1[0-2]", "DD": "0[1-9]|[12][0-9]|3[01]"}
_LONE_REAL = {"MM": "0?[1-9]|1[0-2]", "DD": "0?[1-9]|[12][0-9]|3[01]"}
_ORDERS = (
    "MM YY", "YY MM", "YYYY MM", "MM YYYY", "YYYY MM DD", "DD MM YYYY", "MM DD YYYY", "YY MM DD", "DD MM YY",
    "MM DD YY", "MON YY", "MON YYYY", "DD MON YY", "DD MON YYYY", "YYYY MON DD"
)  # fmt: skip
# what `auto` chooses from
READINGS = tuple(order.replace(" ", mark) for mark in ("", *"/-. ") for order in _ORDERS)


def _tokens(form: str) -> list[str]:
    """Return the parts of a date pattern, none where it is no pattern."""
    found = _TOKEN.findall(form)
    years, months, days = (sum(one.startswith(kind) for one in found) for kind in ("YY", "M", "DD"))
    return found if "".join(found) == form and years == months == 1 and days <= 1 else []


def date_shape(form: str, part: str = "", *, real: bool = False) -> str:
    """Return a regex of dates in this form, with a group around `part` (Y or M); `real`: the date
    may exist.
    """
    shapes, lone = (_REAL, _LONE_REAL) if real else (_SHAPES, _LONE)
    tokens, shape = _tokens(form), ""
    for at, token in enumerate(tokens):
        beside = {*tokens[max(at - 1, 0) : at], *tokens[at + 1 : at + 2]} & _SHAPES.keys()
        if token not in shapes:
            shape += re.escape(token).replace("\\ ", " +")  # polars rejects an escaped space
        else:
            inner = shapes[token] if beside else lone.get(token, shapes[token])
            shape += f"({inner})" if part and token.startswith(part) else f"(?:{inner})"
    return f"^{shape}$"


def date_part(text: pl.Expr, form: str, target: str, *, real: bool = False) -> pl.Expr:
    """Return year or month; UNREADABLE for a text in another form, which must not look absent."""
    part = text.str.extract(date_shape(form, "Y" if target == portal.YEAR else "M", real=real))
    if target != portal.YEAR and "MON" in form:
        part = part.str.to_lowercase().str.slice(0, 3).replace(_MONTHS)
    return pl.when(part.is_null() & text.is_not_null()).then(pl.lit(UNREADABLE)).otherwise(part)


# Names

NAMES = ("LAST, FIRST", "LAST/FIRST", "SURNAME/GIVEN", "FIRST LAST", "LAST FIRST")
_PARTICLES = "(?:(?:van|von|vom|zu|der|den|ter|ten|de|del|della|di|da|do|dos|das|du|la|le|los|el|al|bin|st\\.?) +)*"
_SUFFIX = r"(?i)[, ]+((?:jr|sr|ii|iii|iv)\.?)$"
_SPLITS = {  # last and first name
    ",": (r"^([^,]+)", r"^[^,]*,(.+)$"),
    "/": (r"^([^/]+)", r"^[^/]*/([^/]+)$"),
    "FIRST LAST": (rf"(?i)^(?:\S.*? +)?({_PARTICLES}\S+)$", rf"(?i)^(\S.*?) +{_PARTICLES}\S+$"),
    "LAST FIRST": (rf"(?i)^({_PARTICLES}\S+)", rf"(?i)^{_PARTICLES}\S+ +(.+)$"),
}


def _name_part(text: pl.Expr, form: str, target: str) -> pl.Expr:
    """Return last or first name, for any other column both; particles and suffixes belong to the
    last name.
    """
    text = text.str.replace_all(r"\s+", " ").str.replace(
        r"(?i)^([^,]+), ?((?:jr|sr|ii|iii|iv)\.?),(.*)$", "${1},${3} ${2}"
    )
    bare = present(text.str.replace(_SUFFIX, ""))
    mark = next((mark for mark in ",/" if mark in form), form)
    last, first = (bare.str.extract(pattern).str.strip_chars() for pattern in _SPLITS[mark])
    last = pl.concat_str(last, text.str.extract(_SUFFIX), separator=" ", ignore_nulls=True)
    if target in (portal.LAST_NAME, portal.FIRST_NAME):
        return present(last) if target == portal.LAST_NAME else first
    return present(pl.concat_str(first, last, separator=" ", ignore_nulls=True))


def _format(text: str) -> str:
    if text in (AUTO, *NAMES) or _tokens(text):
        return text
    raise ValueError(
        f"{text!r} is no format: a date has YYYY or YY, MM or MON, and perhaps DD, in any order; a name is one of "
        f"{', '.join(map(repr, NAMES))}; did you mean {nearest(text, (*READINGS, *NAMES))!r}?"
    )


# Steps


def _stripped(value: pl.Expr, cell: Cell, _: str) -> pl.Expr:
    for one in cell.strip_prefix or ():
        value = value.str.strip_prefix(one)
    for one in cell.strip_suffix or ():
        value = value.str.strip_suffix(one)
    return present(value)


def _bounds(length: pl.Expr, span: Span) -> tuple[pl.Expr, pl.Expr]:
    """Return offset and length of a span that counts from 1, or from the right where it is
    negative.
    """
    length = length.cast(pl.Int64)
    begin, end = (pl.lit(at) if at > 0 else length + (at + 1) for at in span)
    begin = pl.max_horizontal(begin, 1) - 1
    return begin, pl.max_horizontal(end - begin, 0)


def _split(value: pl.Expr, cell: Cell, _: str) -> pl.Expr:
    parts = (
        value.str.extract_all(r"\S+") if cell.split == " " else value.str.split(cell.split or "")
    )
    if isinstance(cell.part, tuple):
        return present(
            parts.list.slice(*_bounds(parts.list.len(), cell.part)).list.join(cell.split or "")
        )
    at = cell.part or 1
    return present(parts.list.get(at - (at > 0), null_on_oob=True))


def _formatted(value: pl.Expr, cell: Cell, target: str) -> pl.Expr:
    form = cell.format or AUTO
    if form in NAMES:
        return _name_part(value, form, target)
    return value if form == AUTO else date_part(value, form, target)


def _looked_up(value: pl.Expr, cell: Cell, _: str) -> pl.Expr:
    table = cell.lookup if isinstance(cell.lookup, dict) else {}
    unknown = {"reject": pl.lit(UNREADABLE), "empty": pl.lit(None, pl.String), "keep": value}[
        cell.unknown
    ]
    found = value.replace_strict(
        list(table), list(table.values()), default=None, return_dtype=pl.String
    )
    return present(
        pl.when(value.is_in(list(table))).then(found).when(value.is_not_null()).then(unknown)
    )


def _ordered(span: Any) -> Any:
    first, last = span if isinstance(span, tuple) else (span, span)
    if span is not None and (
        first == 0 or last == 0 or ((first > 0) == (last > 0) and first > last)
    ):
        raise ValueError(
            "places are counted from 1, or from -1 at the right; the first before the last"
        )
    return span


_Ordered = AfterValidator(_ordered)
_OneOrMore = BeforeValidator(
    lambda given: (given,) if isinstance(given, str) else given,
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
        "which part of `split`, from 1, or from -1 at the right; `[first, last]`: these and those between",
    )
    slice: Annotated[Span, _Ordered] | None = setting(
        None, "first and last character, from 1, or from -1 at the right"
    )
    pad: int | None = setting(None, "left-pad digits with zeros to this length", ge=1, le=16)
    format: Annotated[Header, AfterValidator(_format)] | None = setting(
        None,
        "how a date or a name is written; the part its portal column needs is taken. Dates: YYYY or YY, MM "
        "or MON (English names), DD, in any order, with any separators; `auto`: the one reading that fits all rows. "
        f"Names: {', '.join(map(repr, NAMES))}; particles (`van der`) and suffixes (Jr, Sr, II, III, IV) go with LAST",
    )
    lookup: dict[str, str] | str | None = setting(
        None, "text by text; or a CSV file beside the TOML: two columns, no header"
    )
    unknown: Literal["reject", "empty", "keep"] = setting(
        "reject",
        "what a text that is not in `lookup` means: its row is rejected, it is empty, or kept",
    )
    when: Filter | None = setting(
        None, "rows that have it, as in `[filter]`; in others it is empty"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if (
            sum(
                one is not None
                for one in (self.source, self.at, self.constant, self.join, self.first)
            )
            != 1
        ):
            raise ValueError("give exactly one of `from`, `at`, `constant`, `join`, `first`")
        if self.at is not None and not 1 <= self.at[0] <= self.at[1]:
            raise ValueError("`at` is [first, last], counted from 1")
        if (self.split is None) != (self.part is None):
            raise ValueError("`split` and `part` belong together")
        for name, needs in {"between": "join", "unknown": "lookup"}.items():
            if name in self.model_fields_set and getattr(self, needs) is None:
                raise ValueError(f"`{type(self).model_fields[name].alias or name}` needs `{needs}`")
        inner = (self.source, *(self.join or ()), *(self.first or ()))
        if any(isinstance(one, Cell) and one.format == AUTO for one in inner) or (
            self.format == AUTO and self.lookup
        ):
            raise ValueError("`auto` stands in the outermost table, without `lookup`")
        return self


# A source column, several of which the first that exists counts, or a table.
Spec = Annotated[
    Annotated[Header, Tag("header")]
    | Annotated[tuple[Header, ...], Tag("headers")]
    | Annotated[Cell, Tag("table")],
    Discriminator(
        lambda given: (
            "header"
            if isinstance(given, str)
            else "table"
            if isinstance(given, dict | Cell)
            else "headers"
        )
    ),
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
