"""From the issuer's headers to the portal's columns, by `[columns]` and `[filter]` of its
settings.
"""

import difflib
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple, Self

import polars as pl

from flows.errors import CardlinkError
from flows.extracts.errors import MappingError
from flows.extracts.grammar import RECORD
from flows.extracts.reader import Block
from schemas import mapping as cells
from schemas import portal
from schemas.expressions import UNREADABLE
from schemas.issuer import Issuer

REISSUE = "reissue"  # beside the portal's columns: what tells a reissued card from the one before


Note = Callable[[CardlinkError], None]


def stop(error: CardlinkError) -> None:
    """Raise what is wrong; a check notes it and goes on."""
    raise error


class Dates(NamedTuple):
    """A column of dates: the header or place it is from, its `format`, and its text."""

    source: str
    form: str
    text: pl.Expr

    def fits(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return which forms fit a row, once for all rows alike; only of rows that have a date in
        any form.
        """
        auto, any_form = self.form == cells.AUTO, pl.any_horizontal(pl.all())
        forms = cells.READINGS if auto else (self.form,)
        shapes = (
            self.text.str.contains(cells.date_shape(form, real=auto)).alias(form) for form in forms
        )
        return rows.select(shapes).filter(any_form).unique()

    def wrong(self, rows: pl.DataFrame) -> str:
        """Return what stands there instead of dates, "" for nothing: a line, its shape, the forms
        that would fit.
        """
        rows = rows.filter(self.text.is_not_null()).select("line", self.text.alias("text"))
        if rows.is_empty():
            return ""
        line, text = rows.row(0)
        shape = re.sub(r"[^\W\d_]", "A", re.sub(r"\d", "9", text))[:20]
        forms = ", ".join(_possible(Dates("", cells.AUTO, pl.col("text")).fits(rows))) or "nothing"
        return f"line {line} has {shape!r}, which format = {self.form!r} does not read (what does: {forms})"


def _possible(fits: pl.DataFrame) -> list[str]:
    return [form for form in fits.columns if fits[form].all()]


class Mapping(NamedTuple):
    """The plan for one extract: an expression per portal column, and the filter for rows that
    count, if any.
    """

    columns: tuple[pl.Expr, ...]  # the portal's, and REISSUE where mapped
    counts: pl.Expr | None
    dates: dict[str, Dates]  # by portal column
    name: str

    def only(self, names: Collection[str]) -> Self:
        """Return the mapping with nothing but these columns filled."""
        empty = pl.lit(None, pl.String)
        every = zip(self.columns, (*portal.columns(), REISSUE), strict=False)
        return self._replace(
            columns=tuple(one if name in names else empty.alias(name) for one, name in every)
        )


def plan_mapping(
    header: Sequence[str],
    issuer: Issuer,
    name: str,
    template: dict[str, str],
    beside: Collection[str] = (),
    note: Note = stop,
) -> Mapping:
    """Plan how rows under `header` become the portal's columns; without `[columns]`, the portal's
    names are expected.

    `template`: the portal's own names of its columns; `beside`: headers that are always allowed. `note` is told of
    columns that are missing, and of unknown ones where `strict` is set or `[columns]` is not.
    """
    finder = _Finder(header)
    own = {
        name: tuple(dict.fromkeys((name, template.get(name, name)))) for name in portal.columns()
    }
    needed = {
        name: both for name, both in own.items() if name in portal.REQUIRED or finder.has(*both)
    }
    asked: cells.Columns = dict(issuer.columns) or dict(needed)
    absent = [target for target in portal.REQUIRED if target not in asked]
    finder.missing += [f"for {target}, which [columns] does not name" for target in absent]
    built = tuple(
        _column(target, asked.get(target), finder).alias(target) for target in portal.columns()
    )
    if (reissue := issuer.resend.reissue_column) is not None:
        built += (_column(REISSUE, reissue, finder).alias(REISSUE),)
    counts = _counting(issuer.filter, finder)
    if finder.missing:
        note(MappingError(name=name, problem=f"it has no column {'; '.join(finder.missing)}"))
    unknown = [found for found in header if found not in finder.used and found not in beside]
    if unknown and (issuer.source.strict or not issuer.columns):
        note(MappingError(name=name, problem=f"it has unknown columns: {', '.join(unknown)}"))
    dates = {}
    for target, spec in asked.items():
        if (
            isinstance(spec, cells.Cell)
            and spec.format is not None
            and spec.format not in cells.NAMES
        ):
            plain = spec.model_copy(update={"format": cells.AUTO, "lookup": None})
            source = spec.source if isinstance(spec.source, str) else target
            dates[target] = Dates(source, spec.format, _made(target, plain, finder))
    return Mapping(built, counts, dates, name)


def map_rows(rows: pl.DataFrame, mapping: Mapping) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return (row, line, the portal's columns, REISSUE where mapped; row and line of rows that the
    filter excludes).

    Raises MappingError where a date has another form than the one that `auto` found in earlier
    rows.
    """
    excluded = rows.select("row", "line").clear()
    if mapping.counts is not None:
        counted = rows.select(mapping.counts.fill_null(False)).to_series()
        excluded = rows.select("row", "line").filter(~counted)
        rows = rows.filter(counted)
    mapped = rows.select("row", "line", *mapping.columns)
    for target, dates in mapping.dates.items():
        if (
            dates.form == cells.AUTO
            and dates.fits(rows.filter(mapped[target] == UNREADABLE)).height
        ):
            problem = f"the dates of {dates.source} cannot be read: no form of `auto` fits all rows"
            raise MappingError(name=mapping.name, problem=problem)
    return mapped, excluded


def with_dates(
    mapping: Mapping, first: pl.DataFrame, reread: Callable[[], Iterator[Block]], note: Note = stop
) -> Mapping:
    """Return the mapping with a form for every column of dates; all rows decide where the `first`
    leave a doubt.

    Where `auto` fits several forms or none, or no date has the form of the settings, MappingError
    goes to `note`.
    """
    columns = list(mapping.columns)
    counts = pl.lit(value=True) if mapping.counts is None else mapping.counts
    for target, dates in mapping.dates.items():
        found = dates.fits(first.filter(counts))
        if found.is_empty() or len(_possible(found)) != 1:
            found = pl.concat(dates.fits(block.rows.filter(counts)) for block in reread()).unique()
        forms, problem = _possible(found), ""
        if found.is_empty():
            problem = next(
                filter(None, (dates.wrong(block.rows.filter(counts)) for block in reread())), ""
            )
        elif len(forms) != 1:
            problem = f"`auto` finds {' and '.join(forms) or 'no form'} for all rows"
        if problem:
            note(
                MappingError(
                    name=mapping.name,
                    problem=f"the dates of {dates.source} cannot be read: {problem}",
                )
            )
        elif dates.form == cells.AUTO:
            at = portal.columns().index(target)
            columns[at] = cells.date_part(dates.text, forms[0], target, real=True).alias(target)
    return mapping._replace(columns=tuple(columns))


class _Finder:
    """Finds headers, exactly or ignoring case, spaces and underscores; remembers which are used and
    missing.
    """

    def __init__(self, header: Sequence[str]) -> None:
        self._header = header
        self.used: set[str] = set()
        self.missing: list[str] = []

    def has(self, *wanted: str) -> bool:
        return bool({*map(_plain, wanted)} & {*map(_plain, self._header)})

    def find(self, *wanted: str) -> pl.Expr:
        alike = [
            [found for found in self._header if _plain(found) == _plain(name)] for name in wanted
        ]
        exact = [[name] for name in wanted if name in self._header]
        if one := next((found[0] for found in (*exact, *alike) if len(found) == 1), None):
            self.used.add(one)
            return pl.col(one)
        by_plain = {_plain(found): found for found in self._header}
        near = difflib.get_close_matches(_plain(wanted[0]), list(by_plain), n=3, cutoff=0)
        self.missing.append(
            f"{' or '.join(wanted)} (nearest: {', '.join(by_plain[key] for key in near)})"
        )
        return pl.lit(None, pl.String)


def _plain(name: str) -> str:
    return name.casefold().replace(" ", "").replace("_", "")


def _column(target: str, spec: cells.Spec | None, finder: _Finder) -> pl.Expr:
    if spec is None or isinstance(spec, cells.Cell):
        return pl.lit(None, pl.String) if spec is None else _made(target, spec, finder)
    return finder.find(*([spec] if isinstance(spec, str) else spec))


def _made(target: str, cell: cells.Cell, finder: _Finder) -> pl.Expr:
    """Return the source of a cell after its steps."""
    if cell.at is not None:
        value = finder.find(RECORD).str.slice(cell.at[0] - 1, cell.at[1] - cell.at[0] + 1)
    elif parts := cell.join or cell.first:
        texts = [cells.present(_column(target, one, finder)) for one in parts]
        joined = pl.concat_str(texts, separator=cell.between, ignore_nulls=True)
        value = joined if cell.join else pl.coalesce(texts)
    else:
        value = (
            pl.lit(cell.constant) if cell.source is None else _column(target, cell.source, finder)
        )
    value = cells.present(value)
    for name, step in cells.STEPS.items():
        if getattr(cell, name) is not None:
            value = step(value, cell, target)
    holds = _counting(cell.when or {}, finder)
    return value if holds is None else pl.when(holds).then(value)


def _counting(where: cells.Filter, finder: _Finder) -> pl.Expr | None:
    tests = []
    for name, rule in where.items():
        value = finder.find(name).str.strip_chars().fill_null("")
        values = (
            rule.exclude
            if isinstance(rule, cells.Except)
            else [rule]
            if isinstance(rule, str)
            else rule
        )
        tests.append(value.is_in(list(values)) ^ isinstance(rule, cells.Except))
    return pl.all_horizontal(tests) if tests else None
