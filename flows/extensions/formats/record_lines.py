"""Records without line ends, and text of a code page, as lines of text.

A record by a copybook is a line of CSV; one that cannot be read is a line that says so, with byte
and field. Header and trailer records stay as they are.
"""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from flows.extensions.formats.code_pages import EBCDIC, LINE_END, controls, decoded
from flows.extensions.formats.fields import NO_FIELD, FieldReader, alphabet, column_name
from flows.extensions.formats.framing import Bytes, Frame, Framing, Places, RecordFormatError
from flows.extensions.formats.record_layout import Field
from flows.extensions.formats.settings import FormatSettings
from flows.extracts import grammar
from flows.extracts.decode import Readable, inflated, looks_ebcdic, recognised
from flows.extracts.errors import EncodingError

PIECE: Final = 1 << 20  # bytes read from a stream at once
HEAD: Final = 4096
WRONG_LINE: Final = b"\x00\x00"  # replaces a record with control characters
LINE_ENDS: Final = b"\x00\n\r\x1a"  # what would be no text, or another line, in ASCII
_NO_TEXT: Final = re.compile(r"[\n\r\x1a]")  # what would end a line, or the text


class TypedLines(NamedTuple):
    """Some whole lines without their ends, and the type of each; None where one is no record."""

    lines: list[bytes]
    kinds: Sequence[str | None]
    ends_in_newline: bool = True


def text_lines(stream: Readable, source: FormatSettings, name: str, size: int) -> Iterator[bytes]:
    """Yield whole lines of records of text or of EBCDIC, about `size` bytes at a time."""
    pieces = stored_pieces(stream, source, name, size)
    if source.record_format is None:
        texts = (decoded(piece, source.encoding).encode() for piece in pieces)
        yield from recognised(texts, name, size)
        return
    for frame in framing(source, name).frames(pieces, size):
        yield _lines(frame, source)


def framing(source: FormatSettings, name: str) -> Framing:
    """Return how the records of an extract are framed."""
    return Framing(source.record_format or "", source.record_size, name)


def stored_pieces(
    stream: Readable, source: FormatSettings, name: str, size: int
) -> Iterator[bytes]:
    """Yield the decompressed bytes of an extract; EncodingError where they are not EBCDIC."""
    stored = iter(partial(stream.read, min(size, PIECE)), b"")
    is_first = True
    for piece in inflated(stored, name):
        head = piece[:HEAD]
        if is_first and source.encoding in EBCDIC and head.isascii() and not looks_ebcdic(head):
            problem = "it looks like ASCII: was it converted on its way?"
            raise EncodingError(name=name, encoding=source.encoding, problem=problem)
        is_first &= not piece
        yield piece


def _lines(frame: Frame, source: FormatSettings) -> bytes:
    """Return records as lines; one with control characters as a line that is refused."""
    is_ebcdic = source.encoding in EBCDIC
    forbidden = controls(source.encoding) if is_ebcdic else LINE_ENDS
    places = zip(frame.starts.tolist(), (frame.starts + frame.lengths).tolist(), strict=True)
    records = [frame.data[start:end] for start, end in places]
    has_forbidden = re.compile(b"[" + re.escape(forbidden) + b"]").search
    if source.record_format in ("V", "VB") or has_forbidden(frame.data):
        records = [WRONG_LINE if has_forbidden(record) else record for record in records]
    if not records:
        return b""
    end = bytes([LINE_END]) if is_ebcdic else b"\n"
    lines = end.join(records) + end
    return decoded(lines, source.encoding).encode() if is_ebcdic else lines


def record_texts(records: Bytes, encoding: str) -> list[str]:
    """Return records of a width as text, whatever their fields are."""
    width = records.shape[1]
    text = records.tobytes()
    whole = decoded(text, encoding) if encoding in EBCDIC else text.decode("latin-1")
    return [whole[start : start + width] for start in range(0, len(whole), width)]


# By a copybook


def field_names(kind: str, source: FormatSettings) -> tuple[str, ...]:
    """Return the columns of a type of records, "" for all where there is but one."""
    return tuple(column_name(field.name) for field in _reader(kind, source).fields)


def _reader(kind: str, source: FormatSettings) -> FieldReader:
    layout = source.layout
    fields = layout.of(str(source.segments[kind]).upper()) if kind else layout.fields
    return _field_reader(fields, source)


def _field_reader(fields: Sequence[Field], source: FormatSettings) -> FieldReader:
    return FieldReader(fields, source.encoding, short=source.short_records)


class CopybookLines:
    """The records of an extract by a copybook, as lines of CSV."""

    def __init__(self, source: FormatSettings, name: str) -> None:
        self._source = source
        self._name = name
        self._size = source.layout.size
        self._filling = alphabet(source.encoding).blank
        self._readers = {kind: _reader(kind, source) for kind in source.segments or ("",)}
        field = source.layout.named(source.segment_field or "")
        type_fields = () if field is None else (field._replace(shared=True),)
        self._type = _field_reader(type_fields, source)
        self._control = [form for form in (source.comment_form, source.trailer) if form is not None]
        self._records = 0

    def blocks(self, stream: Readable, size: int) -> Iterator[TypedLines]:
        """Yield the lines, of about `size` bytes of records at a time.

        Raises RecordFormatError, TruncatedError, EmptyExtractError and EncodingError.
        """
        pieces = stored_pieces(stream, self._source, self._name, size)
        for frame in framing(self._source, self._name).frames(pieces, size):
            yield self._as_lines(frame)
            self._records += frame.height

    def _as_lines(self, frame: Frame) -> TypedLines:
        records = frame.matrix(self._size, self._filling)
        lines = [b""] * frame.height
        kinds: list[str | None] = [*self._types(records, frame.lengths)]
        for place, text in self._controls(records):
            lines[place] = _NO_TEXT.sub(" ", text).encode()
            kinds[place] = None
        types = np.array(kinds, object)
        for kind, reader in self._readers.items():
            places = np.flatnonzero(types == kind)
            if places.size:
                written = self._written(reader, frame, records, places)
                for place, line in zip(places.tolist(), written, strict=True):
                    lines[place] = line.encode()
        return TypedLines(lines, kinds)

    def _types(self, records: Bytes, lengths: Places) -> list[str]:
        """Return the type of each record, "" where there is but one, or it cannot be read."""
        if not self._source.segments:
            return [""] * len(records)
        return self._type.read(records, lengths).rows.to_series().fill_null("").to_list()

    def _controls(self, records: Bytes) -> Iterator[tuple[int, str]]:
        """Yield places and text of header and trailer records."""
        if not self._control:
            return
        texts = pl.Series(record_texts(records, self._source.encoding), dtype=pl.String)
        for place in np.flatnonzero(self._are_control(texts)).tolist():
            yield place, texts[place]

    def _are_control(self, texts: pl.Series) -> pl.Series:
        are_control = pl.zeros(len(texts), pl.Boolean, eager=True)
        for form in self._control:
            are_control |= texts.str.contains(form)
        return are_control

    def _written(
        self, reader: FieldReader, frame: Frame, records: Bytes, places: Places
    ) -> list[str]:
        """Return the lines of records at some places of a frame."""
        lengths = frame.lengths[places]
        starts = frame.first + frame.starts[places]
        cells = reader.read(records[places], lengths)
        lines = cells.rows.write_csv(include_header=False).split("\n")[:-1]
        self._keep_apart(lines, places)
        for place in np.flatnonzero(lengths > self._size).tolist():
            lines[place] = _refused(grammar.TOO_LONG, f"at byte {starts[place] + 1:,}")
        wrong = (cells.wrong != NO_FIELD) & (lengths <= self._size)
        for place in np.flatnonzero(wrong).tolist():
            number = int(cells.wrong[place])
            field = reader.fields[number]
            where = f"{field.name}, at byte {starts[place] + field.start + 1:,}"
            lines[place] = _refused(reader.fault(number), where)
        return lines

    def _keep_apart(self, lines: list[str], places: Places) -> None:
        """Quote the first cell of lines that are no header or trailer, and look like one in CSV.

        RecordFormatError where that does not help: none is to be lost.
        """
        if not self._control:
            return
        for place in np.flatnonzero(self._are_control(pl.Series(lines, dtype=pl.String))).tolist():
            first, comma, others = lines[place].partition(",")
            lines[place] = f'"{first}"{comma}{others}'
            if self._are_control(pl.Series([lines[place]])).any():
                number = self._records + int(places[place]) + 1
                problem = (
                    f"the cells of record {number:,} look like what header_record, trailer or "
                    "comment match: make these patterns match more exactly"
                )
                record_format = self._source.record_format
                raise RecordFormatError(name=self._name, format=record_format, problem=problem)


def _refused(code: str, where: str) -> str:
    return grammar.refused(grammar.Fault(code, where)).decode()
