"""From the issuer's headers to the portal's columns, by `[columns]` and `[filter]` of its settings."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from functools import cache
from typing import NamedTuple

import polars as pl

from flows.extracts.errors import MissingColumnsError, UnknownColumnsError
from flows.extracts.header import RECORD
from schemas import portal, rules
from schemas.issuer import Columns, Constant, Except, Filter, From, Header
from schemas.row_settings import RuleSettings

NO_FILTER: Filter = {}
REISSUE = "reissue"  # beside the portal's columns: what tells a reissued card from the one before
UNREADABLE = "unreadable"  # replaces a date that is not in its format; the rules reject it
# The year and the month in a date of each format.
DATES = {
    "MMYY": (r"^[0-9]{2}([0-9]{2})$", r"^([0-9]{2})[0-9]{2}$"),
    "YYMM": (r"^([0-9]{2})[0-9]{2}$", r"^[0-9]{2}([0-9]{2})$"),
    "MM/YY": (r"^[0-9]{1,2}/([0-9]{2})$", r"^([0-9]{1,2})/[0-9]{2}$"),
    "MM/YYYY": (r"^[0-9]{1,2}/([0-9]{4})$", r"^([0-9]{1,2})/[0-9]{4}$"),
    "YYYY-MM": (r"^([0-9]{4})-[0-9]{2}$", r"^[0-9]{4}-([0-9]{2})$"),
    "YYYY-MM-DD": (r"^([0-9]{4})-[0-9]{2}-[0-9]{2}$", r"^[0-9]{4}-([0-9]{2})-[0-9]{2}$"),
}


class Mapping(NamedTuple):
    """The plan for one extract: an expression per portal column, and the filter for rows that count, if any."""

    columns: tuple[pl.Expr, ...]  # the portal's, and REISSUE where mapped
    counts: pl.Expr | None


def plan_mapping(
    header: Sequence[str],
    columns: Columns,
    name: str,
    *,
    where: Filter = NO_FILTER,
    reissue: Header | From | None = None,
    strict: bool = False,
    beside: Collection[str] = (),
) -> Mapping:
    """Plan how rows under `header` become the portal's columns; without `columns`, the portal's names are expected.

    `beside`: headers that are always allowed. Raises MissingColumnsError, and UnknownColumnsError if `strict` or
    without `columns`.
    """
    asked: Columns = dict(columns) or _portal_columns(header)
    finder = _Finder(header)
    finder.missing += [
        f"for {target}, which [columns] does not name"
        for target in portal.columns()
        if target in required() - asked.keys()
    ]
    built = tuple(_column(target, asked.get(target), finder).alias(target) for target in portal.columns())
    if reissue is not None:
        built += (_column(REISSUE, reissue, finder).alias(REISSUE),)
    counts = _counting(where, finder)
    if finder.missing:
        raise MissingColumnsError(name=name, columns="; ".join(finder.missing))
    unknown = [found for found in header if found not in finder.used and found not in beside]
    if unknown and (strict or not columns):
        raise UnknownColumnsError(name=name, columns=", ".join(unknown))
    return Mapping(built, counts)


def map_rows(rows: pl.DataFrame, mapping: Mapping) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return (row, line, the portal's columns, REISSUE where mapped; row and line of rows that the filter excludes)."""
    excluded = rows.select("row", "line").clear()
    if mapping.counts is not None:
        counted = rows.select(mapping.counts.fill_null(False)).to_series()
        excluded = rows.select("row", "line").filter(~counted)
        rows = rows.filter(counted)
    return rows.select("row", "line", *mapping.columns), excluded


class _Finder:
    """Finds headers, exactly or ignoring case, spaces and underscores; remembers which are used and missing."""

    def __init__(self, header: Sequence[str]) -> None:
        self._header = header
        self.used: set[str] = set()
        self.missing: list[str] = []

    def find(self, *wanted: str) -> pl.Expr:
        for name in wanted:
            if name in self._header:
                self.used.add(name)
                return pl.col(name)
        for name in wanted:
            alike = [found for found in self._header if _plain(found) == _plain(name)]
            if len(alike) == 1:
                self.used.add(alike[0])
                return pl.col(alike[0])
        by_plain = {_plain(found): found for found in self._header}
        near = difflib.get_close_matches(_plain(wanted[0]), list(by_plain), n=3, cutoff=0)
        self.missing.append(f"{' or '.join(wanted)} (nearest: {', '.join(by_plain[key] for key in near)})")
        return pl.lit(None, pl.String)


def _plain(name: str) -> str:
    return name.casefold().replace(" ", "").replace("_", "")


@cache
def required() -> frozenset[str]:
    """Return the portal columns without which every row would be rejected (interface.md 2.6)."""
    refusing = (rule for rule in rules.RULES if rule.severity_by(RuleSettings()) == "reject")
    return frozenset(rule.column for rule in refusing if rule.code.endswith(".missing"))


def _portal_columns(header: Sequence[str]) -> Columns:
    """Map each portal name to itself: required ones always, optional ones if they are found."""
    found = {_plain(name) for name in header}
    return {name: name for name in portal.columns() if name in required() or _plain(name) in found}


def _column(target: str, spec: str | tuple[str, ...] | From | Constant | None, finder: _Finder) -> pl.Expr:
    if spec is None:
        return pl.lit(None, pl.String)
    if isinstance(spec, Constant):
        return pl.lit(spec.constant)
    if not isinstance(spec, From):
        return finder.find(spec) if isinstance(spec, str) else finder.find(*spec)
    value = _cell(spec, finder)
    if spec.pad is not None:
        value = pl.when(value.str.contains("^[0-9]+$")).then(value.str.zfill(spec.pad)).otherwise(value)
    if spec.format == "SURNAME/GIVEN":
        return _name_part(target, value)
    return _date_part(target, value, spec.format) if spec.format is not None else value


def _cell(spec: From, finder: _Finder) -> pl.Expr:
    if spec.at is None:
        names = (spec.source,) if isinstance(spec.source, str) else spec.source or ()
        return finder.find(*names).str.strip_chars()
    first, last = spec.at
    value = finder.find(RECORD).str.slice(first - 1, last - first + 1).str.strip_chars()
    return pl.when(value != "").then(value)


def _date_part(target: str, value: pl.Expr, form: str) -> pl.Expr:
    """Return year or month; UNREADABLE for a text in another format, which must not look absent."""
    part = value.str.extract(DATES[form][0 if target == portal.YEAR else 1])
    return pl.when(part.is_null() & value.is_not_null()).then(pl.lit(UNREADABLE)).otherwise(part)


def _name_part(target: str, value: pl.Expr) -> pl.Expr:
    """Return the surname, the given name, or for any other column both, given name first."""
    surname, given = (value.str.extract(pattern).str.strip_chars() for pattern in (r"^([^/]+)", r"^[^/]*/([^/]+)$"))
    if target in (portal.LAST_NAME, portal.FIRST_NAME):
        return surname if target == portal.LAST_NAME else given
    return pl.when(value.is_not_null()).then(pl.concat_str(given, surname, separator=" ", ignore_nulls=True))


def _counting(where: Filter, finder: _Finder) -> pl.Expr | None:
    tests = []
    for name, rule in where.items():
        value = finder.find(name).str.strip_chars().fill_null("")
        if isinstance(rule, Except):
            tests.append(~value.is_in(rule.exclude))
        else:
            tests.append(value.is_in([rule] if isinstance(rule, str) else list(rule)))
    return pl.all_horizontal(tests) if tests else None
