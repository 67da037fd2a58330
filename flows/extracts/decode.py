"""From stored bytes to blocks of whole lines in UTF-8: compression and kind by content, encoding by
setting.
"""

import codecs
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any, Protocol

import polars as pl
import zstandard

from flows.extracts.errors import EmptyExtractError, EncodingError, NotCsvError, TruncatedError

PIECE = 1 << 20  # bytes read from a stream at once
# bytes of a block of whole lines; with 5 MiB a tenth less CPU, and 40 MB more memory
BLOCK = 4 << 20
UNREADABLE = b"\x00"  # replaces a line that is not in the encoding; no record can look like this
MARKS = "\ufdd0\ufdd1\ufdd2"  # an escaped quote, delimiter, NULL: no characters of any text
ESCAPED = {
    b'"': MARKS[0].encode(),
    b"N": MARKS[2].encode(),
    b"n": b" ",
    b"r": b" ",
    b"t": b" ",
    b"0": b"",
}
LONGEST_LINE = 1 << 20  # bytes; a longer "line" is another kind of file
KINDS = {  # by the beginning, after the mark of UTF-8
    rb"PK\x03\x04": "a ZIP archive or an Excel workbook",
    rb"\xd0\xcf\x11\xe0": "an old Excel workbook",
    rb"%PDF": "a PDF",
    rb"PAR1": "a Parquet file",
    rb"BZh": "bzip2 data",
    rb"\xfd7zXZ": "xz data",
    rb"7z\xbc\xaf": "a 7-Zip archive",
    rb"SQLite format 3": "a SQLite database",
    rb"-----BEGIN PGP": "an OpenPGP message that was not decrypted",
    rb"\x1f\x8b|\x28\xb5\x2f\xfd": "compressed twice",
    rb"(?i)\s*<(!doctype|html|\?xml|[a-z]+[ />])": "a web page or XML",
    rb"\s*(\[\s*)?[{\[]": "JSON",
}
# By the first bytes: what it is, a decompressor, and bytes given to it at once, of which none makes
# more than 32 MiB.
PACKED: dict[bytes, tuple[str, Callable[[], Any] | None, int]] = {
    b"\x1f\x8b": ("gzip", partial(zlib.decompressobj, wbits=31), 1 << 14),
    b"\x28\xb5\x2f\xfd": (
        "zstd",
        zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj,
        1 << 10,
    ),
}
HEAD = 4096  # bytes examined to recognise what an extract is
CONTROLS = bytes(code for code in range(32) if code not in b"\0\t\n\r\x1a")
UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class Readable(Protocol):
    """Anything bytes can be read from."""

    def read(self, size: int = -1, /) -> bytes:
        """Return up to `size` bytes, b'' at the end."""
        ...


def line_blocks(stream: Readable, encoding: str, name: str, size: int = BLOCK) -> Iterator[bytes]:
    """Yield whole lines, about `size` bytes at a time: decompressed, without BOM, UTF-16 as UTF-8;
    ExtractError.
    """
    plain = _sniffed(
        _inflated(iter(partial(stream.read, min(size, PIECE)), b""), name), encoding, name
    )
    if encoding == "utf-16":
        plain = _from_utf16(plain, name)
    return _whole_lines(plain, name, size)


def as_utf8(block: bytes, encoding: str, name: str, first_line: int) -> bytes:
    """Return a block as UTF-8, with UNREADABLE in place of each line that is not in `encoding`.

    In a one-byte encoding every line decodes, so there a line that is valid UTF-8 counts as wrong.
    Raises EncodingError if more than one line in a hundred is wrong: then the setting is.
    """
    if block.isascii() or encoding == "utf-16" or (encoding == "utf-8" and decodes(block, "utf-8")):
        return block
    lines = block.split(b"\n")
    texts = [line if line.isascii() else _line_as_utf8(line, encoding) for line in lines]
    wrong = [at for at, text in enumerate(texts) if text == UNREADABLE]
    if len(wrong) > max(1, len(lines) // 100):
        found = (
            f"{len(wrong)} of {len(lines)} lines are not, the first is line {first_line + wrong[0]}"
        )
        raise EncodingError(name=name, encoding=encoding, problem=found)
    return b"\n".join(texts)


def without_escapes(block: bytes, delimiter: str) -> bytes:
    """Return a block without backslash escapes: quotes, delimiters and NULL as marks that no parser
    sees.
    """
    plain = ESCAPED | {delimiter.encode(): MARKS[1].encode()}
    return re.sub(rb"\\(.)", lambda found: plain.get(found[1], found[1]), block, flags=re.DOTALL)


def _line_as_utf8(line: bytes, encoding: str) -> bytes:
    if not decodes(line, encoding) or (encoding != "utf-8" and decodes(line, "utf-8")):
        return UNREADABLE
    text = line.decode(encoding)
    # a control character of C1 shows that it is cp1252
    return UNREADABLE if encoding != "utf-8" and re.search("[\x80-\x9f]", text) else text.encode()


def decodes(data: bytes, encoding: str) -> bool:
    """Return whether bytes are text in an encoding."""
    with suppress(UnicodeError, pl.exceptions.PolarsError):
        # in an eighth of the time that `decode` takes to make a text
        if len(data) > PIECE and encoding == "utf-8":
            return not pl.Series([data], dtype=pl.Binary).cast(pl.String).is_empty()
        data.decode(encoding)
        return True
    return False


def _inflated(pieces: Iterator[bytes], name: str) -> Iterator[bytes]:
    """Yield what the first bytes say is compressed, in any number of members or frames, as it was
    before.
    """
    head = _head(pieces, 4, name)
    kind, start, size = next(
        (how for marker, how in PACKED.items() if head.startswith(marker)), ("", None, 0)
    )
    pieces = chain([head], pieces)
    if start is None:
        yield from pieces
        return
    inflate, problem = start(), "cut off"
    try:
        for piece in pieces:
            for rest in (piece[at : at + size] for at in range(0, len(piece), size)):
                # padding is legal after a member
                while rest := rest.lstrip(b"\0") if inflate.eof else rest:
                    inflate = start() if inflate.eof else inflate
                    yield inflate.decompress(rest)
                    rest = inflate.unused_data if inflate.eof else b""
        if inflate.eof:
            return
    except (
        zlib.error,
        zstandard.ZstdError,
    ):  # our error is raised outside: the original message may quote the data
        problem = "damaged"
    raise TruncatedError(name=name, problem=f"its {kind} data is {problem}")


def _head(pieces: Iterator[bytes], size: int, name: str) -> bytes:
    """Return the first `size` bytes or more, fewer only where there are no more; EmptyExtractError
    for none.
    """
    head = b""
    while len(head) < size and (piece := next(pieces, None)) is not None:
        head += piece
    if not head:
        raise EmptyExtractError(name=name, problem="it has no bytes")
    return head


def _sniffed(pieces: Iterator[bytes], encoding: str, name: str) -> Iterator[bytes]:
    head = _head(pieces, HEAD, name)
    utf16 = head.startswith(UTF16_MARKS) or _looks_utf16(head)
    if kind := other_kind(head, utf16):
        raise NotCsvError(name=name, kind=kind)
    if utf16 != (encoding == "utf-16"):
        raise EncodingError(
            name=name, encoding=encoding, problem="it is UTF-16" if utf16 else "it is not UTF-16"
        )
    if head.startswith(codecs.BOM_UTF8) and encoding != "utf-8":
        raise EncodingError(
            name=name, encoding=encoding, problem="it begins with the byte order mark of UTF-8"
        )
    return chain([head.removeprefix(codecs.BOM_UTF8)], pieces)


def other_kind(head: bytes, utf16: bool) -> str:
    """Return what the content is if it cannot be rows, else ''."""
    start = head.removeprefix(codecs.BOM_UTF8)
    if kind := next((kind for shape, kind in KINDS.items() if re.match(shape, start)), ""):
        return kind
    controls = len(head) - len(head.translate(None, CONTROLS))
    return "binary data" if controls * 20 > len(head) and not utf16 else ""


def _looks_utf16(head: bytes) -> bool:
    """Return whether nearly every second byte is zero, as in UTF-16 of Latin text."""
    few, many = sorted((head[0:HEAD:2].count(0), head[1:HEAD:2].count(0)))
    pairs = len(head[1:HEAD:2])
    return pairs >= 4 and many * 10 > 9 * pairs > 20 * few


def _from_utf16(pieces: Iterator[bytes], name: str) -> Iterator[bytes]:
    first = next(pieces, b"")
    form = (
        "utf-16"
        if first.startswith(UTF16_MARKS)
        else "utf-16-be"
        if first[:1] == b"\0"
        else "utf-16-le"
    )
    try:
        yield from (text.encode() for text in codecs.iterdecode(chain([first], pieces), form))
        return
    except UnicodeError:
        pass  # our error is raised outside: the original holds the bytes
    problem = "it is damaged, or truncated in the middle of a character"
    raise EncodingError(name=name, encoding="utf-16", problem=problem)


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
