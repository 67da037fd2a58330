"""From stored bytes to UTF-8: compression and kind by content, encoding by setting, blocks of whole lines."""

from __future__ import annotations

import codecs
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Protocol

import polars as pl
import zstandard

from flows.extracts.errors import EmptyExtractError, EncodingError, NotCsvError, TruncatedError

PIECE = 1 << 20  # bytes asked of a stream at once
BLOCK = 4 << 20  # bytes of a block of whole lines; with 5 MiB a tenth less CPU, and 40 MB more memory
UNREADABLE = b"\x00"  # stands for a line that is not in the encoding: no record can look like it
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
HEAD = 4096  # bytes looked at to tell what an extract is
WEB_PAGE = re.compile(rb"(\xef\xbb\xbf)?\s*<(!doctype|html|\?xml|[a-z]+[ />])", re.IGNORECASE)
JSON = re.compile(rb"(\xef\xbb\xbf)?\s*(\[\s*)?[{\[]")
CONTROLS = bytes(code for code in range(32) if code not in b"\0\t\n\r\x1a")
UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class Readable(Protocol):
    """Anything that gives bytes."""

    def read(self, size: int = -1, /) -> bytes:
        """Return up to `size` bytes, b'' at the end."""
        ...


def line_blocks(stream: Readable, encoding: str, name: str, size: int = BLOCK) -> Iterator[bytes]:
    """Yield blocks of whole lines of about `size` bytes: decompressed, no BOM, UTF-16 made UTF-8.

    Raises EmptyExtractError, NotCsvError, EncodingError or TruncatedError.
    """
    plain = _sniffed(_inflated(_pieces(stream, min(size, PIECE)), name), encoding, name)
    if encoding == "utf-16":
        plain = _from_utf16(plain, name)
    return _whole_lines(plain, name, size)


def as_utf8(block: bytes, encoding: str, name: str, first_line: int) -> bytes:
    """Return a block as UTF-8, with UNREADABLE in place of each line that is not in `encoding`.

    In a one-byte encoding everything decodes; there a line that reads as UTF-8 is the one that does not belong.
    Raises EncodingError where more than one line in a hundred is wrong: then it is the setting.
    """
    if block.isascii() or encoding == "utf-16" or (encoding == "utf-8" and _is_utf8(block)):
        return block
    lines = block.split(b"\n")
    texts = [line if line.isascii() else _line_as_utf8(line, encoding) for line in lines]
    wrong = [at for at, text in enumerate(texts) if text == UNREADABLE]
    if len(wrong) > max(1, len(lines) // 100):
        found = f"{len(wrong)} of {len(lines)} lines, the first is line {first_line + wrong[0]}"
        raise EncodingError(name=name, encoding=encoding, problem=found)
    return b"\n".join(texts)


def _line_as_utf8(line: bytes, encoding: str) -> bytes:
    if encoding == "utf-8":
        return line if _decodes(line, encoding) else UNREADABLE
    if _decodes(line, "utf-8") or not _decodes(line, encoding):
        return UNREADABLE
    text = line.decode(encoding)
    return UNREADABLE if re.search("[\x80-\x9f]", text) else text.encode()  # C1 controls: it is cp1252


def _is_utf8(block: bytes) -> bool:
    """Tell whether a block is UTF-8 throughout; `decode` would make a text of it, in eight times the time."""
    with suppress(pl.exceptions.PolarsError):
        return not pl.Series([block], dtype=pl.Binary).cast(pl.String).is_empty()
    return False


def _decodes(data: bytes, encoding: str) -> bool:
    try:
        data.decode(encoding)
    except UnicodeError:
        return False
    return True


def _pieces(stream: Readable, size: int) -> Iterator[bytes]:
    while piece := stream.read(size):
        yield piece


def _inflated(pieces: Iterator[bytes], name: str) -> Iterator[bytes]:
    head = b""
    while len(head) < 4 and (piece := next(pieces, b"")):
        head += piece
    if not head:
        raise EmptyExtractError(name=name, problem="no bytes at all")
    pieces = chain([head], pieces)
    if head.startswith(b"\x1f\x8b"):
        return _gunzip(pieces, name)
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        return _unzstd(pieces, name)
    return pieces


def _gunzip(pieces: Iterator[bytes], name: str) -> Iterator[bytes]:
    inflate = zlib.decompressobj(wbits=31)
    for piece in pieces:
        rest = piece
        while rest:
            if inflate.eof:
                rest = rest.lstrip(b"\0")  # padding after a member is legal, and so is another member
                if not rest:
                    break
                inflate = zlib.decompressobj(wbits=31)
            yield _decompressed(partial(inflate.decompress, rest, PIECE), "gzip", name)
            rest = inflate.unused_data if inflate.eof else inflate.unconsumed_tail
    if not inflate.eof:
        raise TruncatedError(name=name, problem="its gzip data is cut off")


def _unzstd(pieces: Iterator[bytes], name: str) -> Iterator[bytes]:
    frames = zstandard.ZstdDecompressor(max_window_size=1 << 27)
    inflate = frames.decompressobj()
    for piece in pieces:
        for start in range(0, len(piece), 1024):  # 1 KiB swells to 32 MiB at most: what keeps memory flat
            rest = piece[start : start + 1024]
            while rest:
                inflate = frames.decompressobj() if inflate.eof else inflate
                yield _decompressed(partial(inflate.decompress, rest), "zstd", name)
                rest = inflate.unused_data if inflate.eof else b""
    if not inflate.eof:
        raise TruncatedError(name=name, problem="its zstd data is cut off")


def _decompressed(step: Callable[[], bytes], kind: str, name: str) -> bytes:
    try:
        return step()
    except (zlib.error, zstandard.ZstdError):
        pass  # ours is raised outside: a foreign message may quote the data
    raise TruncatedError(name=name, problem=f"its {kind} data is damaged")


def _sniffed(pieces: Iterator[bytes], encoding: str, name: str) -> Iterator[bytes]:
    head = b""
    while len(head) < HEAD and (piece := next(pieces, None)) is not None:
        head += piece
    if not head:
        raise EmptyExtractError(name=name, problem="no bytes at all")
    utf16 = head.startswith(UTF16_MARKS) or _looks_utf16(head)
    if kind := _other_kind(head, utf16):
        raise NotCsvError(name=name, kind=kind)
    if utf16 != (encoding == "utf-16"):
        raise EncodingError(name=name, encoding=encoding, problem="it is UTF-16" if utf16 else "it is not UTF-16")
    if head.startswith(codecs.BOM_UTF8) and encoding != "utf-8":
        raise EncodingError(name=name, encoding=encoding, problem="it begins with the mark of UTF-8")
    return chain([head.removeprefix(codecs.BOM_UTF8)], pieces)


def _other_kind(head: bytes, utf16: bool) -> str:
    """Return what the content is instead of rows, '' where it may be rows."""
    for marker, kind in KINDS:
        if head.startswith(marker):
            return kind
    if WEB_PAGE.match(head):
        return "a web page or XML"
    if JSON.match(head):
        return "JSON"
    controls = len(head) - len(head.translate(None, CONTROLS))
    return "binary data" if controls * 20 > len(head) and not utf16 else ""


def _looks_utf16(head: bytes) -> bool:
    """Return whether nearly every second byte is zero, as in UTF-16 of Latin text."""
    even, odd = head[0:HEAD:2], head[1:HEAD:2]
    return len(odd) >= 4 and max(even.count(0), odd.count(0)) * 10 > 9 * len(odd) > 20 * min(
        even.count(0), odd.count(0)
    )


def _from_utf16(pieces: Iterator[bytes], name: str) -> Iterator[bytes]:
    first = next(pieces, b"")
    marked = first.startswith(UTF16_MARKS)
    big = first.startswith(codecs.BOM_UTF16_BE) or (not marked and first[:1] == b"\0")
    decoder = codecs.getincrementaldecoder("utf-16-be" if big else "utf-16-le")()
    for piece in chain([first[2:] if marked else first], pieces):
        yield _transcoded(decoder, piece, name)
    yield _transcoded(decoder, b"", name, final=True)


def _transcoded(decoder: codecs.IncrementalDecoder, piece: bytes, name: str, *, final: bool = False) -> bytes:
    try:
        return decoder.decode(piece, final).encode()
    except UnicodeError:
        pass  # ours is raised outside: theirs holds the bytes
    raise EncodingError(name=name, encoding="utf-16", problem="it is damaged, or cut off in the middle of a character")


def _whole_lines(pieces: Iterator[bytes], name: str, size: int) -> Iterator[bytes]:
    held: list[bytes] = []
    length = 0
    for piece in pieces:
        held.append(piece)
        length += len(piece)
        if length < size:
            continue
        end = piece.rfind(b"\n") + 1
        if not end:  # a line longer than a piece
            piece = b"".join(held)
            held, end = [piece], piece.rfind(b"\n") + 1
        held[-1], rest = piece[:end], piece[end:]
        if len(rest) > LONGEST_LINE:
            raise NotCsvError(name=name, kind=f"without a line end for {len(rest)} bytes")
        if end:
            yield b"".join(held)
        held, length = [rest], len(rest)
    if length:
        yield b"".join(held)
