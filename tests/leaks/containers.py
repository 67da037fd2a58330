"""Opens what bytes can be packed in: archives, compression, tables, databases, pickles, base64;
nested at will.

Everything is tried by its magic and nothing is believed: what does not open is left as the bytes it
is.
"""

from __future__ import annotations

import binascii
import bz2
import lzma
import pickletools
import re
import sqlite3
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import polars as pl
import zstandard

LARGEST = 256 << 20  # bytes one container may open up to


class Part(NamedTuple):
    """Something that was inside: where, and its bytes."""

    place: str
    data: bytes


def parts(data: bytes, log: bytes = b"") -> Iterator[Part]:
    """Yield what one container holds, nothing where it is none; `log` is the -wal of a SQLite
    database.
    """
    for kind, begins, opened in _KINDS:
        if begins(data):
            try:
                yield from (Part(f"{kind}:{name}", content) for name, content in opened(data))
            except _BROKEN:
                continue
    if data.startswith(b"SQLite format 3\0"):
        yield from (Part(f"sqlite:{name}", content) for name, content in _database(data, log))
    yield from (Part("base64", content) for content in _encoded(data))


_BROKEN = (
    OSError,
    EOFError,
    ValueError,
    IndexError,
    KeyError,
    NotImplementedError,
    RuntimeError,
    zlib.error,
    lzma.LZMAError,
    zipfile.BadZipFile,
    tarfile.TarError,
    zstandard.ZstdError,
    pl.exceptions.PolarsError,
    sqlite3.Error,
)

Named = Iterator[tuple[str, bytes]]


def _starts(*magics: bytes) -> Callable[[bytes], bool]:
    return lambda data: data.startswith(magics)


def _gzip(data: bytes) -> Named:
    """Yield every member, a cut one as far as it goes."""
    while data[:2] == b"\x1f\x8b":
        opener = zlib.decompressobj(wbits=31)
        yield "", opener.decompress(data, LARGEST)
        data = opener.unused_data


def _zlib(data: bytes) -> Named:
    yield "", zlib.decompressobj().decompress(data, LARGEST)


def _openpgp(data: bytes) -> Named:
    """Yield the content of every deflated packet, wherever one begins: a chunk before it is
    sealed.
    """
    for found in _DEFLATED_PACKET.finditer(data):
        with suppress(zlib.error):
            literal = zlib.decompressobj(wbits=-15).decompress(data[found.end() :], LARGEST)
            yield "header", literal[:300]
            yield "", literal[12 + literal[7] :]  # behind two headers, a name and a date (5.9)


def _bz2(data: bytes) -> Named:
    yield "", bz2.BZ2Decompressor().decompress(data, LARGEST)


def _xz(data: bytes) -> Named:
    yield "", lzma.LZMADecompressor().decompress(data, LARGEST)


def _zstd(data: bytes) -> Named:
    yield "", zstandard.ZstdDecompressor().stream_reader(data).read(LARGEST)


def _zip(data: bytes) -> Named:
    with zipfile.ZipFile(BytesIO(data)) as archive:
        yield "comment", archive.comment
        for info in archive.infolist():
            yield "name", info.filename.encode()
            yield "extra", info.extra + info.comment
            with archive.open(info) as member:
                yield info.filename, member.read(LARGEST)


def _tar(data: bytes) -> Named:
    with tarfile.open(fileobj=BytesIO(data), mode="r:") as archive:
        for info in archive:
            yield "name", f"{info.name} {info.linkname} {info.uname} {info.pax_headers}".encode()
            member = archive.extractfile(info)
            if member is not None:
                yield info.name, member.read(LARGEST)


def _parquet(data: bytes) -> Named:
    yield from _frame(pl.read_parquet(BytesIO(data)))


def _arrow(data: bytes) -> Named:
    yield from _frame(pl.read_ipc(BytesIO(data)))


def _arrow_stream(data: bytes) -> Named:
    yield from _frame(pl.read_ipc_stream(BytesIO(data)))


def _frame(frame: pl.DataFrame) -> Named:
    for name, column in zip(frame.columns, frame, strict=True):
        yield "column", name.encode()
        cells = [_cell(value) for value in column.to_list()]
        yield name, b"\n".join(cells)
        if column.dtype == pl.Binary:
            yield from ((name, cell) for cell in cells)


def _pickle(data: bytes) -> Named:
    """Yield the arguments of a pickle's instructions; nothing in it is run."""
    for _, argument, _ in pickletools.genops(data):
        if argument is not None:
            yield "", _cell(argument)


def _database(data: bytes, log: bytes) -> Named:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "copy.db"
        # without its log: no log expected
        file.write_bytes(data if log else data[:18] + b"\1\1" + data[20:])
        if log:
            (Path(folder) / "copy.db-wal").write_bytes(log)
        connection = sqlite3.connect(file)
        connection.text_factory = bytes
        try:
            for (table,) in connection.execute(
                "select name from sqlite_master where type = 'table'"
            ).fetchall():
                name = table.decode().replace('"', '""')
                for row in connection.execute(f'select * from "{name}"'):
                    yield from ((name, _cell(value)) for value in row)
        except sqlite3.Error:  # an index we lack the extension for, or a torn page
            pass
        finally:
            connection.close()


def _cell(value: object) -> bytes:
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    return str(value).encode("utf-8", "surrogatepass")


# RFC 4880 4.2.2.3, 5.6, below 256 MB
_DEFLATED_PACKET = re.compile(rb"\xc8\xff[\x00-\x0f].{3}\x01", re.DOTALL)
_BASE64 = re.compile(rb"[A-Za-z0-9+/_-]{24,}(?:(?:\\r|\\n|[\r\n])+[A-Za-z0-9+/_-]{2,})*={0,2}")
_HEX = re.compile(rb"(?:[0-9A-Fa-f]{2}[ :]?){24,}")
_BREAKS = re.compile(rb"\\r|\\n|[\r\n]")
_STANDARD = bytes.maketrans(b"-_", b"+/")


def _encoded(data: bytes) -> Iterator[bytes]:
    """Yield what long runs of base64 and hex stand for, lines joined."""
    for found in _BASE64.finditer(data):
        text = _BREAKS.sub(b"", found[0]).rstrip(b"=").translate(_STANDARD)
        yield binascii.a2b_base64(text[: len(text) - (len(text) % 4 == 1)] + b"==")
    for found in _HEX.finditer(data):
        digits = re.sub(rb"[ :]", b"", found[0])
        yield bytes.fromhex(digits[: len(digits) // 2 * 2].decode())


_KINDS: tuple[tuple[str, Callable[[bytes], bool], Callable[[bytes], Named]], ...] = (
    ("gzip", _starts(b"\x1f\x8b"), _gzip),
    ("zlib", _starts(b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda"), _zlib),
    ("openpgp", lambda data: b"\xc8\xff" in data, _openpgp),
    ("bzip2", _starts(b"BZh"), _bz2),
    ("xz", _starts(b"\xfd7zXZ\0"), _xz),
    ("zstd", _starts(b"\x28\xb5\x2f\xfd"), _zstd),
    ("zip", _starts(b"PK\x03\x04", b"PK\x05\x06"), _zip),
    ("tar", lambda data: data[257:262] == b"ustar", _tar),
    ("parquet", _starts(b"PAR1"), _parquet),
    ("arrow", _starts(b"ARROW1"), _arrow),
    ("arrow stream", _starts(b"\xff\xff\xff\xff"), _arrow_stream),
    ("pickle", _starts(b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"), _pickle),
)
