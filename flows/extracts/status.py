"""What becomes of each row by `[status]`.

One decision a row, a number of `schemas.status`: everything that reads an extract asks here.
"""

from collections import Counter
from collections.abc import Mapping
from datetime import date
from typing import NamedTuple, Protocol

import polars as pl

from flows.errors import OperatorError
from flows.extracts.status_words import label
from flows.redaction import redact
from flows.steps import Sentence, Step
from schemas import mapping as cells
from schemas.cell_formats import day_number
from schemas.issuer import Issuer
from schemas.status import (
    DECISIONS,
    NO_DATES,
    REFUSE,
    REJECT,
    SEND,
    StatusColumn,
    undecided,
)


class UndecidedError(OperatorError):
    """Nobody has decided what some columns are made of, or which rows count by them."""

    message = "The settings of {issuer} leave open: {columns}. Nothing was sent."
    next_step = Sentence(
        'In the TOML, the question is above each "undecided", and the answers that `init` found '
        'are below it. Replace "undecided" with the right answer ({column_settings}, '
        "{status_settings}), and ask the issuer where you do not know it. If a column of [status] "
        'does not say which rows count, write "ignored"; if an optional column of [columns] has '
        "no source, delete its line.",
        column_settings=Step("settings", "columns"),
        status_settings=Step("settings", "status"),
    )


class Finder(Protocol):
    """Finds the columns of an extract by name."""

    def find(self, *names: str) -> pl.Expr:
        """Return the column of one of these names; remembers what is missing."""

    def has(self, *names: str) -> bool:
        """Return whether a column may have one of these names."""

    def record(self) -> pl.Expr:
        """Return the whole line; remembers that it is missing."""

    def dated(self, text: pl.Expr, form: str) -> pl.Expr:
        """Return a text of dates in a form, which cells of a workbook have as dates."""


class DecidedRows(NamedTuple):
    """The rows of a block that are sent, and the others with the decision of each."""

    sent: pl.DataFrame
    others: pl.DataFrame
    decision: pl.Series


class Decisions(NamedTuple):
    """What becomes of each row, and what each column of `[status]` says of it alone.

    `decision` is None where every row is sent.
    """

    decision: pl.Expr | None = None
    by_column: Mapping[str, pl.Expr] = {}
    values: Mapping[str, pl.Expr] = {}  # of these columns

    @property
    def is_sent(self) -> pl.Expr:
        """Which rows are sent."""
        return pl.lit(value=True) if self.decision is None else self.decision == SEND

    def split(self, rows: pl.DataFrame) -> DecidedRows:
        """Tell the rows that are sent from the others."""
        if self.decision is None:
            return DecidedRows(rows, rows.clear(), pl.Series(dtype=pl.UInt8))
        decision = rows.select(self.decision).to_series()
        others = rows.filter(decision != SEND)
        return DecidedRows(rows.filter(decision == SEND), others, decision.filter(decision != SEND))

    def unknown_values(self, rows: pl.DataFrame) -> Counter[tuple[str, str]]:
        """Count the unknown values for which these rows refuse the extract: column and label."""
        counts = Counter[tuple[str, str]]()
        for name, decision in self.by_column.items():
            values = rows.filter(decision == REFUSE).select(self.values[name].alias("value"))
            for value, times in values["value"].value_counts().iter_rows():
                counts[name, label(value)] += times
        return counts

    def with_found(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return row and line of rows with an unknown value, and `found`: its column and label."""
        places = rows.select("row", "line")
        if rows.is_empty():
            return places.with_columns(found=pl.lit(None, pl.String))
        labels = [
            pl.when(decision.is_in([REJECT, REFUSE])).then(self._labelled(name))
            for name, decision in self.by_column.items()
        ]
        joined = pl.concat_str(*labels, separator=" | ", ignore_nulls=True)
        return rows.select("row", "line", found=joined)

    def _labelled(self, name: str) -> pl.Expr:
        """Return a column's name with the label of its value."""
        values = self.values[name].map_elements(label, pl.String)
        return pl.concat_str(pl.lit(f"{redact(name)}: "), values)


def undecided_columns(issuer: Issuer) -> UndecidedError | None:
    """Return the error of settings that leave columns undecided; None where they do not."""
    tables = {"columns": undecided(issuer.columns), "status": undecided(issuer.status)}
    open_columns = [
        f"{', '.join(names)} undecided in [{table}]" for table, names in tables.items() if names
    ]
    if not open_columns:
        return None
    return UndecidedError(issuer=issuer.issuer, columns="; ".join(open_columns))


def plan_decisions(issuer: Issuer, finder: Finder, as_of: date) -> Decisions:
    """Plan what becomes of each row on a business date."""
    by_column = dict[str, pl.Expr]()
    values = dict[str, pl.Expr]()
    for name, column in issuer.status.items():
        if isinstance(column, StatusColumn):
            values[name] = _value(name, column, finder)
            by_column[name] = _decision(values[name], column, finder, as_of)
        elif finder.has(name):
            finder.find(name)  # it is used, if only to be ignored
    decision = pl.max_horizontal(by_column.values()).alias("decision") if by_column else None
    return Decisions(decision, by_column, values)


def _value(name: str, column: StatusColumn, finder: Finder) -> pl.Expr:
    text = finder.find(name) if column.at is None else finder.record()
    if column.at is not None:
        first, last = column.at
        text = text.str.slice(first - 1, last - first + 1)
    return text.str.strip_chars().fill_null("")


def _decision(value: pl.Expr, column: StatusColumn, finder: Finder, as_of: date) -> pl.Expr:
    """Return what a column decides: by its lists, then by its date, else as an unknown value."""
    otherwise = pl.lit(DECISIONS[column.unknown], pl.UInt8)
    if column.date is not None:
        day = day_number(finder.dated(value, column.date), column.date)
        has_come = day <= as_of.year * 10_000 + as_of.month * 100 + as_of.day
        otherwise = (
            pl.when(value.str.contains(NO_DATES) | ~has_come)
            .then(pl.lit(SEND, pl.UInt8))
            .when(has_come)
            .then(pl.lit(DECISIONS[column.past], pl.UInt8))
            .otherwise(otherwise)
        )
    named = column.decisions
    if not named:
        return otherwise
    decided = value.replace_strict(
        list(named), list(named.values()), default=None, return_dtype=pl.UInt8
    )
    return decided.fill_null(otherwise)


def matching(conditions: cells.Filter, finder: Finder) -> pl.Expr | None:
    """Return which rows fulfil all conditions, None without any."""
    tests = []
    for name, condition in conditions.items():
        value = finder.find(name).str.strip_chars().fill_null("")
        if isinstance(condition, cells.Except):
            tests.append(~value.is_in(list(condition.exclude)))
        elif isinstance(condition, str):
            tests.append(value.is_in([condition]))
        else:
            tests.append(value.is_in(list(condition)))
    return pl.all_horizontal(tests) if tests else None
