"""Records of text as lines: of a code page, and without line ends.

They are then read as any other lines, by the same grammar.
"""

import re
from collections.abc import Iterator
from functools import partial

from flows.extracts.decode import Readable, inflated, line_blocks, recognised
from flows.extracts.errors import EncodingError
from flows.extracts.readers import readers
from flows.extracts.records.framing import Bytes, Frame, Framing
from schemas.code_pages import EBCDIC, LINE_END, controls, decoded, looks_ebcdic
from schemas.source import SourceSettings

PIECE = 1 << 20  # bytes read from a stream at once
HEAD = 4096
WRONG_LINE = b"\x00\x00"  # replaces a record with control characters; no record looks like it
LINE_ENDS = b"\x00\n\r\x1a"  # what would be no text, or another line, where bytes are ASCII


def text_blocks(stream: Readable, source: SourceSettings, name: str, size: int) -> Iterator[bytes]:
    """Yield whole lines of an extract, about `size` bytes at a time.

    They are in `text_encoding`. Raises ExtractError.
    """
    if source.format not in ("csv", "fixed"):
        yield from readers()[source.format].lines(stream, source, name, size)
        return
    if source.record_format is None and source.encoding not in EBCDIC:
        yield from line_blocks(stream, source.encoding, name, size)
        return
    pieces = stored_pieces(stream, source, name, size)
    if source.record_format is None:
        yield from recognised(_as_utf8(pieces, source.encoding), name, size)
        return
    for frame in framing(source, name).frames(pieces, size):
        yield _lines(frame, source)


def text_encoding(source: SourceSettings) -> str:
    """Return the encoding of the lines that `text_blocks` yields."""
    return "utf-8" if source.encoding in EBCDIC else source.encoding


def framing(source: SourceSettings, name: str) -> Framing:
    """Return how the records of an extract are framed."""
    return Framing(source.record_format or "", source.record_size, name)


def stored_pieces(
    stream: Readable, source: SourceSettings, name: str, size: int
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


def _as_utf8(pieces: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    for piece in pieces:
        yield decoded(piece, encoding).encode()


def _lines(frame: Frame, source: SourceSettings) -> bytes:
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
