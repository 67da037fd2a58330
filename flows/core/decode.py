"""From stored bytes to UTF-8: compression and kind by content, encoding by setting, blocks of whole lines."""

from __future__ import annotations

import codecs
import re
import zlib
from collections.abc import Iterator
from itertools import chain
from typing import Protocol

import zstandard

from flows.core.extract_errors import EmptyExtractError, EncodingError, NotCsvError, TruncatedError

PIECE = 1 << 20  # bytes asked of a stream at once
BLOCK = 16 << 20  # bytes of a block of whole lines; larger is not faster and costs memory
LONGEST_LINE = 1 << 20  # bytes; a longer "line" is another kind of file
KINDS = (
    (b"PK\x03\x04", "a ZIP archive or an Excel workbook"),
    (b"\xd0\xcf\x11\xe0", "an old Excel workbook"),
    (b"%PDF", "a PDF"),
    (b"PAR1", "a Parquet file"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ", "xz data"),
    (b"7z\xbc\xaf", "a 7-Zip archive"),
    (b"SQLite format 3", "a SQLite database"),
    (b"-----BEGIN PGP", "an OpenPGP message that nobody opened"),
    (b"\x1f\x8b", "compressed twice"),
    (b"\x28\xb5\x2f\xfd", "compressed twice"),
)
UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class Readable(Protocol):
    """Anything that gives bytes."""

    def read(self, size: int = -1, /) -> bytes:
        """Return up to `size` bytes, b'' at the end."""
        ...


def utf8_blocks(stream: Readable, encoding: str, name: str, size: int = BLOCK) -> Iterator[bytes]:
    """Yield blocks of whole lines of about `size` bytes, without BOM; single-byte encodings stay as they are.

    Raises EmptyExtractError, NotCsvError, EncodingError or TruncatedError.
    """
    plain = _sniffed(_inflated(stream, name), encoding, name)
    if encoding == "utf-16":
        plain = _from_utf16(plain, name)
    return _whole_lines(plain, name, size)


def _pieces(stream: Readable) -> Iterator[bytes]:
    while piece := stream.read(PIECE):
        yield piece


def _inflated(stream: Readable, name: str) -> Iterator[bytes]:
    pieces = _pieces(stream)
    head = b""
    while len(head) < 4 and (piece := next(pieces, b"")):
        head += piece
    if not head:
        raise EmptyExtractError(name, "no bytes at all")
    pieces = chain([head], pieces)
    if head.startswith(b"\x1f\x8b"):
        return _gunzip(pieces, name)
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        return _unzstd(pieces, name)
    return pieces


def _gunzip(pieces: Iterator[bytes], name: str) -> Iterator[bytes]:
    inflate = zlib.decompressobj(wbits=31)
    for piece in pieces:
        while piece:
            if inflate.eof:
                piece = piece.lstrip(b"\0")  # padding between and after members is legal
                if not piece:
                    break
                inflate = zlib.decompressobj(wbits=31)
            broken = False
            try:
                yield inflate.decompress(piece, PIECE)
            except zlib.error:
                broken = True
            if broken:
                raise TruncatedError(name, "its gzip data is damaged")
            piece = inflate.unused_data if inflate.eof else inflate.unconsumed_tail
    if not inflate.eof:
        raise TruncatedError(name, "its gzip data is cut off")


def _unzstd(pieces: Iterator[bytes], name: str) -> Iterator[bytes]:
    inflate = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
    for piece in pieces:
        for start in range(0, len(piece), 1024):  # 1 KiB can swell to 32 MiB: what keeps memory flat
            rest = piece[start : start + 1024]
            while rest:
                if inflate.eof:
                    inflate = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
                broken = False
                try:
                    yield inflate.decompress(rest)
                except zstandard.ZstdError:
                    broken = True
                if broken:
                    raise TruncatedError(name, "its zstd data is damaged")
                rest = inflate.unused_data if inflate.eof else b""
    if not inflate.eof:
        raise TruncatedError(name, "its zstd data is cut off")


def _sniffed(pieces: Iterator[bytes], encoding: str, name: str) -> Iterator[bytes]:
    head = b""
    while len(head) < 4096 and (piece := next(pieces, None)) is not None:
        head += piece
    if not head:
        raise EmptyExtractError(name, "no bytes at all")
    for mark, kind in KINDS:
        if head.startswith(mark):
            raise NotCsvError(name, kind)
    if re.match(rb"(\xef\xbb\xbf)?\s*<(!doctype|html|\?xml|[a-z]+[ />])", head, re.IGNORECASE):
        raise NotCsvError(name, "a web page or XML")
    utf16 = head.startswith(UTF16_MARKS) or _looks_utf16(head)
    if utf16 and encoding != "utf-16":
        raise EncodingError(name, encoding, "it is UTF-16")
    if encoding == "utf-16" and not utf16:
        raise EncodingError(name, encoding, "it is not UTF-16")
    if head.startswith(codecs.BOM_UTF8):
        if encoding not in ("utf-8", "utf-16"):
            raise EncodingError(name, encoding, "it begins with the mark of UTF-8")
        head = head[3:]
    return chain([head], pieces)


def _looks_utf16(head: bytes) -> bool:
    return len(head) >= 8 and (
        head[1:64:2].count(0) > len(head[1:64:2]) // 2 or head[0:64:2].count(0) > len(head[0:64:2]) // 2
    )


def _from_utf16(pieces: Iterator[bytes], name: str) -> Iterator[bytes]:
    first = next(pieces, b"")
    little = first.startswith(codecs.BOM_UTF16_LE) or (
        not first.startswith(codecs.BOM_UTF16_BE) and first[1:2] == b"\0"
    )
    decoder = codecs.getincrementaldecoder("utf-16-le" if little else "utf-16-be")()
    rest = first[2:] if first.startswith(UTF16_MARKS) else first
    for piece, final in chain(((piece, False) for piece in chain([rest], pieces)), [(b"", True)]):
        broken = False
        try:
            yield decoder.decode(piece, final).encode()
        except UnicodeError:
            broken = True
        if broken:
            raise EncodingError(name, "utf-16", "it is damaged or cut off in the middle of a character")


def _whole_lines(pieces: Iterator[bytes], name: str, size: int) -> Iterator[bytes]:
    held: list[bytes] = []
    length = 0
    for piece in pieces:
        held.append(piece)
        length += len(piece)
        if length < size:
            continue
        data = b"".join(held)
        end = data.rfind(b"\n") + 1
        if len(data) - end > LONGEST_LINE:
            raise NotCsvError(name, f"without a line end for {len(data) - end} bytes")
        yield data[:end]
        held, length = [data[end:]], len(data) - end
    if length:
        yield b"".join(held)
