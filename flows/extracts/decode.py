"""From stored bytes to blocks of whole lines in UTF-8.

Compression and kind are recognised by content; the encoding is a setting.

The encoding is never guessed from the data. Up to 1 % of the lines of a block that cannot be
decoded are rejected one by one; more of them refuse the extract. In cp1252 and latin-1 a line that
is valid UTF-8 counts as wrong, so that no name is garbled in silence.
"""

import codecs
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, Protocol

import polars as pl
import zstandard

from flows.extracts.errors import EmptyExtractError, EncodingError, NotCsvError, TruncatedError
from flows.extracts.zipped import ZIP, unzipped

PIECE = 1 << 20  # bytes read from a stream at once
# bytes of a block of whole lines; with 6 MiB no less CPU, and 40 MB more memory
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


class Packing(NamedTuple):
    """How data is compressed."""

    name: str
    decompressor: Callable[[], Any]
    step: int  # bytes given to a decompressor at once


ZSTD = zstandard.ZstdDecompressor(max_window_size=1 << 27)
# By the first bytes; none of the bytes given at once makes more than 32 MiB.
PACKED = {
    b"\x1f\x8b": Packing("gzip", partial(zlib.decompressobj, wbits=31), 1 << 14),
    b"\x28\xb5\x2f\xfd": Packing("zstd", ZSTD.decompressobj, 1 << 10),
}
HEAD = 4096  # bytes examined to recognise what an extract is
CONTROLS = bytes(code for code in range(32) if code not in b"\0\t\n\r\x1a")
EBCDIC_BLANK = 0x40
# bytes of ordinary text: blank, letters and digits
EBCDIC_USUAL = frozenset(
    bytes.fromhex(
        "40 818283848586878889 919293949596979899 a2a3a4a5a6a7a8a9"
        " c1c2c3c4c5c6c7c8c9 d1d2d3d4d5d6d7d8d9 e2e3e4e5e6e7e8e9 f0f1f2f3f4f5f6f7f8f9"
    )
)
UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class Readable(Protocol):
    """Anything bytes can be read from."""

    def read(self, size: int = -1, /) -> bytes:
        """Return up to `size` bytes, b'' at the end."""
        ...


def line_blocks(stream: Readable, encoding: str, name: str, size: int = BLOCK) -> Iterator[bytes]:
    """Yield whole lines, about `size` bytes at a time.

    They are decompressed, without byte order mark, and UTF-16 is UTF-8. Raises ExtractError.
    """
    stored = iter(partial(stream.read, min(size, PIECE)), b"")
    plain = _sniffed(inflated(stored, name), encoding, name)
    if encoding == "utf-16":
        plain = _from_utf16(plain, name)
    return _ended_once(_whole_lines(plain, name, size))


def recognised(pieces: Iterator[bytes], name: str, size: int) -> Iterator[bytes]:
    """Yield whole lines of UTF-8; NotCsvError where they do not begin as rows do."""
    return _whole_lines(_sniffed(pieces, "utf-8", name), name, size)


def as_utf8(block: bytes, encoding: str, name: str, first_line: int) -> bytes:
    """Return a block as UTF-8, with UNREADABLE in place of each line that is not in `encoding`.

    In a one-byte encoding every line decodes, so there a line that is valid UTF-8 counts as wrong.
    Raises EncodingError if more than one line in a hundred is wrong: then the setting is.
    """
    if block.isascii() or encoding == "utf-16" or (encoding == "utf-8" and decodes(block, "utf-8")):
        return block
    lines = block.split(b"\n")
    texts = [line if line.isascii() else _line_as_utf8(line, encoding) for line in lines]
    wrong = texts.count(UNREADABLE)
    if wrong > max(1, len(lines) // 100):
        first_wrong = first_line + texts.index(UNREADABLE)
        problem = f"{wrong} of {len(lines)} lines are not, the first is line {first_wrong}"
        raise EncodingError(name=name, encoding=encoding, problem=problem)
    return b"\n".join(texts)


def without_escapes(block: bytes, delimiter: str) -> bytes:
    """Return a block without backslash escapes.

    Quotes, delimiters and NULL become marks that no parser sees.
    """
    plain = ESCAPED | {delimiter.encode(): MARKS[1].encode()}

    def unescaped(escape: re.Match[bytes]) -> bytes:
        return plain.get(escape[1], escape[1])

    return re.sub(rb"\\(.)", unescaped, block, flags=re.DOTALL)


def _line_as_utf8(line: bytes, encoding: str) -> bytes:
    if not decodes(line, encoding):
        return UNREADABLE
    if encoding == "utf-8":
        return line
    text = line.decode(encoding)
    # a control character of C1 shows that it is cp1252
    if decodes(line, "utf-8") or re.search("[\x80-\x9f]", text):
        return UNREADABLE
    return text.encode()


def decodes(data: bytes, encoding: str) -> bool:
    """Return whether bytes are text in an encoding."""
    with suppress(UnicodeError, pl.exceptions.PolarsError):
        # in an eighth of the time that `decode` takes to make a text
        if len(data) > PIECE and encoding == "utf-8":
            return not pl.Series([data], dtype=pl.Binary).cast(pl.String).is_empty()
        data.decode(encoding)
        return True
    return False


class _Inflater:
    """Decompresses what is fed to it, in any number of members or frames."""

    def __init__(self, packing: Packing) -> None:
        self._new_member = packing.decompressor
        self._member = self._new_member()

    @property
    def at_end(self) -> bool:
        """Whether the last member is complete."""
        return bool(self._member.eof)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield what these bytes hold."""
        while data:
            if self._member.eof:
                data = data.lstrip(b"\0")  # padding is legal after a member
                if not data:
                    return
                self._member = self._new_member()
            yield self._member.decompress(data)
            if not self._member.eof:
                return
            data = self._member.unused_data


def inflated(pieces: Iterator[bytes], name: str) -> Iterator[bytes]:
    """Yield what the first bytes say is compressed as it was before; anything else as it is."""
    head = _head(pieces, 4, name)
    pieces = chain([head], pieces)
    if head.startswith(ZIP):
        yield from unzipped(pieces, name)
        return
    packing = next((PACKED[marker] for marker in PACKED if head.startswith(marker)), None)
    if packing is None:
        yield from pieces
        return
    inflater = _Inflater(packing)
    problem = "cut off"
    try:
        for piece in pieces:
            for start in range(0, len(piece), packing.step):
                yield from inflater.feed(piece[start : start + packing.step])
        if inflater.at_end:
            return
    except (zlib.error, zstandard.ZstdError):
        # our error is raised outside: the original message may quote the data
        problem = "damaged"
    raise TruncatedError(name=name, problem=f"its {packing.name} data is {problem}")


def _head(pieces: Iterator[bytes], size: int, name: str) -> bytes:
    """Return the first `size` bytes or more, fewer only where there are no more.

    Raises EmptyExtractError if there are none.
    """
    head = b""
    while len(head) < size and (piece := next(pieces, None)) is not None:
        head += piece
    if not head:
        raise EmptyExtractError(name=name, problem="it has no bytes")
    return head


def _sniffed(pieces: Iterator[bytes], encoding: str, name: str) -> Iterator[bytes]:
    """Return the pieces without byte order mark.

    NotCsvError and EncodingError if they do not begin as rows in this encoding do.
    """
    head = _head(pieces, HEAD, name)
    is_utf16 = head.startswith(UTF16_MARKS) or _looks_utf16(head)
    if not is_utf16 and looks_ebcdic(head[:HEAD]):  # a whole piece takes a tenth of a second
        problem = (
            "it looks like EBCDIC, as a mainframe writes it: name its code page in `encoding`, and "
            "where it has no line ends, its `record_format` and `copybook`"
        )
        raise EncodingError(name=name, encoding=encoding, problem=problem)
    kind = other_kind(head, is_utf16)
    if kind:
        raise NotCsvError(name=name, kind=kind)
    problem = ""
    if is_utf16 != (encoding == "utf-16"):
        problem = "it is UTF-16" if is_utf16 else "it is not UTF-16"
    elif head.startswith(codecs.BOM_UTF8) and encoding != "utf-8":
        problem = "it begins with the byte order mark of UTF-8"
    if problem:
        raise EncodingError(name=name, encoding=encoding, problem=problem)
    return chain([head.removeprefix(codecs.BOM_UTF8)], pieces)


def other_kind(head: bytes, utf16: bool) -> str:
    """Return what the content is if it cannot be rows, else ''."""
    start = head.removeprefix(codecs.BOM_UTF8)
    for shape, kind in KINDS.items():
        if re.match(shape, start):
            return kind
    controls = len(head) - len(head.translate(None, CONTROLS))
    return "binary data" if controls * 20 > len(head) and not utf16 else ""


def looks_ebcdic(head: bytes) -> bool:
    """Return whether bytes are EBCDIC text rather than ASCII, packed decimals between it or not."""
    usual = sum(byte in EBCDIC_USUAL for byte in head)
    as_ascii = sum(0x20 <= byte < 0x7F and byte != EBCDIC_BLANK for byte in head)
    has_blanks = head.count(EBCDIC_BLANK) > head.count(b" ")
    return len(head) >= 40 and has_blanks and usual > 0.5 * len(head) and usual > 2 * as_ascii


def _looks_utf16(head: bytes) -> bool:
    """Return whether nearly every second byte is zero, as in UTF-16 of Latin text."""
    few, many = sorted((head[0:HEAD:2].count(0), head[1:HEAD:2].count(0)))
    pairs = len(head[1:HEAD:2])
    return pairs >= 4 and many * 10 > 9 * pairs > 20 * few


def _from_utf16(pieces: Iterator[bytes], name: str) -> Iterator[bytes]:
    first = next(pieces, b"")
    if first.startswith(UTF16_MARKS):
        form = "utf-16"
    elif first[:1] == b"\0":
        form = "utf-16-be"
    else:
        form = "utf-16-le"
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
        if b"\n" not in piece:  # a line longer than a piece
            held = [b"".join(held)]
        end = held[-1].rfind(b"\n") + 1
        unfinished = held[-1][end:]
        if len(unfinished) > LONGEST_LINE:
            raise NotCsvError(name=name, kind=f"without a line end for {len(unfinished)} bytes")
        if end:
            held[-1] = held[-1][:end]
            yield b"".join(held)
        held = [unfinished]
        length = len(unfinished)
    if length:
        yield b"".join(held)


def _ended_once(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield blocks of lines; ends CR CR LF, of text that was written as text twice, become LF."""
    first = next(blocks, b"")
    if b"\r\r\n" in first[:HEAD]:
        yield from (block.replace(b"\r\r\n", b"\n") for block in chain([first], blocks))
        return
    yield first
    del first  # free it before the next is read
    yield from blocks
