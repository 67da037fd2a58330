"""The types of the records of one file, as its lines show them: for `init`.

A type is what many lines begin with; the type whose records have the card numbers is that of the
rows.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Final, NamedTuple

import polars as pl

from flows.extensions.init.fixed_width import have_cards
from flows.extensions.init.sample import records
from schemas.expressions import luhn_holds

MOST: Final = 8  # types
ALIKE: Final = 0.95  # share of the records of a type with its size, with a key of their own
CARDS: Final = 0.9  # share of the records whose check digit is right
_CODE: Final = re.compile("[A-Za-z0-9]{1,4}")
_EXPIRY: Final = re.compile(r"(0[1-9]|1[0-2])[/-]?(20)?\d\d|(20)?\d\d[/-]?(0[1-9]|1[0-2])")

Fields = Sequence[str]


class RecordTypes(NamedTuple):
    """The records of a file by type, the type with the cards, and what stands around them."""

    fields: dict[str, list[Fields]]
    row: str
    first: str  # the type of a line above them, "" for none
    delimiter: str  # "" for fixed width


def record_types(texts: Sequence[str]) -> RecordTypes | None:
    """Return the types of records in some lines; None where they show none."""
    return next(filter(None, map(_types_of, _divided(texts))), None)


class _Division(NamedTuple):
    """Lines as fields, by a delimiter, or as a type and what follows it ("")."""

    delimiter: str
    records: list[Fields]


def _divided(texts: Sequence[str]) -> list[_Division]:
    divisions = []
    for delimiter in "|;,\t":
        rows: list[Fields] = list(records(texts, delimiter, "doubled"))
        if len(rows) == len(texts):
            divisions.append(_Division(delimiter, rows))
    for size in (2, 1, 3):
        cut: list[Fields] = [(text[:size], text.rstrip("\r")[size:]) for text in texts]
        divisions.append(_Division("", cut))
    return divisions


def _types_of(division: _Division) -> RecordTypes | None:
    """Return the types of records, where all but the first and last line are of a few."""
    rows = division.records
    edges = _edges(rows)
    beginnings = dict.fromkeys(fields[0] for fields in rows)
    kinds = [beginning for beginning in beginnings if beginning not in edges]
    if not 2 <= len(kinds) <= MOST or not all(map(_CODE.fullmatch, kinds)):
        return None
    fields = {kind: [each for each in rows if each[0] == kind] for kind in kinds}
    row = _row_type(fields, division.delimiter) if _are_sized(fields, division.delimiter) else None
    if row is None:
        return None
    first = rows[0][0] if rows[0][0] in edges else ""
    return RecordTypes(fields, row, first, division.delimiter)


def _edges(rows: Sequence[Fields]) -> set[str]:
    """Return what the first and the last line begin with, where no other line does."""
    times = Counter(fields[0] for fields in rows)
    return {rows[place][0] for place in (0, -1) if times[rows[place][0]] == 1}


def _row_type(fields: Mapping[str, Sequence[Fields]], delimiter: str) -> str | None:
    """Return the type whose records are rows: of those with card numbers one that has an expiry.

    None where there is none, or where several could be, and types have the same size.
    """
    with_cards = [kind for kind, rows in fields.items() if _have_cards(rows, delimiter)]
    sizes = {_size(rows[0], delimiter) for rows in fields.values()}
    is_clear = len(with_cards) == 1 or len(sizes) == len(fields)
    if not with_cards or not is_clear:
        return None
    return min(with_cards, key=lambda kind: not _have_dates(fields[kind]))


def _have_cards(rows: Sequence[Fields], delimiter: str) -> bool:
    """Return whether the records of a type have card numbers at one place."""
    [(size, _)] = Counter(_size(fields, delimiter) for fields in rows).most_common(1)
    sized = [fields for fields in rows if _size(fields, delimiter) == size]
    if not delimiter:
        return have_cards([fields[-1] for fields in sized])
    return any(_are_cards([fields[place] for fields in sized]) for place in range(1, size))


def _have_dates(rows: Sequence[Fields]) -> bool:
    """Return whether the records of a type have an expiry, where card numbers are a key, too."""
    columns = zip_longest(*rows, fillvalue="")
    return any(sum(map(bool, map(_EXPIRY.fullmatch, each))) > CARDS * len(rows) for each in columns)


def _are_cards(values: Sequence[str]) -> bool:
    texts = pl.Series([re.sub("[ -]", "", value) for value in values], dtype=pl.String)
    numbers = texts.filter(texts.str.contains("^[0-9]{16}$"))
    right = int(pl.select(luhn_holds(pl.lit(numbers)).sum()).item() or 0)
    return right > CARDS * len(values)


def _are_sized(fields: Mapping[str, Sequence[Fields]], delimiter: str) -> bool:
    """Return whether nearly all records of each type have one size, two fields or more."""
    return all(_is_sized(rows, delimiter) for rows in fields.values())


def _is_sized(rows: Sequence[Fields], delimiter: str) -> bool:
    """Return whether nearly all records of a type have one size, two fields or more."""
    [(size, times)] = Counter(_size(fields, delimiter) for fields in rows).most_common(1)
    return size > 1 and times >= ALIKE * len(rows)


def _size(fields: Fields, delimiter: str) -> int:
    return len(fields) if delimiter else len(fields[-1])
