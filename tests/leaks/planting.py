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
from random import Random
from tempfile import TemporaryDirectory
from typing import Final

import polars as pl
import zstandard

from flows.runs.openpgp import content
from flows.runs.sealing import Plain
from tests.leaks.forms import Form, of_card, of_cvv
from tests.leaks.scanner import Scanner

CARD, CVV = "5555555555554444", "731"
FORMS: Final = (*of_card(CARD), *of_cvv(CVV))
NOISE: Final = Random(5).randbytes(40)
Pack = Callable[[bytes], bytes]


def scanner() -> Scanner:
    """Return a scanner for the card and the CVV that are planted."""
    return Scanner([CARD], [CVV])


def soil(form: Form) -> bytes:
    """Return a form of a secret with other bytes around it."""
    return b"before " + NOISE + b" " + form.data + b" " + NOISE + b" after"


def missed(pack: Pack) -> list[str]:
    """Return the forms that are not found once packed so."""
    looking = scanner()
    return [form.name for form in FORMS if not looking.scan("planted", pack(soil(form)))]


def planted_and_found() -> tuple[int, int]:
    """Plant every form in every container; return how many were planted and how many of them were
    found.
    """
    planted = len(FORMS) * len(PACKS)
    return planted, planted - sum(len(missed(pack)) for pack in PACKS.values())


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
    "deflated packet": lambda data: b"".join(
        (b"before", content(Plain("chunk.csv", data), "zip").data, b"after")
    ),
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
    "base64 in a JSON text": lambda data: (
        b'{"result": "%s"}' % base64.encodebytes(data).replace(b"\n", b"\\n")
    ),
    "hex": lambda data: data.hex().encode(),
}
