"""What an export is made of: columns, marks of cards that have ended, and who must be sent.

The oracle is the people that an export was written from; it knows nothing of the product.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from schemas import portal
from schemas.reference import toml
from tests.extracts.exports import Row, formatted, index, people

Maker = Callable[[Row], str]
ROWS = 60
COMPARED = (
    portal.PAN,
    portal.YEAR,
    portal.MONTH,
    portal.FIRST_NAME,
    portal.LAST_NAME,
    portal.ADDRESS1,
    portal.ADDRESS2,
    portal.CITY,
    portal.SUBNATIONAL,
    portal.POSTAL_CODE,
    portal.COUNTRY,
)


class Made(NamedTuple):
    """A cell: what makes it of a row, and the portal columns that are made of it, with a form."""

    cell: Maker
    of: tuple[str, ...] = ()
    form: str = ""


class Mark(NamedTuple):
    """A column that says which rows count: the value of a card in use, and those of the others."""

    used: str
    delete: tuple[str, ...] = ()
    leave_out: tuple[str, ...] = ()
    date: str = ""  # the format, where it holds the day on which a card ended
    also: tuple[str, ...] = ()  # other values of cards in use

    @property
    def answer(self) -> object:
        """What the bank says of it."""
        if self.date:
            return {"date": self.date}
        lists = {
            "send": [self.used, *self.also],
            "leave_out": [*self.leave_out],
            "delete": [*self.delete],
        }
        return {decision: values for decision, values in lists.items() if values}


class Aside(NamedTuple):
    """A column of few values that says nothing of which rows count."""

    values: tuple[str, ...]


Column = str | Made | Mark | Aside
Columns = Mapping[str, Column]


class Export(NamedTuple):
    """A file, who must be sent of it, and what somebody knows who knows the bank."""

    content: bytes
    sent: Mapping[str, Row]  # by card number, portal columns
    ended: frozenset[str]  # card numbers that must not be sent
    columns: Mapping[str, tuple[str, ...]]  # of a portal column: what the right choice has
    statuses: Mapping[str, object]  # of a source column: what [status] is to say
    name: str = "cards-20261120.csv"
    copybook: str = ""
    beside: Mapping[str, bytes] = {}  # ending of a file beside it: content
    refused: str = ""  # why nobody can be sent, where that is the right end
    source: Mapping[str, str] = {}  # of [source]: what the right choice has
    proven: str = ""  # what proves it whole
    places: Mapping[str, str] = {}  # of a portal column: its field by the layout, in fixed width


def expiry(pattern: str, form: str) -> Made:
    """Return the cell of an expiry date, and how `[columns]` calls its form."""
    return Made(formatted(pattern), (portal.YEAR, portal.MONTH), form)


def name(pattern: str, form: str) -> Made:
    """Return the cell of a whole name, and how `[columns]` calls its form."""
    return Made(formatted(pattern), (portal.FIRST_NAME, portal.LAST_NAME), form)


def beside(maker: Maker) -> Made:
    """Return a cell that no portal column is made of."""
    return Made(maker)


def written(columns: Columns, row: Row) -> list[str]:
    """Return the cells of a row."""
    marks = [header for header, column in columns.items() if isinstance(column, Mark)]
    cells = []
    for header, column in columns.items():
        match column:
            case str():
                cells.append(row[column])
            case Made():
                cells.append(column.cell(row))
            case Mark():
                cells.append(_marked(column, row, marks.index(header)))
            case Aside():
                cells.append(column.values[index(row) % len(column.values)])
    return cells


def _marked(mark: Mark, row: Row, place: int) -> str:
    """Return what a mark says of a row: every sixth card has ended, by each mark another one."""
    turn, rest = divmod(index(row), 6)
    others = (*mark.delete, *mark.leave_out)
    if rest == (5 - 2 * place) % 6 and others:
        return others[turn % len(others)]
    used = (mark.used, *mark.also)
    return used[turn % len(used)]


def is_used(columns: Columns, row: Row) -> bool:
    """Return whether a row is of a card in use: all marks have to say so."""
    cells = dict(zip(columns, written(columns, row), strict=True))
    marks = {header: mark for header, mark in columns.items() if isinstance(mark, Mark)}
    return all(cells[header] in (mark.used, *mark.also) for header, mark in marks.items())


def export(
    columns: Columns,
    write: Callable[[Sequence[str], Sequence[Sequence[str]]], bytes],
    *,
    rows: Sequence[Row] = (),
    named: Callable[[str], str] = str,
    changed: Mapping[str, Maker] | None = None,
    **more: Any,
) -> Export:
    """Return an export: `write` makes the file of headers and cells.

    `named`: what a column is called where no header names it; `changed`: portal columns that go
    out otherwise than the people have them.
    """
    persons = rows or people(ROWS)
    content = write([*columns], [written(columns, row) for row in persons])
    used = [row for row in persons if is_used(columns, row)]
    sent = {row[portal.PAN]: _as_sent(columns, row, changed or {}) for row in used}
    ended = frozenset(row[portal.PAN] for row in persons if not is_used(columns, row))
    called = {named(header): column for header, column in columns.items()}
    return Export(content, sent, ended, _known(called), _statuses(called), **more)


def _as_sent(columns: Columns, row: Row, changed: Mapping[str, Maker]) -> Row:
    own = [column for column in columns.values() if isinstance(column, str)]
    names = [*COMPARED, *(column for column in own if column not in COMPARED)]
    names = [column for column in names if column != portal.ADDRESS2 or column in own]
    sent = {column: row[column] for column in names}
    return sent | {column: maker(row) for column, maker in changed.items()}


def _known(columns: Columns) -> dict[str, tuple[str, ...]]:
    """Return what the right choice for each portal column has."""

    def marker(called: str) -> str:
        return called.replace("at [", "at = [") if called.startswith("at [") else toml(called)

    known: dict[str, tuple[str, ...]] = {}
    for header, column in columns.items():
        if isinstance(column, str):
            known[column] = (marker(header),)
        elif isinstance(column, Made):
            form = (f'"{column.form}"',) if column.form else ()
            known |= dict.fromkeys(column.of, (marker(header), *form))
    return known


def _statuses(columns: Columns) -> dict[str, object]:
    statuses: dict[str, object] = {}
    for header, column in columns.items():
        if isinstance(column, Mark):
            statuses[header] = column.answer
        elif isinstance(column, Aside):
            statuses[header] = "ignored"
    return statuses
