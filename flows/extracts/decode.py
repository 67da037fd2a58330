"""From stored bytes to blocks of whole lines in UTF-8: compression and kind by content, encoding by setting."""

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

PIECE = 1 << 20  # bytes read from a stream at once
BLOCK = 4 << 20  # bytes of a block of whole lines; with 5 MiB a tenth less CPU, and 40 MB more memory
UNREADABLE = b"\x00"  # replaces a line that is not in the encoding; no record can look like this
MARKS = "\ufdd0\ufdd1\ufdd2"  # an escaped quote, delimiter, NULL: no characters of any text
ESCAPED = {b'"': MARKS[0].encode(), b"N": MARKS[2].encode(), b"n": b" ", b"r": b" ", b"t": b" ", b"0": b""}
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
    (b"-----BEGIN PGP", "an OpenPGP message that was not decrypted"),
    (b"\x1f\x8b", "compressed twice"),
    (b"\x28\xb5\x2f\xfd", "compressed twice"),
)
HEAD = 4096  # bytes examined to recognise what an extract is
WEB_PAGE = re.compile(rb"(\xef\xbb\xbf)?\s*<(!doctype|html|\?xml|[a-z]+[ />])", re.IGNORECASE)
JSON = re.compile(rb"(\xef\xbb\xbf)?\s*(\[\s*)?[{\[]")
CONTROLS = bytes(code for code in range(32) if code not in b"\0\t\n\r\x1a")
UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class Readable(Protocol):
    """Anything bytes can be read from."""

    def read(self, size: int = -1, /) -> bytes:
        """Return up to `size` bytes, b'' at the end."""
        ...


def line_blocks(stream: Readable, encoding: str, name: str, size: int = BLOCK) -> Iterator[bytes]:
    """Yield whole lines, about `size` bytes at a time: decompressed, without BOM, UTF-16 as UTF-8; ExtractError."""
    plain = _sniffed(_inflated(iter(partial(stream.read, min(size, PIECE)), b""), name), encoding, name)
    if encoding == "utf-16":
        plain = _from_utf16(plain, name)
    return _whole_lines(plain, name, size)


def as_utf8(block: bytes, encoding: str, name: str, first_line: int) -> bytes:
    """Return a block as UTF-8, with UNREADABLE in place of each line that is not in `encoding`.

    In a one-byte encoding every line decodes, so there a line that is valid UTF-8 counts as wrong. Raises
    EncodingError if more than one line in a hundred is wrong: then the setting is.
    """
    if block.isascii() or encoding == "utf-16" or (encoding == "utf-8" and _is_utf8(block)):
        return block
    lines = block.split(b"\n")
    texts = [line if line.isascii() else _line_as_utf8(line, encoding) for line in lines]
    wrong = [at for at, text in enumerate(texts) if text == UNREADABLE]
    if len(wrong) > max(1, len(lines) // 100):
        found = f"{len(wrong)} of {len(lines)} lines are not, the first is line {first_line + wrong[0]}"
        raise EncodingError(name=name, encoding=encoding, problem=found)
    return b"\n".join(texts)


def without_escapes(block: bytes, delimiter: str) -> bytes:
    """Return a block without backslash escapes: quotes, delimiters and NULL as marks that no parser sees."""
    plain = ESCAPED | {delimiter.encode(): MARKS[1].encode()}
    return re.sub(rb"\\(.)", lambda found: plain.get(found[1], found[1]), block, flags=re.DOTALL)


def _line_as_utf8(line: bytes, encoding: str) -> bytes:
    if encoding == "utf-8":
        return line if decodes(line, encoding) else UNREADABLE
    if decodes(line, "utf-8") or not decodes(line, encoding):
        return UNREADABLE
    text = line.decode(encoding)
    return UNREADABLE if re.search("[\x80-\x9f]", text) else text.encode()  # C1 controls: the text is cp1252


def _is_utf8(block: bytes) -> bool:
    """Return whether a block is UTF-8, in an eighth of the time that `decode` takes to make a text of it."""
    with suppress(pl.exceptions.PolarsError):
        return not pl.Series([block], dtype=pl.Binary).cast(pl.String).is_empty()
    return False


def decodes(data: bytes, encoding: str) -> bool:
    """Return whether bytes are text in an encoding."""
    with suppress(UnicodeError):
        data.decode(encoding)
        return True
    return False


def _inflated(pieces: Iterator[bytes], name: str) -> Iterator[bytes]:
    head = _head(pieces, 4, name)
    pieces = chain([head], pieces)
    if head.startswith(b"\x1f\x8b"):
        return _gunzip(pieces, name)
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        return _unzstd(pieces, name)
    return pieces


def _head(pieces: Iterator[bytes], size: int, name: str) -> bytes:
    """Return the first `size` bytes or more, fewer only where there are no more; EmptyExtractError for none."""
    head = b""
    while len(head) < size and (piece := next(pieces, None)) is not None:
        head += piece
    if not head:
        raise EmptyExtractError(name=name, problem="it has no bytes")
    return head


def _gunzip(pieces: Iterator[bytes], name: str) -> Iterator[bytes]:
    inflate = zlib.decompressobj(wbits=31)
    for piece in pieces:
        rest = piece
        while rest:
            if inflate.eof:
                rest = rest.lstrip(b"\0")  # padding and further members are legal after a member
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
        for start in range(0, len(piece), 1024):  # 1 KiB expands to 32 MiB at most, which bounds memory
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
        pass  # our error is raised outside: the original message may quote the data
    raise TruncatedError(name=name, problem=f"its {kind} data is damaged")


def _sniffed(pieces: Iterator[bytes], encoding: str, name: str) -> Iterator[bytes]:
    head = _head(pieces, HEAD, name)
    utf16 = head.startswith(UTF16_MARKS) or _looks_utf16(head)
    if kind := other_kind(head, utf16):
        raise NotCsvError(name=name, kind=kind)
    if utf16 != (encoding == "utf-16"):
        raise EncodingError(name=name, encoding=encoding, problem="it is UTF-16" if utf16 else "it is not UTF-16")
    if head.startswith(codecs.BOM_UTF8) and encoding != "utf-8":
        raise EncodingError(name=name, encoding=encoding, problem="it begins with the byte order mark of UTF-8")
    return chain([head.removeprefix(codecs.BOM_UTF8)], pieces)


def other_kind(head: bytes, utf16: bool) -> str:
    """Return what the content is if it cannot be rows, else ''."""
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
    few, many = sorted((head[0:HEAD:2].count(0), head[1:HEAD:2].count(0)))
    pairs = len(head[1:HEAD:2])
    return pairs >= 4 and many * 10 > 9 * pairs > 20 * few


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
        pass  # our error is raised outside: the original holds the bytes
    raise EncodingError(
        name=name, encoding="utf-16", problem="it is damaged, or truncated in the middle of a character"
    )


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
