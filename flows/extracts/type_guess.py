"""Record types in one file, found in its lines and proven by all its records: for `init`.

The records of one type have the card numbers: they are the rows. How the others belong to them, by
a key or by their order, is what joins most of them; it stays a doubt.
"""

import re
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import date
from itertools import pairwise, zip_longest
from typing import Any, BinaryIO, Final, NamedTuple

import polars as pl

from flows.errors import CardlinkError
from flows.extracts.decode import line_blocks
from flows.extracts.draft import Draft, columns_of, draft_of
from flows.extracts.fixed_width import Span, have_cards, type_spans
from flows.extracts.guess import Guess, Sample
from flows.extracts.rows import open_rows
from flows.extracts.sample import FIRST, Lines, read_lines, records
from flows.extracts.trailer_guess import guess_trailer
from schemas.expressions import luhn_holds
from schemas.reference import toml
from schemas.source import SourceSettings

FIELD: Final = "TYPE"
MOST: Final = 8  # types
MOST_LINES: Final = 200_000  # in whose fields a key is looked for
BLOCK: Final = 1 << 22
ALIKE: Final = 0.95  # share of the records of a type with its size, with a key of their own
CARDS: Final = 0.9  # share of the records whose check digit is right
OVERLAP: Final = 0.5  # share of the rows whose key is in records of another type
NEEDED: Final = 0.9
MOST_KEYS: Final = 3
_CODE: Final = re.compile("[A-Za-z0-9]{1,4}")

_EXPIRY: Final = re.compile(r"(0[1-9]|1[0-2])[/-]?(20)?\d\d|(20)?\d\d[/-]?(0[1-9]|1[0-2])")

Fields = Sequence[str]


class _Types(NamedTuple):
    """The records of a file by type, the type with the cards, and what stands around them."""

    fields: dict[str, list[Fields]]
    row: str
    first: str  # the type of a line above them, "" for none
    delimiter: str  # "" for fixed width


class _Key(NamedTuple):
    """A place of a field in each type, and of each other type the share of rows that it has."""

    places: dict[str, int]
    shares: dict[str, float]


class _Reading(NamedTuple):
    """What a reading by some settings showed: all rows, those read whole, and parts joined."""

    source: dict[str, Any]
    rows: int
    whole: int
    joined: int
    first: pl.DataFrame


def typed_draft(stream: BinaryIO, name: str, today: date) -> Draft | None:
    """Return what is guessed of an extract whose records are of several types; None for others."""
    with suppress(CardlinkError):
        lines = read_lines(stream, "utf-8", name)
        if _found(lines.sampled) is None:
            return None
        types = _found(_texts(stream, lines, name))
        if types is not None:
            return _drafted(stream, name, lines, types, today)
    return None


def _found(texts: Sequence[str]) -> _Types | None:
    return next(filter(None, map(_types_of, _divided(texts))), None)


def _texts(stream: BinaryIO, lines: Lines, name: str) -> list[str]:
    """Return the first lines, as many as a key needs."""
    encoding = lines.encoding.value.strip('"')
    stream.seek(0)
    texts: list[str] = []
    for block in line_blocks(stream, encoding, name, BLOCK):
        texts += block.decode("utf-8" if encoding == "utf-16" else encoding, "replace").split("\n")
        if len(texts) > MOST_LINES:
            break
    return [text for text in texts[:MOST_LINES] if text.strip("\r\x1a ")]


class _Division(NamedTuple):
    """Lines as fields, by a delimiter, or as a type and what follows it ("")."""

    delimiter: str
    records: list[Fields]


def _divided(texts: Sequence[str]) -> "list[_Division]":
    divisions = []
    for delimiter in "|;,\t":
        rows: list[Fields] = list(records(texts, delimiter, "doubled"))
        if len(rows) == len(texts):
            divisions.append(_Division(delimiter, rows))
    for size in (2, 1, 3):
        cut: list[Fields] = [(text[:size], text.rstrip("\r")[size:]) for text in texts]
        divisions.append(_Division("", cut))
    return divisions


def _types_of(division: _Division) -> _Types | None:
    """Return the types of records, where all but the first and last line are of a few."""
    rows = division.records
    times = Counter(fields[0] for fields in rows)
    edges = [rows[place][0] for place in (0, -1) if times[rows[place][0]] == 1]
    kinds = [kind for kind in times if kind not in edges]
    if not 2 <= len(kinds) <= MOST or not all(map(_CODE.fullmatch, kinds)):
        return None
    fields = {kind: [each for each in rows if each[0] == kind] for kind in kinds}
    if not all(_is_sized(each, division.delimiter) for each in fields.values()):
        return None
    row = _row_type(fields, division.delimiter)
    if row is None:
        return None
    first = rows[0][0] if rows[0][0] in edges else ""
    return _Types(fields, row, first, division.delimiter)


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


def _is_sized(rows: Sequence[Fields], delimiter: str) -> bool:
    """Return whether nearly all records of a type have one size, two fields or more."""
    [(size, times)] = Counter(_size(fields, delimiter) for fields in rows).most_common(1)
    return size > 1 and times >= ALIKE * len(rows)


def _size(fields: Fields, delimiter: str) -> int:
    return len(fields) if delimiter else len(fields[-1])


# Settings


def _drafted(stream: BinaryIO, name: str, lines: Lines, types: _Types, today: date) -> Draft | None:
    """Return the draft by the reading that joins most, with that by order behind it."""
    laid_out = _delimited(types) if types.delimiter else _in_fixed_columns(types)
    source = laid_out.source | _around(lines, types)
    by_order = _reading(stream, source, name)
    by_key = [
        reading
        for key in laid_out.keys
        if (reading := _reading(stream, source | _keyed(key, laid_out, types), name))
    ]
    best = max(by_key, key=lambda reading: (reading.joined, reading.whole), default=None)
    order = _draft(by_order, (), lines, today) if by_order else None
    if best is None or (by_order and by_order.joined > best.joined):
        return order
    others = [toml(reading.source["segment_key"]) for reading in by_key if reading is not best]
    may_be_ordered = by_order is not None and by_order.joined > OVERLAP * best.joined
    if may_be_ordered:
        others.append("")
    draft = _draft(best, others, lines, today)
    return draft._replace(alone=order) if may_be_ordered else draft


class _Layout(NamedTuple):
    """The settings of the types' columns, their names by type, and the keys that may join them."""

    source: dict[str, Any]
    names: dict[str, list[str]]
    keys: list[_Key]


def _delimited(types: _Types) -> _Layout:
    names = {}
    for kind, rows in types.fields.items():
        [(size, _)] = Counter(map(len, rows)).most_common(1)
        names[kind] = [FIELD, *(f"column_{place}" for place in range(2, size + 1))]
    sized = {
        kind: [fields for fields in rows if len(fields) == len(names[kind])]
        for kind, rows in types.fields.items()
    }
    source = {"delimiter": types.delimiter, "segments": names}
    return _Layout(source, names, _keys(sized, types.row))


def _in_fixed_columns(types: _Types) -> _Layout:
    """Return the columns of types by their places; a key has the same place in all of them."""
    texts = {kind: ["".join(fields) for fields in rows] for kind, rows in types.fields.items()}
    size = len(types.row)
    spans = {kind: _spans(rows, size) for kind, rows in texts.items()}
    shared = [span for span in spans[types.row] if _joins(span, texts, types.row)]
    for kind in spans:
        spans[kind] = _cut(spans[kind], shared)
    names = {
        kind: [FIELD, *(f"at_{span.first}_{span.last}" for span in own[1:])]
        for kind, own in spans.items()
    }
    fields = {
        kind: [[text[span.first - 1 : span.last].strip() for span in own] for text in texts[kind]]
        for kind, own in spans.items()
    }
    segments = {
        kind: dict(zip(names[kind], map(list, own), strict=True)) for kind, own in spans.items()
    }
    source: dict[str, Any] = {"format": "fixed", "segments": segments}
    keys = [key for key in _keys(fields, types.row) if len(_key_names(key, names)) == 1]
    return _Layout(source, names, keys)


def _key_names(key: _Key, names: Mapping[str, Sequence[str]]) -> set[str]:
    return {names[kind][place] for kind, place in key.places.items()}


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


def _joins(span: Span, texts: Mapping[str, Sequence[str]], row: str) -> bool:
    """Return whether what is at a place is a key of all types."""
    cells = {
        kind: [["", text[span.first - 1 : span.last].strip()] for text in rows]
        for kind, rows in texts.items()
    }
    return span.first > 1 and bool(_keys(cells, row))


def _keys(fields: Mapping[str, Sequence[Fields]], row: str) -> list[_Key]:
    """Return the places that may join all other types to the rows, the best first."""
    keys = []
    for place in range(1, len(fields[row][0])):
        own = {record[place] for record in fields[row] if record[place]}
        places = {row: place}
        shares = {}
        for kind in fields.keys() - {row}:
            share, other = _best_place(fields[kind], own)
            if len(own) > 1 and share >= OVERLAP / 5:
                places[kind] = other
                shares[kind] = share
        if len(places) == len(fields) and max(shares.values()) >= OVERLAP:
            keys.append(_Key(places, shares))
    return sorted(keys, key=lambda key: max(key.shares.values()), reverse=True)[:MOST_KEYS]


def _best_place(rows: Sequence[Fields], own: set[str]) -> tuple[float, int]:
    """Return the place whose values are different, and in most rows; and in what share of them."""
    shares = [(0.0, 0)]
    for place in range(1, len(rows[0])):
        values = [record[place] for record in rows]
        different = set(values)
        if len(different) >= ALIKE * len(values):
            shares.append((len(different & own) / max(1, len(own)), -place))
    share, place = max(shares)
    return share, -place


def _keyed(key: _Key, layout: _Layout, types: _Types) -> dict[str, Any]:
    names = {kind: layout.names[kind][place] for kind, place in key.places.items()}
    is_same = len(set(names.values())) == 1
    optional = [kind for kind, share in key.shares.items() if share < NEEDED]
    keyed: dict[str, Any] = {"segment_key": names[types.row] if is_same else names}
    return keyed | ({"segment_optional": sorted(optional)} if optional else {})


def _around(lines: Lines, types: _Types) -> dict[str, Any]:
    """Return the settings of what is above and below the records, and of all text."""
    total = lines.total - bool(types.first) - 1
    around: dict[str, Any] = {
        "header_rows": 0,
        "segment_field": FIELD,
        "segment_row": types.row,
        "final_newline": lines.ends_in_newline,
        "encoding": lines.encoding.value.strip('"'),
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


def _reading(stream: BinaryIO, source: dict[str, Any], name: str) -> _Reading | None:
    """Read all records by some settings; None where they cannot be read so."""
    stream.seek(0)
    first: list[pl.DataFrame] = []
    whole = 0
    joined = 0
    parts = [kind for kind in source["segments"] if kind != source["segment_row"]]
    with suppress(CardlinkError):
        rows = open_rows(stream, SourceSettings.model_validate(source), name)
        for block in rows:
            whole += block.rows.height
            joined += sum(len(block.rows[f"{kind}.{FIELD}"].drop_nulls()) for kind in parts)
            if sum(frame.height for frame in first) < FIRST:
                first.append(block.rows.head(FIRST))
        if joined and whole >= OVERLAP * rows.height:
            return _Reading(source, rows.height, whole, joined, pl.concat(first).head(FIRST))
    return None


# The draft


def _draft(reading: _Reading, others: Sequence[str], lines: Lines, today: date) -> Draft:
    source = reading.source
    reasons = {
        "segments": "its record types; call the columns what you like",
        "segment_row": "the type that has the card numbers",
        "comment": "lines that begin like this are not rows",
        "trailer": "the last line; the group is the count",
        "trailer_counts": "what the trailer counts",
        "segment_optional": "types that many rows lack",
    }
    guesses = []
    for key, value in source.items():
        guess = Guess(key, toml(value), reasons.get(key, "how the records are written"))
        guesses.append(lines.encoding if key == "encoding" else guess)
    rows = f"{reading.whole:,} of {reading.rows:,} rows are whole so"
    parts = f"{reading.joined:,} other records are joined"
    if "segment_key" in source:
        place = next(place for place, guess in enumerate(guesses) if guess.key == "segment_key")
        order = "; or by their order (then without segment_key)" if "" in others else ""
        question = f"Do the types belong together by this key{order}? {rows}; {parts}"
        guesses[place] = guesses[place]._replace(question=question, others=tuple(others))
    else:
        place = next(place for place, guess in enumerate(guesses) if guess.key == "segment_row")
        question = (
            f"Do the records behind a row of this type belong to it, by order? {rows}; {parts}"
        )
        guesses[place] = guesses[place]._replace(question=question)
    guesses.append(Guess("pattern", '"*"', "which files below extracts/ are extracts"))
    columns = [column for column in columns_of(reading.first) if column.short != FIELD]
    return draft_of(Sample(guesses, columns, named=False, last=lines.last), today)
