"""From an issuer's headers to the portal's columns (`[columns]`), and which rows count."""

import difflib
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import date
from typing import NamedTuple, Self

import polars as pl

from flows.errors import CardlinkError
from flows.extracts.errors import MappingError
from flows.extracts.grammar import RECORD
from flows.extracts.origins import Origin, origins_of
from flows.extracts.reader import Block
from flows.extracts.status import Decisions, matching, plan_decisions, undecided_columns
from schemas import cell_formats, portal
from schemas import mapping as cells
from schemas.expressions import UNREADABLE
from schemas.issuer import Issuer
from schemas.status import DELETE, LEAVE_OUT, REFUSE, REJECT, undecided

ELIGIBLE = "eligible"  # beside the portal's columns: whether `[eligible]` `where` holds
REISSUE = "reissue"  # beside the portal's columns: what tells a reissued card from the one before


Note = Callable[[CardlinkError], None]
Reread = Callable[[], Iterator[Block]]


def stop(error: CardlinkError) -> None:
    """Raise what is wrong; a check notes it and goes on."""
    raise error


class Dates(NamedTuple):
    """A column of dates: the header or place it is from, its `format`, and its text."""

    source: str
    form: str
    text: pl.Expr

    def fits(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return which forms fit a row, once for all rows alike.

        Only rows that have a date in any form are looked at.
        """
        auto = self.form == cell_formats.AUTO
        forms = cell_formats.READINGS if auto else (self.form,)
        shapes = (
            self.text.str.contains(cell_formats.date_shape(form, real=auto)).alias(form)
            for form in forms
        )
        return rows.select(shapes).filter(pl.any_horizontal(pl.all())).unique()

    def fits_all(self, frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
        """Return which forms fit the rows of several frames."""
        return pl.concat(self.fits(rows) for rows in frames).unique()

    def wrong(self, rows: pl.DataFrame) -> str:
        """Return what is there instead of dates, "" for nothing.

        It is a line, its shape, and the forms that would fit.
        """
        present = rows.filter(self.text.is_not_null()).select("line", self.text.alias("text"))
        if present.is_empty():
            return ""
        line, text = present.row(0)
        digits = re.sub("[0-9]", "9", re.sub(r"[^\D0-9]", "?", text))  # of other scripts: ?
        shape = re.sub(r"[^\W\d_]", "A", digits)[:20]
        readable = Dates("", cell_formats.AUTO, pl.col("text")).fits(present)
        forms = ", ".join(_possible(readable)) or "nothing"
        return (
            f"line {line} has {shape!r}, which format = {self.form!r} does not read "
            f"(formats that do: {forms})"
        )


def _possible(fits: pl.DataFrame) -> list[str]:
    return [form for form in fits.columns if fits[form].all()]


class Mapping(NamedTuple):
    """The plan for one extract: an expression per portal column, and what becomes of each row."""

    columns: tuple[pl.Expr, ...]  # the portal's, and REISSUE and ELIGIBLE where mapped
    decisions: Decisions
    dates: dict[str, Dates]  # by portal column
    name: str
    origins: dict[str, Origin]  # by portal column

    def only(self, names: Collection[str]) -> Self:
        """Return the mapping with nothing but these columns filled."""
        empty = pl.lit(None, pl.String)
        columns = [
            column if target in names else empty.alias(target)
            for column, target in zip(self.columns, portal.columns(), strict=False)
        ]
        return self._replace(columns=tuple(columns))


def plan_mapping(
    header: Sequence[str],
    issuer: Issuer,
    name: str,
    template: dict[str, str],
    beside: Collection[str] = (),
    note: Note = stop,
    as_of: date = date.max,
) -> Mapping:
    """Plan how rows under `header` become the portal's columns.

    Without `[columns]`, the portal's names are expected. `template`: the portal's own names of its
    columns; `beside`: headers that are always allowed; `as_of`: the business date, by which days of
    closing are judged. `note` gets an UndecidedError, which is raised where a required column is
    undecided, and a MappingError for columns that are missing, and for unknown ones where `strict`
    is set or `[columns]` is not.
    """
    decided = _decided_columns(issuer, note)
    finder = _Finder(header, has_date_cells=issuer.source.is_workbook)
    specs = decided or _portals_own(finder, template)
    absent = [target for target in portal.REQUIRED if target not in specs]
    finder.missing += [f"for {target}, which [columns] does not name" for target in absent]
    columns = _columns(specs, issuer.resend.reissue_column, finder)
    columns += _eligible(issuer, finder)
    origins = origins_of(specs, finder.match)
    decisions = plan_decisions(issuer, finder, as_of)
    if finder.missing:
        note(MappingError(name=name, problem=f"it has no column {'; '.join(finder.missing)}"))
    unknown = finder.unused(beside)
    if unknown and (issuer.source.strict or not issuer.columns):
        note(MappingError(name=name, problem=f"it has unknown columns: {', '.join(unknown)}"))
    return Mapping(columns, decisions, _dates(specs, finder), name, origins)


def _decided_columns(issuer: Issuer, note: Note) -> cells.Columns:
    """Return the columns that somebody decided; note the others.

    Raises UndecidedError where a required one is undecided.
    """
    error = undecided_columns(issuer)
    if error is None:
        return dict(issuer.columns)
    open_columns = undecided(issuer.columns)
    if not {*portal.REQUIRED}.isdisjoint(open_columns):
        raise error
    note(error)
    return {name: spec for name, spec in issuer.columns.items() if name not in open_columns}


def _portals_own(finder: "_Finder", template: dict[str, str]) -> cells.Columns:
    """Return the portal's columns under its own names: those required, and those in the header."""
    specs: cells.Columns = {}
    for target in portal.columns():
        names = tuple(dict.fromkeys((target, template.get(target, target))))
        if target in portal.REQUIRED or finder.has(*names):
            specs[target] = names
    return specs


def _columns(
    specs: cells.Columns, reissue: cells.Spec | None, finder: "_Finder"
) -> tuple[pl.Expr, ...]:
    """Return the portal's columns, and REISSUE where mapped."""
    columns = [
        _column(target, specs.get(target), finder).alias(target) for target in portal.columns()
    ]
    if reissue is not None:
        columns.append(_column(REISSUE, reissue, finder).alias(REISSUE))
    return tuple(columns)


def _eligible(issuer: Issuer, finder: "_Finder") -> tuple[pl.Expr, ...]:
    """Return ELIGIBLE where the settings ask for it."""
    tests = [
        condition.holds(finder.find(name).str.strip_chars().fill_null(""))
        for name, condition in issuer.eligible.where.items()
    ]
    return (pl.all_horizontal(tests).alias(ELIGIBLE),) if tests else ()


def _dates(specs: cells.Columns, finder: "_Finder") -> dict[str, Dates]:
    """Return the columns that are dates, without the steps that read them."""
    dates = {}
    for target, spec in specs.items():
        if (
            not isinstance(spec, cells.Cell)
            or spec.format is None
            or spec.format in cell_formats.NAMES
        ):
            continue
        undated = spec.model_copy(update={"format": cell_formats.AUTO, "lookup": None})
        text = finder.dated(_cell(target, undated, finder), spec.format)
        source = spec.source if isinstance(spec.source, str) else target
        dates[target] = Dates(source, spec.format, text)
    return dates


class MappedRows(NamedTuple):
    """A block's rows, each in one of these.

    `sent` has row, line, the portal's columns, and what is mapped beside them; `left_out` and
    `deleted` have those, with only cuid and card number filled. `unknown`, whose status no list
    names, has row, line and `found`: column and label. `values` counts the unknown values that
    refuse the extract, by column and label.
    """

    sent: pl.DataFrame
    left_out: pl.DataFrame
    deleted: pl.DataFrame
    unknown: pl.DataFrame
    values: Counter[tuple[str, str]]


def map_rows(rows: pl.DataFrame, mapping: Mapping) -> MappedRows:
    """Put the rows that are sent under the portal's columns, and tell them from the others.

    Raises MappingError where a date has another form than the one that `auto` found in earlier
    rows.
    """
    sent, others, decision = mapping.decisions.split(rows)
    is_unknown = decision.is_in([REJECT, REFUSE])
    card = mapping.only((portal.CUID, portal.PAN)).columns
    mapped = MappedRows(
        sent.select("row", "line", *mapping.columns),
        others.filter(decision == LEAVE_OUT).select("row", "line", *card),
        others.filter(decision == DELETE).select("row", "line", *card),
        mapping.decisions.with_found(others.filter(is_unknown)),
        mapping.decisions.unknown_values(others.filter(is_unknown)),
    )
    _refuse_other_dates(sent, mapped.sent, mapping)
    return mapped


def _refuse_other_dates(rows: pl.DataFrame, mapped: pl.DataFrame, mapping: Mapping) -> None:
    for target, dates in mapping.dates.items():
        if dates.form != cell_formats.AUTO:
            continue
        if dates.fits(rows.filter(mapped[target] == UNREADABLE)).height:
            problem = f"the dates of {dates.source} cannot be read: no form of `auto` fits all rows"
            raise MappingError(name=mapping.name, problem=problem)


def with_dates(mapping: Mapping, first: pl.DataFrame, reread: Reread, note: Note = stop) -> Mapping:
    """Return the mapping with a form for every column of dates.

    All rows decide where the `first` leave a doubt. Where `auto` fits several forms or none, or no
    date has the form of the settings, a MappingError goes to `note`.
    """
    columns = list(mapping.columns)
    origins = dict(mapping.origins)
    is_read = mapping.decisions.is_sent

    def all_rows() -> Iterator[pl.DataFrame]:
        return (block.rows.filter(is_read) for block in reread())

    for target, dates in mapping.dates.items():
        fits = dates.fits(first.filter(is_read))
        if fits.is_empty() or len(_possible(fits)) != 1:
            fits = dates.fits_all(all_rows())
        problem = _problem_of_dates(dates, fits, all_rows)
        if problem:
            problem = f"the dates of {dates.source} cannot be read: {problem}"
            note(MappingError(name=mapping.name, problem=problem))
        elif dates.form == cell_formats.AUTO:
            form = _possible(fits)[0]  # any, where there are no dates
            part = cell_formats.date_part(dates.text, form, target, real=True)
            columns[portal.columns().index(target)] = part.alias(target)
            origins[target] = origins[target].with_format(form)
    return mapping._replace(columns=tuple(columns), origins=origins)


def _problem_of_dates(
    dates: Dates, fits: pl.DataFrame, all_rows: Callable[[], Iterator[pl.DataFrame]]
) -> str:
    """Return why dates cannot be read in one of the forms that fit, "" where they can."""
    if fits.is_empty():
        return next(filter(None, (dates.wrong(rows) for rows in all_rows())), "")
    forms = _possible(fits)
    if len(forms) == 1:
        return ""
    return f"`auto` finds {' and '.join(forms) or 'no form'} for all rows"


class _Finder:
    """Finds headers, exactly or ignoring case, spaces and underscores.

    It remembers which are used and which are missing.
    """

    def __init__(self, header: Sequence[str], *, has_date_cells: bool = False) -> None:
        self._header = header
        self._has_date_cells = has_date_cells
        self.used: set[str] = set()
        self.missing: list[str] = []

    def has(self, *names: str) -> bool:
        """Return whether a column may have one of these names."""
        return not {*map(_plain, names)}.isdisjoint(map(_plain, self._header))

    def unused(self, allowed: Collection[str]) -> list[str]:
        """Return the headers that nothing uses, without those that are always allowed."""
        used = self.used.union(allowed)
        return [column for column in self._header if column not in used]

    def find(self, *names: str) -> pl.Expr:
        """Return the column that has one of these names; nulls, and it is missing, if none has."""
        column = self.match(names)
        if column is not None:
            self.used.add(column)
            return pl.col(column)
        by_plain = {_plain(column): column for column in self._header}
        near = difflib.get_close_matches(_plain(names[0]), list(by_plain), n=3, cutoff=0)
        nearest = ", ".join(by_plain[plain] for plain in near)
        self.missing.append(f"{' or '.join(names)} (nearest: {nearest})")
        return pl.lit(None, pl.String)

    def record(self) -> pl.Expr:
        """Return the whole line, which only a fixed-width extract without names has."""
        if RECORD in self._header:
            return self.find(RECORD)
        self.missing.append("`at`, which is for format = 'fixed' without names")
        return pl.lit(None, pl.String)

    def dated(self, text: pl.Expr, form: str) -> pl.Expr:
        """Return a text of dates in a form, which cells of a workbook have as dates."""
        return cell_formats.date_cells_as(text, form) if self._has_date_cells else text

    def match(self, names: Sequence[str]) -> str | None:
        """Return the column of one of these names: the exact one, else the only one alike."""
        for name in names:
            if name in self._header:
                return name
        for name in names:
            similar = [column for column in self._header if _plain(column) == _plain(name)]
            if len(similar) == 1:
                return similar[0]
        return None


def _plain(name: str) -> str:
    return name.casefold().replace(" ", "").replace("_", "")


def column_of(target: str, spec: cells.Spec, header: Sequence[str]) -> pl.Expr:
    """Return a portal column as a spec makes it of columns with these headers."""
    return _column(target, spec, _Finder(header))


def _column(target: str, spec: cells.Spec | None, finder: _Finder) -> pl.Expr:
    """Return what a portal column is made of, nulls for nothing."""
    if spec is None:
        return pl.lit(None, pl.String)
    if isinstance(spec, cells.Cell):
        return _cell(target, spec, finder)
    return finder.find(spec) if isinstance(spec, str) else finder.find(*spec)


def _cell(target: str, cell: cells.Cell, finder: _Finder) -> pl.Expr:
    """Return the source of a cell after its steps."""
    value = cell_formats.present(_source(target, cell, finder))
    for name, step in cells.STEPS.items():
        if name == "format" and cell.format is not None:
            value = finder.dated(value, cell.format)
        if getattr(cell, name) is not None:
            value = step(value, cell, target)
    applies = matching(cell.when or {}, finder)
    return value if applies is None else pl.when(applies).then(value)


def _source(target: str, cell: cells.Cell, finder: _Finder) -> pl.Expr:
    if cell.at is not None:
        first, last = cell.at
        return finder.record().str.slice(first - 1, last - first + 1)
    if cell.join or cell.first:
        parts = [_column(target, part, finder) for part in cell.join or cell.first or ()]
        texts = [cell_formats.present(part) for part in parts]
        if cell.join:
            return pl.concat_str(texts, separator=cell.between, ignore_nulls=True)
        return pl.coalesce(texts)
    if cell.source is None:
        return pl.lit(cell.constant)
    return _column(target, cell.source, finder)
