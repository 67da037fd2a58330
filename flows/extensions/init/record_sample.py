"""A sample of an extract by a copybook, and how its records are written: format and code page.

A format is right where the whole file can be cut by it, so it is no guess. Which EBCDIC code page
it is shows only in accents and brackets: where a field has one, it is a doubt.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import BinaryIO, Final, NamedTuple

import numpy as np

from flows.extensions.init.control_records import stated_in
from flows.extensions.init.guess import Column, Guess, Sample
from flows.extensions.init.sample import FIRST
from flows.extensions.init.trailer_guess import form_of
from flows.extracts.decode import inflated
from flows.extracts.errors import CopybookUnfitError, TruncatedError
from flows.extracts.records.fields import NO_FIELD, FieldReader, alphabet
from flows.extracts.records.framing import Frame, Framing, RecordFormatError
from flows.extracts.records.text import record_texts
from schemas.code_pages import characters, looks_ebcdic
from schemas.expressions import UNREADABLE
from schemas.record_layout import Layout, read_layout
from schemas.reference import toml

PIECE: Final = 1 << 20  # bytes
HEAD: Final = 1 << 16  # bytes that show whether it is EBCDIC
USUAL_PAGES: Final = ("cp037", "cp1047", "cp500", "cp1140", "cp273", "cp284", "cp297")
_FORMATS: Final = ("VB", "V", "FB")  # those whose words prove themselves first


class _Records(NamedTuple):
    """The first records of a file, how many it has, and the lengths that they have."""

    record_format: str
    first: Frame
    last: Frame
    total: int
    lengths: frozenset[int]


def take_records(stream: BinaryIO, name: str, copybook: str, file: str) -> Sample:
    """Return a sample of an extract whose records the text of a copybook describes.

    `file` is what the copybook is called in the settings. Raises CopybookError, and
    CopybookUnfitError where no format of records fits.
    """
    layout = read_layout(copybook)
    data = _content(stream, name)
    records = _framed(data, layout, name)
    encoding = _encoding(data, records, layout)
    is_short = any(length < layout.size for length in records.lengths)
    guesses = [
        Guess("copybook", toml(file), "describes the records; its fields are the columns"),
        Guess(
            "record_format",
            toml(records.record_format),
            f"it cuts the whole file into {records.total:,} records of {layout.size} bytes",
        ),
        encoding,
        Guess("pattern", '"*"', "which files below extracts/ are extracts"),
    ]
    if is_short:
        short = Guess("short_records", "true", "some records lack the blanks at their end")
        guesses.insert(2, short)
    page = encoding.value.strip('"')
    edges = _edges(records, layout, page)
    guesses += _guesses_of_edges(edges, records.total)
    rows = slice(bool(edges.header), -1 if edges.trailer and records.total <= FIRST else None)
    columns = _columns(records.first, layout, page, rows, short=is_short)
    return Sample(guesses, columns, True, edges.last, edges.above)


class _Edges(NamedTuple):
    """How header and trailer records begin, "" for none; and their text."""

    header: str
    trailer: str
    above: tuple[str, ...]
    last: str


def _edges(records: _Records, layout: Layout, encoding: str) -> _Edges:
    blank = alphabet(encoding).blank
    texts = record_texts(records.first.matrix(layout.size, blank)[:FIRST], encoding)
    if records.total > FIRST:
        texts += record_texts(records.last.matrix(layout.size, blank)[-1:], encoding)
    beginnings = around(texts)
    above = (texts[0],) if beginnings.header else ()
    last = texts[-1] if beginnings.trailer else ""
    return _Edges(*beginnings, above, last)


def _guesses_of_edges(edges: _Edges, total: int) -> Iterator[Guess]:
    """Yield the settings that keep header and trailer records from the rows."""
    if edges.header:
        form = form_of(edges.above[0], edges.header)
        yield Guess("comment", toml(form), "a first record that is not a row")
    if not edges.trailer:
        return
    rows = total - bool(edges.header) - 1
    stated = stated_in(edges.last, rows, {})
    if stated is not None:
        reason = "the last record; the group is the number of rows"
        yield Guess("trailer", toml(stated.pattern(fixed=True)), reason)
    elif not edges.header:
        form = form_of(edges.last, edges.trailer)
        yield Guess("comment", toml(form), "a last record that is not a row")


def _content(stream: BinaryIO, name: str) -> bytes:
    """Return the decompressed bytes of a file; of one that is cut off, those that can be read."""
    pieces: list[bytes] = []
    with suppress(TruncatedError):
        pieces += inflated(iter(partial(stream.read, PIECE), b""), name)
    return b"".join(pieces)


def _framed(data: bytes, layout: Layout, name: str) -> _Records:
    """Return the records in the first format that fits a whole file."""
    for record_format in _FORMATS:
        framing = Framing(record_format, layout.size, name)
        with suppress(RecordFormatError, TruncatedError):
            frames = list(framing.frames(iter([data]), len(data)))
            lengths = Counter[int]()
            for frame in frames:
                lengths.update(frame.lengths.tolist())
            if max(lengths) <= layout.size:
                total = sum(frame.height for frame in frames)
                return _Records(record_format, frames[0], frames[-1], total, frozenset(lengths))
    raise CopybookUnfitError(name=name, size=layout.size, problem=_misfit(data, layout.size))


def _misfit(data: bytes, size: int) -> str:
    """Return why bytes are no records of a size, in any format."""
    for end, more in ((b"\r\n", 2), (b"\n", 1), (b"\x15", 1), (b"\x25", 1)):
        if data[size : size + more] == end and data[2 * size + more :][:more] == end:
            return (
                "each record has a line end behind it: describe it by a last item of the "
                f"copybook, `05 FILLER PIC X({more}).`"
            )
    left = len(data) % size
    return f"it has {len(data):,} bytes, which leaves {left} behind records of {size}"


def _encoding(data: bytes, records: _Records, layout: Layout) -> Guess:
    if not looks_ebcdic(data[:HEAD]):
        texts = b"".join(_texts(records.first, layout, "utf-8"))
        encoding = "utf-8" if texts.isascii() else "cp1252"
        return Guess("encoding", toml(encoding), "what its bytes are")
    different = _different_letters()
    letters = set(b"".join(_texts(records.first, layout, USUAL_PAGES[0])))
    if letters.isdisjoint(different):
        return Guess("encoding", toml(USUAL_PAGES[0]), "EBCDIC; no letter tells which code page")
    question = "Which code page of EBCDIC is it? Accents and brackets differ: ask the issuer"
    others = tuple(map(toml, USUAL_PAGES[1:]))
    return Guess("encoding", toml(USUAL_PAGES[0]), "EBCDIC", question, others)


def _texts(frame: Frame, layout: Layout, encoding: str) -> Iterator[bytes]:
    """Yield the bytes of each field of text."""
    records = frame.matrix(layout.size, alphabet(encoding).blank)[:FIRST]
    for field in layout.fields:
        if field.kind == "text":
            yield records[:, field.start : field.end].tobytes()


def _different_letters() -> frozenset[int]:
    """Return the bytes that are other characters in some of the usual code pages."""
    meanings = zip(*map(characters, USUAL_PAGES), strict=True)
    return frozenset(byte for byte, texts in enumerate(meanings) if len(set(texts)) > 1)


def _columns(
    frame: Frame, layout: Layout, encoding: str, places: slice, *, short: bool
) -> list[Column]:
    """Return the fields of the first records that can be read; `places`: of those that are rows."""
    reader = FieldReader(layout.fields, encoding, short=short)
    records = frame.matrix(layout.size, alphabet(encoding).blank)[:FIRST][places]
    cells = reader.read(records, frame.lengths[:FIRST][places])
    rows = cells.rows.filter(np.asarray(cells.wrong == NO_FIELD))
    shared = _shared_words([field.name for field in reader.fields])
    columns = []
    for field in reader.fields:
        texts = rows[field.name].fill_null("").to_list()
        values = tuple("" if text == UNREADABLE else text for text in texts)
        heading = field.name.removeprefix(shared)
        columns.append(Column(f"from = {toml(field.name)}", field.name, values, heading))
    return columns


def _shared_words(names: Sequence[str]) -> str:
    """Return the prefix that all names have, as COBOL programs name their fields; "" for none."""
    prefix, hyphen, _ = names[0].partition("-")
    shared = prefix + hyphen
    return shared if hyphen and all(name.startswith(shared) for name in names) else ""


_HEADER: Final = re.compile("(?:HEADER|HEAD|HDR|BOF|FHDR|FH|H|0+)(?=[^A-Za-z]|$)")
_TRAILER: Final = re.compile(
    "(?:TRAILER|TRAIL|TRLR|TRL|TLR|FTR|FOOTER|EOF|END|TOTALS?|FT|T|9+)(?=[^A-Za-z]|$)"
)


class Around(NamedTuple):
    """What the records around the rows begin with; "" where there is none."""

    header: str
    trailer: str


def around(records: Sequence[str]) -> Around:
    """Return how the first and the last record begin, where no other record begins like it.

    `records`: the text of the first ones, and of the last.
    """
    if len(records) < 3:
        return Around("", "")
    return Around(
        _beginning(records[0], records[1:-1], _HEADER),
        _beginning(records[-1], records[1:-1], _TRAILER),
    )


def _beginning(record: str, rows: Sequence[str], kind: re.Pattern[str]) -> str:
    """Return the first characters of a record that is emptier than the rows, and unlike them."""
    tag = kind.match(record)
    if tag is None or any(row.startswith(tag[0]) for row in rows):
        return ""
    filled = [sum(character.isalnum() for character in row) for row in rows]
    is_emptier = sum(map(str.isalnum, record)) < 0.7 * min(filled)
    return tag[0] if is_emptier else ""
