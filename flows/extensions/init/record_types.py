"""Record types in one file, found in its lines and proven by all its records: for `init`.

A type is what many lines begin with; the type whose records have the card numbers is that of the
rows. How the others belong to them, by a key or by their order, is what joins most of them; it
stays a doubt.
"""

import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date
from itertools import pairwise, zip_longest
from typing import Any, BinaryIO, Final, NamedTuple

import polars as pl

from flows.errors import CardlinkError
from flows.extensions.init.control_records import guess_trailer
from flows.extensions.init.draft import Draft, columns_of, draft_of
from flows.extensions.init.fixed_width import Span, have_cards, type_spans
from flows.extensions.init.guess import Guess, Sample
from flows.extensions.init.keys import MOST_KEYS, OVERLAP, Cells, Key, Reading, keys_of, read_all
from flows.extensions.init.sample import Lines, read_lines, records
from flows.extracts.decode import line_blocks
from schemas.expressions import luhn_holds
from schemas.issuer import source_settings
from schemas.reference import toml

MOST: Final = 8  # types
MOST_LINES: Final = 200_000  # in whose fields a key is looked for
BLOCK: Final = 1 << 22
FIELD: Final = "TYPE"
ALIKE: Final = 0.95  # share of the records of a type with its size
CARDS: Final = 0.9  # share of the records whose check digit is right
NEEDED: Final = 0.9  # share of the rows that have a record of a type that none may lack
_CODE: Final = re.compile("[A-Za-z0-9]{1,4}")
_EXPIRY: Final = re.compile(r"(0[1-9]|1[0-2])[/-]?(20)?\d\d|(20)?\d\d[/-]?(0[1-9]|1[0-2])")
_REASONS: Final = {
    "segments": "its record types; call the columns what you like",
    "segment_row": "the type that has the card numbers",
    "comment": "lines that begin like this are not rows",
    "trailer": "the last line; the group is the count",
    "trailer_counts": "what the trailer counts",
    "segment_optional": "types that many rows lack",
}

Fields = Sequence[str]


class Types(NamedTuple):
    """The records of a file by type, the type with the cards, and what stands around them."""

    fields: dict[str, list[Fields]]
    row: str
    first: str  # the type of a line above them, "" for none
    delimiter: str  # "" for fixed width: a record is its type, and what follows


def typed_draft(stream: BinaryIO, name: str, today: date) -> Draft | None:
    """Return what is guessed of an extract whose records are of several types; None for others."""
    if "segments" not in source_settings().model_fields:
        return None
    with suppress(CardlinkError):
        lines = read_lines(stream, "utf-8", name)
        if types_of(lines.sampled) is None:
            return None
        types = types_of(_texts(stream, lines, name))
        if types is not None:
            return _drafted(stream, name, lines, types, today)
    return None


def _texts(stream: BinaryIO, lines: Lines, name: str) -> list[str]:
    """Return the first lines, as many as a key needs."""
    encoding = _text(lines.encoding)
    stream.seek(0)
    texts: list[str] = []
    for block in line_blocks(stream, encoding, name, BLOCK):
        texts += block.decode("utf-8" if encoding == "utf-16" else encoding, "replace").split("\n")
        if len(texts) > MOST_LINES:
            break
    return [text for text in texts[:MOST_LINES] if text.strip("\r\x1a ")]


# Types


def types_of(texts: Sequence[str]) -> Types | None:
    """Return the types of records in some lines; None where they show none."""
    for delimiter in "|;,\t":
        rows: list[Fields] = list(records(texts, delimiter, "doubled"))
        types = _divided(delimiter, rows) if len(rows) == len(texts) else None
        if types is not None:
            return types
    for size in (2, 1, 3):
        cut = [(text[:size], text.rstrip("\r")[size:]) for text in texts]
        types = _divided("", cut)
        if types is not None:
            return types
    return None


def _divided(delimiter: str, rows: Sequence[Fields]) -> Types | None:
    """Return the types of records, where all but the first and last line are of a few."""
    times = Counter(fields[0] for fields in rows)
    edges = {rows[place][0] for place in (0, -1) if times[rows[place][0]] == 1}
    fields: dict[str, list[Fields]] = {}
    for record in rows:
        if record[0] not in edges:
            fields.setdefault(record[0], []).append(record)
    if not 2 <= len(fields) <= MOST or not all(map(_CODE.fullmatch, fields)):
        return None
    row = _row_type(fields, delimiter)
    first = rows[0][0] if rows[0][0] in edges else ""
    return None if row is None else Types(fields, row, first, delimiter)


def _row_type(fields: Mapping[str, Sequence[Fields]], delimiter: str) -> str | None:
    """Return the type whose records are rows: of those with card numbers one that has an expiry.

    None where there is none, or where several could be, and types have the same size.
    """
    if not all(_is_sized(rows, delimiter) for rows in fields.values()):
        return None
    with_cards = [kind for kind, rows in fields.items() if _have_cards(rows, delimiter)]
    sizes = {_size(rows[0], delimiter) for rows in fields.values()}
    is_clear = len(with_cards) == 1 or len(sizes) == len(fields)
    if not with_cards or not is_clear:
        return None
    return min(with_cards, key=lambda kind: not _have_dates(fields[kind]))


def _size(fields: Fields, delimiter: str) -> int:
    return len(fields) if delimiter else len(fields[-1])


def _usual(rows: Sequence[Fields], delimiter: str) -> list[Fields]:
    """Return the records of a type that have its size."""
    [(size, _)] = Counter(_size(fields, delimiter) for fields in rows).most_common(1)
    return [fields for fields in rows if _size(fields, delimiter) == size]


def _is_sized(rows: Sequence[Fields], delimiter: str) -> bool:
    """Return whether nearly all records of a type have one size, two fields or more."""
    usual = _usual(rows, delimiter)
    return _size(usual[0], delimiter) > 1 and len(usual) >= ALIKE * len(rows)


def _have_cards(rows: Sequence[Fields], delimiter: str) -> bool:
    """Return whether the records of a type have card numbers at one place."""
    usual = _usual(rows, delimiter)
    if not delimiter:
        return have_cards([fields[-1] for fields in usual])
    return any(_are_cards(values) for values in list(zip(*usual, strict=True))[1:])


def _have_dates(rows: Sequence[Fields]) -> bool:
    """Return whether the records of a type have an expiry, where card numbers are a key, too."""
    columns = zip_longest(*rows, fillvalue="")
    return any(sum(map(bool, map(_EXPIRY.fullmatch, each))) > CARDS * len(rows) for each in columns)


def _are_cards(values: Sequence[str]) -> bool:
    texts = pl.Series([re.sub("[ -]", "", value) for value in values], dtype=pl.String)
    numbers = texts.filter(texts.str.contains("^[0-9]{16}$"))
    right = int(pl.select(luhn_holds(pl.lit(numbers)).sum()).item() or 0)
    return right > CARDS * len(values)


# Columns and keys


def _columns(types: Types) -> tuple[dict[str, Any], dict[str, Cells]]:
    """Return how the columns of the types are written, and their cells by type and column."""
    if not types.delimiter:
        return _fixed_columns(types)
    cells = {kind: _numbered(rows) for kind, rows in types.fields.items()}
    segments = {kind: list(columns) for kind, columns in cells.items()}
    return {"delimiter": types.delimiter, "segments": segments}, cells


def _fixed_columns(types: Types) -> tuple[dict[str, Any], dict[str, Cells]]:
    texts = {kind: ["".join(fields) for fields in rows] for kind, rows in types.fields.items()}
    spans = {kind: _spans(rows, len(types.row)) for kind, rows in texts.items()}
    shared = [span for span in spans[types.row] if _is_key(span, texts, types.row)]
    cells: dict[str, Cells] = {}
    segments: dict[str, dict[str, list[int]]] = {}
    for kind, own in spans.items():
        cut = _cut(own, shared)
        names = [FIELD, *(f"at_{span.first}_{span.last}" for span in cut[1:])]
        columns = [_cells(texts[kind], span) for span in cut]
        cells[kind] = dict(zip(names, columns, strict=True))
        segments[kind] = dict(zip(names, map(list, cut), strict=True))
    return {"format": "fixed", "segments": segments}, cells


def _numbered(rows: Sequence[Fields]) -> Cells:
    first, *columns = zip(*_usual(rows, "|"), strict=True)
    return {FIELD: first} | {f"column_{place}": each for place, each in enumerate(columns, 2)}


def _cells(texts: Sequence[str], span: Span) -> list[str]:
    return [text[span.first - 1 : span.last].strip() for text in texts]


def _spans(texts: Sequence[str], size: int) -> list[Span]:
    """Return the fields of the records of a type, the type itself first, up to their end."""
    [(width, _)] = Counter(map(len, texts)).most_common(1)
    spans = type_spans([text for text in texts if len(text) == width])
    cut = _cut(spans, [Span(1, size)])
    return [*cut[:-1], cut[-1]._replace(last=width)]


def _cut(spans: Sequence[Span], others: Sequence[Span]) -> list[Span]:
    """Return spans that begin and end, too, where the others do."""
    starts = {span.first for span in (*spans, *others)} | {span.last + 1 for span in others}
    end = spans[-1].last
    edges = [*sorted(start for start in starts if start <= end), end + 1]
    return [Span(first, after - 1) for first, after in pairwise(edges)]


def _is_key(span: Span, texts: Mapping[str, Sequence[str]], row: str) -> bool:
    """Return whether what is at a place is a key of all types."""
    cells = {kind: {FIELD: (), "key": _cells(rows, span)} for kind, rows in texts.items()}
    return bool(_keys(cells, row))


def _keys(cells: Mapping[str, Cells], row: str) -> list[dict[str, Key]]:
    """Return the keys that may join all other types to the rows, the best first."""
    candidates = []
    for name, values in cells[row].items():
        joining = _joining(name, values, cells, row)
        if joining and _largest(joining) >= OVERLAP:
            candidates.append(joining)
    return sorted(candidates, key=_largest, reverse=True)[:MOST_KEYS]


def _joining(
    name: str, values: Sequence[str], cells: Mapping[str, Cells], row: str
) -> dict[str, Key]:
    """Return the best key of each other type to a column of the rows, none where a type has none.

    The type itself is no key.
    """
    joining: dict[str, Key] = {}
    for kind, columns in cells.items():
        key = _best_key(name, values, columns)
        if kind != row and key is not None and key.share >= OVERLAP / 5:
            joining[kind] = key
    is_of_all = len(joining) == len(cells) - 1 and name != FIELD
    return joining if is_of_all else {}


def _best_key(name: str, values: Sequence[str], other: Cells) -> Key | None:
    columns = {column: cells for column, cells in other.items() if column != FIELD}
    return next(iter(keys_of({name: values}, columns)), None)


def _largest(keys: Mapping[str, Key]) -> float:
    return max(key.share for key in keys.values())


def _keyed(keys: Mapping[str, Key], row: str) -> dict[str, Any]:
    """Return the settings by which a key joins the types."""
    names = {row: next(iter(keys.values())).own} | {kind: key.other for kind, key in keys.items()}
    is_same = len(set(names.values())) == 1
    optional = [kind for kind, key in keys.items() if key.share < NEEDED]
    keyed: dict[str, Any] = {"segment_key": names[row] if is_same else names}
    return keyed | ({"segment_optional": sorted(optional)} if optional else {})


# The draft


def _drafted(stream: BinaryIO, name: str, lines: Lines, types: Types, today: date) -> Draft | None:
    """Return the draft by the reading that joins most, with that by order behind it."""
    columns, cells = _columns(types)
    source = columns | _around(lines, types)
    parts = [f"{kind}.{FIELD}" for kind in types.fields if kind != types.row]
    readings = []
    for joining in ({}, *_joinings(cells, types)):
        stream.seek(0)
        reading = read_all(stream, source | joining, name, parts)
        if reading and reading.joined and reading.whole >= OVERLAP * reading.rows:
            readings.append(reading)
    return _best_draft(readings, lines, today)


def _joinings(cells: Mapping[str, Cells], types: Types) -> list[dict[str, Any]]:
    """Return the settings by which keys may join the types; in fixed columns of one place alone."""
    keyed = [_keyed(keys, types.row) for keys in _keys(cells, types.row)]
    return [each for each in keyed if types.delimiter or isinstance(each["segment_key"], str)]


def _best_draft(readings: Sequence[Reading], lines: Lines, today: date) -> Draft | None:
    by_key: list[Reading] = []
    by_order: list[Reading] = []
    for reading in readings:
        (by_key if "segment_key" in reading.source else by_order).append(reading)
    order = _draft(by_order[0], (), lines, today) if by_order else None
    joined_by_order = sum(reading.joined for reading in by_order)
    best = max(by_key, key=lambda reading: (reading.joined, reading.whole), default=None)
    if best is None or joined_by_order > best.joined:
        return order
    others = [toml(reading.source["segment_key"]) for reading in by_key if reading is not best]
    if joined_by_order <= OVERLAP * best.joined:
        return _draft(best, others, lines, today)
    return _draft(best, [*others, ""], lines, today)._replace(alone=order)


def _around(lines: Lines, types: Types) -> dict[str, Any]:
    """Return the settings of what is above and below the records, and of all text."""
    total = lines.total - bool(types.first) - 1
    around: dict[str, Any] = {
        "header_rows": 0,
        "segment_field": FIELD,
        "segment_row": types.row,
        "final_newline": lines.ends_in_newline,
        "encoding": _text(lines.encoding),
    }
    if types.first:
        around["comment"] = types.first + types.delimiter
    numbers = {"records": total, "rows": len(types.fields[types.row])}
    for counted, number in numbers.items():
        trailer = guess_trailer(lines, number, types.delimiter)
        if trailer is not None and trailer.key == "trailer" and not trailer.question:
            return around | {"trailer": _text(trailer), "trailer_counts": counted}
    if trailer is not None and trailer.key == "comment" and "comment" not in around:
        around["comment"] = _text(trailer)
    return around


def _text(guess: Guess) -> str:
    """Return the value of a guess that is a text."""
    return str(tomllib.loads(f"value = {guess.value}")["value"])


def _draft(reading: Reading, others: Sequence[str], lines: Lines, today: date) -> Draft:
    guesses = [*_guesses(reading, others, lines.encoding)]
    guesses.append(Guess("pattern", '"*"', "which files below extracts/ are extracts"))
    columns = [column for column in columns_of(reading.first) if column.short != FIELD]
    return draft_of(Sample(guesses, columns, named=False, last=lines.last), today)


def _guesses(reading: Reading, others: Sequence[str], encoding: Guess) -> Iterator[Guess]:
    """Yield the settings, that of what joins the types with the question whether it does."""
    proof = (
        f"{reading.whole:,} of {reading.rows:,} rows are whole so; "
        f"{reading.joined:,} other records are joined"
    )
    has_key = "segment_key" in reading.source
    for key, value in reading.source.items():
        guess = Guess(key, toml(value), _REASONS.get(key, "how the records are written"))
        if key == "encoding":
            guess = encoding
        elif key == "segment_key":
            order = "; or by their order (then without segment_key)" if "" in others else ""
            question = f"Do the types belong together by this key{order}? {proof}"
            guess = guess._replace(question=question, others=tuple(others))
        elif key == "segment_row" and not has_key:
            question = f"Do the records behind a row of this type belong to it, by order? {proof}"
            guess = guess._replace(question=question)
        yield guess
