"""The partner's portal (interface.md 2.6, 2.7, 7, 8): takes an upload, makes links, gives a result file.

It knows the interface and nothing of the pipeline, so that what it books is an independent truth for tests.
"""

from __future__ import annotations

import calendar
import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import NamedTuple

from flows.core.cards import PUBLISHED
from flows.core.errors import CardlinkError, OperatorError
from flows.core.ports import Opener
from flows.simulator.chance import chance, token
from flows.simulator.error_shapes import SHAPES
from flows.simulator.validation import Fault, fault, faults
from schemas import portal as interface

RESULT_HEADER = ("cuid", "last_4", "url", "expiration_date", "error")
LIMIT = 1000
MAX_BYTES = 64 * 1024 * 1024
ARMOR = b"-----BEGIN PGP MESSAGE-----"
BOM = b"\xef\xbb\xbf"
OUTAGE = fault("cardholder.cuid", "unavailable", "could not be taken up, try again later")


class UploadRefusedError(OperatorError):
    """The portal takes nothing of a file."""

    says = "The portal refused {0}: {1}."
    then = "No link was made from it; mend the file and upload it again."

    def __init__(self, name: str, why: str) -> None:
        super().__init__(name, why)


class Booked(NamedTuple):
    """The truth about one uploaded row: a url, or faults."""

    row: int  # data row of the upload, from 1
    cuid: str
    last_4: str
    url: str | None
    expires: date | None
    faults: tuple[Fault, ...]


class Upload(NamedTuple):
    """One taken upload and the truth about its rows, in the upload's order."""

    name: str
    rows: tuple[Booked, ...]


class Portal:
    """A portal with one key, one template and a memory of every upload (`books`)."""

    def __init__(
        self,
        opener: Opener,
        *,
        today: date,
        host: str = "links.example.com",
        header: Sequence[str] | None = None,
        fail_share: float = 0.0,
        shuffle: bool = False,
        seed: int = 0,
        error_shape: str = "nested",
        date_form: str = "%Y-%m-%d",
    ) -> None:
        self.today = today
        self.books: list[Upload] = []
        self.seed = seed
        self._opener = opener
        self._host = host
        self._header = tuple(header or interface.columns())
        self._fail_share = fail_share
        self._shuffle = shuffle
        self._shapes = tuple(SHAPES) if error_shape == "mixed" else (error_shape,)
        self._date_form = date_form

    def upload(self, name: str, content: bytes) -> bytes:
        """Return the result CSV (interface.md 2.7) of an upload (2.6); UploadRefusedError takes nothing."""
        rows = self._rows(name, content)
        upload = Upload(name, tuple(self._book(name, rows)))
        self.books.append(upload)
        return self.result(upload.rows)

    def result(self, rows: Sequence[Booked]) -> bytes:
        """Return the result CSV of these booked rows."""
        if self._shuffle:
            rows = sorted(rows, key=lambda booked: chance(self.seed, "order", booked.cuid, booked.row))
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(RESULT_HEADER)
        writer.writerows(map(self._answer, rows))
        return out.getvalue().encode()

    def _answer(self, booked: Booked) -> tuple[str, ...]:
        if booked.url is None or booked.expires is None:
            shape = SHAPES[self._shapes[booked.row % len(self._shapes)]]
            return ("", "", "", "", shape(booked.cuid, booked.faults))
        return (booked.cuid, booked.last_4, booked.url, booked.expires.strftime(self._date_form), "")

    def _book(self, name: str, rows: Sequence[Mapping[str, str]]) -> Iterator[Booked]:
        expires = two_months_after(self.today)
        seen: set[str] = set()
        for number, fields in enumerate(rows, start=1):
            mark = token(self.seed, name, number)
            cuid = fields["cuid"] or f"made-{mark[:12]}"
            found = self._faults(fields, cuid in seen, chance(self.seed, name, number))
            seen.add(cuid)
            url = None if found else f"https://{self._host}/l/{mark}"
            yield Booked(number, cuid, fields["pan"][-4:], url, None if found else expires, found)

    def _faults(self, fields: Mapping[str, str], repeated: bool, luck: float) -> tuple[Fault, ...]:
        found = faults(fields, self.today)
        if repeated:
            found += (fault("cardholder.cuid", "duplicate", "stands in this file already"),)
        return found or ((OUTAGE,) if luck < self._fail_share else ())

    def _rows(self, name: str, content: bytes) -> list[dict[str, str]]:
        sealed = is_sealed(content)
        header, *records = self._records(name, self._open(name, content) if sealed else content)
        if tuple(header) != self._header:
            raise UploadRefusedError(name, "its header row is not the template's")
        if not 1 <= len(records) <= LIMIT:
            raise UploadRefusedError(name, f"{len(records)} cardholders, from 1 to {LIMIT} are allowed")
        ragged = [number for number, record in enumerate(records, start=1) if len(record) != len(header)]
        if ragged:
            raise UploadRefusedError(name, f"row {ragged[0]} does not have {len(header)} fields")
        short = [column.partition(".")[2] for column in header]
        rows = [dict(zip(short, record, strict=True)) for record in records]
        if not sealed and any(row["pan"] not in PUBLISHED for row in rows):
            raise UploadRefusedError(name, "it is not encrypted and holds other than published test cards")
        return rows

    def _open(self, name: str, content: bytes) -> bytes:
        try:
            return self._opener.open(content, MAX_BYTES)
        except CardlinkError:
            pass  # why it cannot be opened is not the uploader's to know
        raise UploadRefusedError(name, "it cannot be decrypted with the portal's key")

    def _records(self, name: str, content: bytes) -> list[list[str]]:
        why = "it is empty"
        try:
            text = content.decode("utf-8")
            records = list(csv.reader(io.StringIO(text, newline=""), strict=True))
            if records:
                return records
        except UnicodeDecodeError:
            why = "it is not UTF-8"
        except csv.Error:
            why = "it is not a CSV"
        raise UploadRefusedError(name, why)


def is_sealed(content: bytes) -> bool:
    """Say whether `content` looks like an OpenPGP message, armored or binary."""
    return content.startswith(ARMOR) or (content[:1] >= b"\x80" and not content.startswith(BOM))


def two_months_after(day: date) -> date:
    """Return the day a link made on `day` expires (interface.md 8): the last of a shorter month."""
    year, month = divmod(day.year * 12 + day.month - 1 + 2, 12)
    return date(year, month + 1, min(day.day, calendar.monthrange(year, month + 1)[1]))
