"""Packs bytes the ways a night could: what the scanner's self-test plants its secrets in."""

from __future__ import annotations

import base64
import bz2
import gzip
import lzma
import pickle
import sqlite3
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import polars as pl
import zstandard

Pack = Callable[[bytes], bytes]


def _zipped(name: str) -> Pack:
    def pack(data: bytes) -> bytes:
        out = BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("[Content_Types].xml", "<Types/>")
            archive.writestr(name, data)
        return out.getvalue()

    return pack


def _tar(data: bytes) -> bytes:
    out = BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        info = tarfile.TarInfo("member")
        info.size = len(data)
        archive.addfile(info, BytesIO(data))
    return out.getvalue()


def _parquet(data: bytes) -> bytes:
    out = BytesIO()
    pl.DataFrame({"cell": [b"", data]}).write_parquet(out, compression="zstd", statistics=False)
    return out.getvalue()


def _arrow(data: bytes) -> bytes:
    out = BytesIO()
    pl.DataFrame({"cell": [b"", data]}).write_ipc(out, compression="zstd")
    return out.getvalue()


def _arrow_stream(data: bytes) -> bytes:
    out = BytesIO()
    pl.DataFrame({"cell": [b"", data]}).write_ipc_stream(out, compression="lz4")
    return out.getvalue()


def _sqlite(data: bytes) -> bytes:
    """Lay the data behind a page and a half of others, so that it may be cut by a page's end."""
    with TemporaryDirectory() as folder:
        connection = sqlite3.connect(Path(folder) / "a.db")
        with connection:
            connection.execute('create table "kept ""things""" (other blob, cell blob)')
            connection.execute('insert into "kept ""things""" values (?, ?)', (bytes(6100), data))
        connection.close()
        return (Path(folder) / "a.db").read_bytes()


def with_log(data: bytes) -> tuple[bytes, bytes]:
    """Return a SQLite database and its -wal, which alone holds the data."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "a.db"
        connection = sqlite3.connect(file)
        connection.execute("pragma journal_mode = wal")
        with connection:
            connection.execute("create table kept (cell blob)")
            connection.execute("insert into kept values (?)", (data,))
        found = file.read_bytes(), file.with_name("a.db-wal").read_bytes()
        connection.close()
        return found


def _cut_gzip(data: bytes) -> bytes:
    return gzip.compress(data)[:-4]


PACKS: Final[Mapping[str, Pack]] = {
    "nothing": bytes,
    "gz": gzip.compress,
    "gz, two members": lambda data: gzip.compress(b"first") + gzip.compress(data),
    "gz, cut": _cut_gzip,
    "zlib": zlib.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstandard.ZstdCompressor().compress,
    "zip": _zipped("some/file"),
    "xlsx": _zipped("xl/worksheets/sheet1.xml"),
    "tar": _tar,
    "parquet": _parquet,
    "arrow": _arrow,
    "arrow stream": _arrow_stream,
    "sqlite": _sqlite,
    "pickle": lambda data: pickle.dumps({"exception": (ValueError(data), [data])}),
    "base64": base64.b64encode,
    "base64 in lines": base64.encodebytes,
    "base64 in a JSON text": lambda data: b'{"result": "%s"}' % base64.encodebytes(data).replace(b"\n", b"\\n"),
    "hex": lambda data: data.hex().encode(),
}
