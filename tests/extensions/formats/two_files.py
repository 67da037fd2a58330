"""Cards and addresses as two files, and who comes out of them, by an oracle of dictionaries."""

from __future__ import annotations

import csv
import io
import random
from collections.abc import Sequence
from io import BytesIO
from typing import Any

from flows.extensions.formats.settings import FormatSettings
from flows.extracts.opening import Pair
from flows.extracts.reader import Block
from flows.extracts.row_source import Rows
from flows.extracts.rows import open_rows
from tests.extensions.formats.mainframe import card_number

CARDS = ("CUST", "CARD", "EXP", "CVV", "FIRST", "LAST", "NOTE")
PLACES = ("NO", "STREET", "CITY", "STATE", "ZIP", "NOTE")
JOIN = {"pattern": "places-*.csv", "key": ["CUST"], "other_key": ["NO"]}
SOURCE: dict[str, Any] = {"pattern": "cards-*.csv", "delimiter": ";", "join": JOIN}
COLUMNS: dict[str, Any] = {
    "cardholder.cuid": "CUST",
    "service_card.pan": "CARD",
    "service_card.cvv": "CVV",
    "service_card.expiration_month": {"from": "EXP", "format": "MMYY"},
    "service_card.expiration_year": {"from": "EXP", "format": "MMYY"},
    "service_card.address.first_name": "FIRST",
    "service_card.address.last_name": "LAST",
    "service_card.address.address1": "STREET",
    "service_card.address.city": "CITY",
    "service_card.address.subnational": "STATE",
    "service_card.address.postal_code": "ZIP",
    "service_card.address.country": {"constant": "US"},
    "service_card.address.is_primary": {"constant": "TRUE"},
}
Cells = tuple[str, ...]
FIRST = ("Ann", "Bea", "Cleo", "Dan")


def cards(count: int) -> list[Cells]:
    def card(n: int) -> Cells:
        secrets = (card_number(n), f"{n % 12 + 1:02}36", f"{n % 89:03}")
        return (f"C{n:05d}", *secrets, FIRST[n % 4], f"Smith {'abc'[n % 3]}", "x")

    return [card(n) for n in range(count)]


def places(count: int, chance: random.Random) -> list[Cells]:
    rows: list[Cells] = [
        (f"C{n:05d}", f"{n + 1} Elm Street", "Boston", "MA", "02108", "y") for n in range(count)
    ]
    chance.shuffle(rows)
    return rows


def written(header: Cells, rows: Sequence[Cells], delimiter: str) -> bytes:
    lines = [delimiter.join(row) for row in (header, *rows)]
    return "".join(f"{line}\n" for line in lines).encode()


def cards_file(rows: Sequence[Cells]) -> bytes:
    return written(CARDS, rows, ";")


def places_file(rows: Sequence[Cells]) -> bytes:
    return written(PLACES, rows, ",")


def opened(first: bytes, second: bytes, block: int = 1 << 20) -> Rows:
    source = FormatSettings.model_validate(SOURCE)
    pair = Pair(BytesIO(first), BytesIO(second), "places-1.csv")
    return open_rows(pair, source, "cards-1.csv", block=block)


def whole(blocks: Sequence[Block]) -> list[tuple[int, Cells | str]]:
    """Return what blocks say of each row, by its number: its cells, or why it is refused."""
    said: list[tuple[int, Cells | str]] = []
    for block in blocks:
        for row, _, *cells in block.rows.rows():
            said.append((row, tuple("" if cell is None else cell for cell in cells)))
        said += block.refused.select("row", "code").rows()
        if block.alone is not None:
            said += block.alone.select("row", "code").rows()
    return sorted(said, key=lambda each: each[0])


def oracle(first: bytes, second: bytes) -> list[tuple[int, Cells | str]]:
    """Join two files row by row, as slowly as can be; unquoted cells only."""
    addresses: dict[str, set[Cells]] = {}
    for cells in _rows(second, ","):
        if len(cells) == len(PLACES) and cells[0].strip(" "):
            addresses.setdefault(cells[0].strip(" "), set()).add(tuple(cells[1:]))
    said: list[tuple[int, Cells | str]] = []
    for number, cells in enumerate(_rows(first, ";"), 1):
        if len(cells) != len(CARDS):
            few = len(cells) < len(CARDS)
            said.append((number, f"line.fields.{'too_few' if few else 'too_many'}"))
            continue
        own = addresses.get(cells[0].strip(" "), set())
        if len(own) != 1:
            said.append((number, f"join.row.{'ambiguous' if own else 'missing'}"))
            continue
        said.append((number, (*cells, *next(iter(own)))))
    return said


def _rows(content: bytes, delimiter: str) -> list[list[str]]:
    lines = content.decode().split("\n")[1:]
    kept = [line for line in lines if line.strip()]
    return list(
        csv.reader(io.StringIO("\n".join(kept)), delimiter=delimiter, quoting=csv.QUOTE_NONE)
    )
