"""Reads an uploaded bulk file as the portal does (interface.md 2.6): opens it, and takes its rows.

It knows the interface and nothing of the pipeline.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from flows.errors import CardlinkError, OperatorError
from flows.runs.sealing import Opener
from schemas.expressions import PUBLISHED

LIMIT = 1000
MAX_BYTES = 64 * 1024 * 1024
ARMOR = b"-----BEGIN PGP MESSAGE-----"
BOM = b"\xef\xbb\xbf"
_IN_THE_CLEAR = frozenset(("", *PUBLISHED))  # an empty number is a fault of its row alone


class UploadRefusedError(OperatorError):
    """The portal refuses a whole file."""

    message = "The portal refused {name}: {reason}."
    next_step = "No link was made from it; correct the file and upload it again."


def read_upload(
    opener: Opener, header: Sequence[str], name: str, content: bytes
) -> list[dict[str, str]]:
    """Return the rows of an upload, their fields without prefix (`pan`); UploadRefusedError."""
    sealed = is_sealed(content)
    if sealed:
        content = _opened(opener, name, content)
    text = _decoded(name, content)
    if text.partition("\n")[0].removesuffix("\r") != ",".join(header):
        raise UploadRefusedError(name=name, reason="its header row is not the template's")
    columns, *records = _records(name, text)
    _refuse_misshapen(name, columns, records)
    fields = [column.partition(".")[2] for column in columns]
    rows = [dict(zip(fields, record, strict=True)) for record in records]
    if not sealed and any(row["pan"] not in _IN_THE_CLEAR for row in rows):
        raise UploadRefusedError(
            name=name, reason="it is not encrypted and holds other than published test cards"
        )
    return rows


def is_sealed(content: bytes) -> bool:
    """Return whether `content` looks like an OpenPGP message, armored or binary."""
    return content.startswith(ARMOR) or (content[:1] >= b"\x80" and not content.startswith(BOM))


def _refuse_misshapen(name: str, columns: Sequence[str], records: Sequence[Sequence[str]]) -> None:
    if not 1 <= len(records) <= LIMIT:
        raise UploadRefusedError(
            name=name, reason=f"{len(records)} cardholders, from 1 to {LIMIT} are allowed"
        )
    for number, record in enumerate(records, start=1):
        if len(record) != len(columns):
            raise UploadRefusedError(
                name=name, reason=f"row {number} does not have {len(columns)} fields"
            )


def _opened(opener: Opener, name: str, content: bytes) -> bytes:
    try:
        return opener.open(content, MAX_BYTES)
    except CardlinkError:
        pass  # why it cannot be opened is not the uploader's to know
    raise UploadRefusedError(name=name, reason="it cannot be decrypted with the portal's key")


def _decoded(name: str, content: bytes) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        pass  # its text holds the bytes around the mistake
    raise UploadRefusedError(name=name, reason="it is not UTF-8")


def _records(name: str, text: str) -> list[list[str]]:
    try:
        return list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except csv.Error:
        pass
    raise UploadRefusedError(name=name, reason="it is not a CSV")
