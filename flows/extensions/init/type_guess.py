"""Record types in one file, found in its lines and proven by all its records: for `init`.

The records of one type have the card numbers: they are the rows. How the others belong to them, by
a key or by their order, is what joins most of them; it stays a doubt.
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date
from typing import Any, BinaryIO, Final, NamedTuple

import polars as pl

from flows.errors import CardlinkError
from flows.extensions.init.draft import Draft, columns_of, draft_of
from flows.extensions.init.guess import Guess, Sample
from flows.extensions.init.sample import FIRST, Lines, read_lines
from flows.extensions.init.trailer_guess import guess_trailer
from flows.extensions.init.type_layout import FIELD, OVERLAP, delimited, in_fixed_columns, keyed
from flows.extensions.init.typed_lines import RecordTypes, record_types
from flows.extracts.decode import line_blocks
from flows.extracts.rows import open_rows
from schemas.issuer import source_settings
from schemas.reference import toml

MOST_LINES: Final = 200_000  # in whose fields a key is looked for
BLOCK: Final = 1 << 22


class _Reading(NamedTuple):
    """What a reading by some settings showed: all rows, those read whole, and parts joined."""

    source: dict[str, Any]
    rows: int
    whole: int
    joined: int
    first: pl.DataFrame


def typed_draft(stream: BinaryIO, name: str, today: date) -> Draft | None:
    """Return what is guessed of an extract whose records are of several types; None for others."""
    if "segments" not in source_settings().model_fields:
        return None
    with suppress(CardlinkError):
        lines = read_lines(stream, "utf-8", name)
        if record_types(lines.sampled) is None:
            return None
        types = record_types(_texts(stream, lines, name))
        if types is not None:
            return _drafted(stream, name, lines, types, today)
    return None


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


# Settings


def _drafted(
    stream: BinaryIO, name: str, lines: Lines, types: RecordTypes, today: date
) -> Draft | None:
    """Return the draft by the reading that joins most, with that by order behind it."""
    layout = delimited(types) if types.delimiter else in_fixed_columns(types)
    source = layout.source | _around(lines, types)
    by_order = _reading(stream, source, name)
    keyed_sources = (source | keyed(key, layout, types) for key in layout.keys)
    by_key = [*filter(None, (_reading(stream, each, name) for each in keyed_sources))]
    order = _draft(by_order, (), lines, today) if by_order else None
    best = max(by_key, key=lambda reading: (reading.joined, reading.whole), default=None)
    joined_by_order = by_order.joined if by_order else 0
    if best is None or joined_by_order > best.joined:
        return order
    others = [toml(reading.source["segment_key"]) for reading in by_key if reading is not best]
    if joined_by_order <= OVERLAP * best.joined:
        return _draft(best, others, lines, today)
    return _draft(best, [*others, ""], lines, today)._replace(alone=order)


def _reading(stream: BinaryIO, source: dict[str, Any], name: str) -> _Reading | None:
    """Read all records by some settings; None where they cannot be read so."""
    stream.seek(0)
    first: list[pl.DataFrame] = []
    whole = 0
    joined = 0
    parts = [kind for kind in source["segments"] if kind != source["segment_row"]]
    with suppress(CardlinkError):
        rows = open_rows(stream, source_settings().model_validate(source), name)
        for block in rows:
            whole += block.rows.height
            joined += sum(len(block.rows[f"{kind}.{FIELD}"].drop_nulls()) for kind in parts)
            if sum(frame.height for frame in first) < FIRST:
                first.append(block.rows.head(FIRST))
        if joined and whole >= OVERLAP * rows.height:
            return _Reading(source, rows.height, whole, joined, pl.concat(first).head(FIRST))
    return None


def _around(lines: Lines, types: RecordTypes) -> dict[str, Any]:
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


# The draft


_REASONS: Final = {
    "segments": "its record types; call the columns what you like",
    "segment_row": "the type that has the card numbers",
    "comment": "lines that begin like this are not rows",
    "trailer": "the last line; the group is the count",
    "trailer_counts": "what the trailer counts",
    "segment_optional": "types that many rows lack",
}


def _draft(reading: _Reading, others: Sequence[str], lines: Lines, today: date) -> Draft:
    guesses = [
        _joining(guess, reading, others) for guess in _written(reading.source, lines.encoding)
    ]
    guesses.append(Guess("pattern", '"*"', "which files below extracts/ are extracts"))
    columns = [column for column in columns_of(reading.first) if column.short != FIELD]
    return draft_of(Sample(guesses, columns, named=False, last=lines.last), today)


def _written(source: Mapping[str, Any], encoding: Guess) -> Iterator[Guess]:
    """Yield settings as guesses, that of the encoding as its lines showed it."""
    for key, value in source.items():
        reason = _REASONS.get(key, "how the records are written")
        yield encoding if key == "encoding" else Guess(key, toml(value), reason)


def _joining(guess: Guess, reading: _Reading, others: Sequence[str]) -> Guess:
    """Return a guess, that of what joins the types with the question whether it does."""
    rows = f"{reading.whole:,} of {reading.rows:,} rows are whole so"
    parts = f"{reading.joined:,} other records are joined"
    has_key = "segment_key" in reading.source
    if guess.key == "segment_key":
        order = "; or by their order (then without segment_key)" if "" in others else ""
        question = f"Do the types belong together by this key{order}? {rows}; {parts}"
        return guess._replace(question=question, others=tuple(others))
    if guess.key == "segment_row" and not has_key:
        question = (
            f"Do the records behind a row of this type belong to it, by order? {rows}; {parts}"
        )
        return guess._replace(question=question)
    return guess
