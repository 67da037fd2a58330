"""How exports of the same cardholders are made: what each holds is known, cell by cell."""

from __future__ import annotations

import calendar
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from io import BytesIO
from typing import NamedTuple

import polars as pl

from flows.extensions.simulator.extract import write_sample
from schemas.portal import (
    ADDRESS1,
    ADDRESS2,
    CITY,
    COUNTRY,
    CUID,
    CVV,
    FIRST_NAME,
    IS_PRIMARY,
    LAST_NAME,
    MONTH,
    PAN,
    POSTAL_CODE,
    SUBNATIONAL,
    YEAR,
)
from tests.night import DAY

Row = dict[str, str]
Cell = str | Callable[[Row], str]  # a portal column, or what a cell is made of
Columns = Mapping[str, Cell]  # of an export, by header
_LAST_NAMES = "Smith Ng Garcia Nguyen Roy Begay Brown Lopez Clark Young"
_FIRST_NAMES = "Ann James Mary Liam Emma Noah Olivia Chloe David Susan Ty Aoife"


class Export(NamedTuple):
    """One export: its bytes, and the cells that its rows hold, by portal column."""

    content: bytes
    truth: tuple[Row, ...]


@cache
def people(rows: int, *, canada: bool = False, plain: bool = True) -> tuple[Row, ...]:
    """Return cardholders, of the US only or also of Canada; `plain`: names of one word each."""
    out = BytesIO()
    write_sample(out, rows * 3, as_of=DAY, seed=7)
    frame = pl.read_csv(BytesIO(out.getvalue()), infer_schema=False).drop("service_card.cvv_hash")
    frame = frame.filter(pl.col(CVV).is_not_null())
    if not canada:
        frame = frame.filter(pl.col(COUNTRY) == "US")
    cardholders = frame.head(rows).with_row_index().to_dicts()
    assert len(cardholders) == rows
    first_names = _FIRST_NAMES.split()
    last_names = _LAST_NAMES.split()
    for place, row in enumerate(cardholders):
        row["index"] = str(place)
        if plain:
            row[FIRST_NAME] = first_names[place * 7 % len(first_names)]
            row[LAST_NAME] = last_names[place * 3 % len(last_names)]
    return tuple({name: value or "" for name, value in row.items()} for row in cardholders)


# What a cell is made of


def index(row: Row) -> int:
    """Return the number of a row, from 0."""
    return int(row["index"])


def last_day(row: Row) -> str:
    """Return the day a card expires."""
    return f"{calendar.monthrange(2000 + int(row[YEAR]), int(row[MONTH]))[1]:02d}"


def account(row: Row) -> str:
    """Return a number of 16 digits beside the card: most have a wrong check digit."""
    return f"4{index(row) * 7_919_317 + 100_000_000_000_037:015d}"


def house(row: Row) -> str:
    """Return the house number of a street line."""
    return row[ADDRESS1].partition(" ")[0]


def street(row: Row) -> str:
    """Return a street line without its house number."""
    return row[ADDRESS1].partition(" ")[2]


def constant(value: str) -> Callable[[Row], str]:
    """Return a cell that is the same in every row."""
    return lambda _: value


def formatted(pattern: str) -> Callable[[Row], str]:
    """Return what makes a cell of a pattern such as `{MM}/{YY}`."""

    def cell(row: Row) -> str:
        month = calendar.month_name[int(row[MONTH])][:3]
        return pattern.format(
            YY=row[YEAR],
            YYYY=f"20{row[YEAR]}",
            M=int(row[MONTH]),
            MM=row[MONTH],
            MON=month,
            mon=month.upper(),
            DD=last_day(row),
            first=row[FIRST_NAME],
            last=row[LAST_NAME],
            FIRST=row[FIRST_NAME].upper(),
            LAST=row[LAST_NAME].upper(),
            short=row[POSTAL_CODE].lstrip("0"),
            n=index(row),
        )

    return cell


# The columns that most exports have

ADDRESS: Columns = {
    "ADDRESS1": ADDRESS1,
    "ADDRESS2": ADDRESS2,
    "CITY": CITY,
    "STATE": SUBNATIONAL,
    "ZIP": POSTAL_CODE,
}
NAMES: Columns = {"FIRST_NAME": FIRST_NAME, "LAST_NAME": LAST_NAME}
BASE: Columns = {
    "CUSTOMER_ID": CUID,
    "CARD_NUMBER": PAN,
    "EXP_DATE": formatted("{MM}{YY}"),
    "CVV": CVV,
}
ALWAYS = (
    PAN,
    YEAR,
    MONTH,
    ADDRESS1,
    CITY,
    SUBNATIONAL,
    COUNTRY,
    POSTAL_CODE,
    FIRST_NAME,
    LAST_NAME,
)
WITH = (CUID, CVV, ADDRESS2)


def text(
    rows: Sequence[Row],
    columns: Columns,
    *,
    delimiter: str = ",",
    above: str = "",
    below: str = "",
    header: bool = True,
    encoding: str = "utf-8",
    newline: str = "\n",
    quote: Callable[[str], str] = lambda cell: cell,
) -> bytes:
    """Return an export with a header; `above` and `below` are lines around it, with {rows}."""

    def written(cell: str) -> str:
        if delimiter in cell or '"' in cell:
            return '"' + cell.replace('"', '""') + '"'
        return quote(cell)

    def line(cells: Sequence[str]) -> str:
        return delimiter.join(map(written, cells))

    lines = above.format(rows=len(rows)).splitlines()
    if header:
        lines.append(line([*columns]))
    for row in rows:
        cells = [row[cell] if isinstance(cell, str) else cell(row) for cell in columns.values()]
        lines.append(line(cells))
    lines += below.format(rows=len(rows)).splitlines()
    return newline.join([*lines, ""]).encode(encoding)


def truth(rows: Sequence[Row], *columns: str, **changed: Callable[[Row], str]) -> tuple[Row, ...]:
    """Return what the rows of an export hold: these columns, and those that every export has."""
    held = []
    for row in rows:
        cells = {name: row[name] for name in (*columns, *ALWAYS)}
        cells |= {name: cell(row) for name, cell in changed.items()}
        held.append({**cells, IS_PRIMARY: "TRUE"})
    return tuple(held)
