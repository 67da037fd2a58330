"""The partner's portal (interface.md 2.6, 2.7, 7, 8): takes uploads, makes links, gives results.

It knows the interface and nothing of the pipeline, so that what it books is an independent truth
for tests.
"""

from __future__ import annotations

import base64
import calendar
import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from hashlib import sha256
from typing import NamedTuple

from flows.extensions.simulator.chance import chance, token
from flows.extensions.simulator.error_shapes import SHAPES
from flows.extensions.simulator.link_styles import STYLES, USUAL
from flows.extensions.simulator.uploads import read_upload
from flows.extensions.simulator.validation import Fault, fault, faults
from flows.runs.sealing import Opener
from schemas import portal as interface

RESULT_HEADER = ("cuid", "last_4", "url", "expiration_date", "error")
# what partners of this kind write in expiration_date
DATE_FORMS: dict[str, Callable[[date], str]] = {
    "iso": date.isoformat,
    "timestamp": "{:%Y-%m-%dT00:00:00.000Z}".format,
    "us": "{:%m/%d/%Y}".format,
    "epoch": lambda day: str(calendar.timegm(day.timetuple()) * 1000),
}
ONLY_THE_PARTNER_KNOWS = (  # what no check of ours can detect
    fault("cardholder.cuid", "unavailable", "could not be taken up, try again later"),
    fault("pan", "unsupported", "belongs to a card product that is not enabled"),
    fault("address.postal_code", "undeliverable", "is not known to the postal service"),
)


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


class Behaviour(NamedTuple):
    """How a portal answers; the same seed gives the same answers."""

    fail_share: float = 0.0  # of the rows, for reasons only the partner knows
    shuffle: bool = False  # rows come in another order than sent
    seed: int = 0
    links: str = USUAL  # what links look like: one of STYLES


class Portal:
    """A portal with one key, one template and a memory of every upload (`books`).

    Cards are judged by `today`, which may be moved on; links end two months after it, or on the day
    `expires`, and are of the style `links`. An upload may bring a behaviour of its own. `on_link`
    is told cuid, URL, last day and fields (`pan`, `address.city`) of every link as it is made.
    """

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
        date_form: str = "iso",
        expires: date | None = None,
        links: str = USUAL,
        on_link: Callable[[str, str, date, Mapping[str, str]], None] | None = None,
    ) -> None:
        self.today = today
        self.books: list[Upload] = []
        self.seed = seed
        self._behaviour = Behaviour(fail_share, shuffle, seed, links)
        self._opener = opener
        self._host = host
        self._header = tuple(header or interface.columns())
        shapes = list(SHAPES) if error_shape == "mixed" else [error_shape]
        self._shapes = [SHAPES[shape] for shape in shapes]
        self._written = DATE_FORMS[date_form]
        self._expires = expires
        self._on_link = on_link
        self._challenges: dict[str, tuple[str, str]] = {}

    def upload(self, name: str, content: bytes, behaviour: Behaviour | None = None) -> bytes:
        """Return the result CSV (interface.md 2.7) of an upload (2.6).

        UploadRefusedError takes nothing.
        """
        manner = behaviour or self._behaviour
        rows = read_upload(self._opener, self._header, name, content)
        upload = Upload(name, tuple(self._book(name, rows, manner)))
        self.books.append(upload)
        return self.result(upload.rows, manner)

    def opens(self, url: str, cvv: str, postal_code: str) -> bool:
        """Return whether cardholders who know these get past the link (interface.md 2.10)."""
        return self._challenges.get(url) == (cvv_hash(cvv), known_postal_code(postal_code))

    def result(self, rows: Sequence[Booked], behaviour: Behaviour | None = None) -> bytes:
        """Return the result CSV of these booked rows."""
        manner = behaviour or self._behaviour
        if manner.shuffle:
            rows = sorted(
                rows, key=lambda booked: chance(manner.seed, "order", booked.cuid, booked.row)
            )
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(RESULT_HEADER)
        writer.writerows(map(self._answer, rows))
        return out.getvalue().encode()

    def _answer(self, booked: Booked) -> tuple[str, ...]:
        if booked.url is None or booked.expires is None:
            shape = self._shapes[booked.row % len(self._shapes)]
            return ("", "", "", "", shape(booked.cuid, booked.faults))
        return (booked.cuid, booked.last_4, booked.url, self._written(booked.expires), "")

    def _book(
        self, name: str, rows: Sequence[Mapping[str, str]], behaviour: Behaviour
    ) -> Iterator[Booked]:
        expires = self._ends()
        seen: set[str] = set()
        for number, fields in enumerate(rows, start=1):
            marker = token(behaviour.seed, name, number)
            cuid = fields["cuid"] or f"made-{marker[:12]}"
            row_faults = self._faults(fields, repeated=cuid in seen)
            if not row_faults:
                row_faults = _partner_faults(behaviour, chance(behaviour.seed, name, number))
            seen.add(cuid)
            last_4 = fields["pan"][-4:]
            if row_faults:
                yield Booked(number, cuid, last_4, None, None, row_faults)
                continue
            url = self._link(self._url(marker, behaviour.links), fields)
            if self._on_link:
                self._on_link(cuid, url, expires, fields)
            yield Booked(number, cuid, last_4, url, expires, ())

    def _link(self, url: str, fields: Mapping[str, str]) -> str:
        postal_code = known_postal_code(fields["address.postal_code"])
        self._challenges[url] = (known_cvv_hash(fields), postal_code)
        return url

    def _url(self, marker: str, style: str) -> str:
        return f"https://{self._host}{STYLES[style](marker)}"

    def foreign_row(self) -> Booked:
        """Return a row of some other bank's upload: what a result file of foreign cardholders
        holds.
        """
        marker = token(self.seed, "stranger", self.today)
        url = self._url(marker, self._behaviour.links)
        return Booked(1, f"stranger-{marker[:8]}", "0000", url, self._ends(), ())

    def _ends(self) -> date:
        return self._expires or two_months_after(self.today)

    def _faults(self, fields: Mapping[str, str], *, repeated: bool) -> tuple[Fault, ...]:
        row_faults = faults(fields, self.today)
        if repeated:
            row_faults += (fault("cardholder.cuid", "duplicate", "stands in this file already"),)
        return row_faults


def _partner_faults(behaviour: Behaviour, luck: float) -> tuple[Fault, ...]:
    """Return what only the partner knows of a row, by its luck."""
    if luck >= behaviour.fail_share:
        return ()
    kind = int(luck / behaviour.fail_share * len(ONLY_THE_PARTNER_KNOWS))
    return (ONLY_THE_PARTNER_KNOWS[kind],)


def cvv_hash(cvv: str) -> str:
    """Return the Base64 text of the SHA-256 digest of a CVV (interface.md 2.6)."""
    return base64.b64encode(sha256(cvv.encode()).digest()).decode()


def known_cvv_hash(fields: Mapping[str, str]) -> str:
    """Return the hash of a row's CVV, "" where it has neither."""
    if fields["cvv_hash"] or not fields["cvv"]:
        return fields["cvv_hash"]
    return cvv_hash(fields["cvv"])


def known_postal_code(postal_code: str) -> str:
    """Return what a cardholder types of a postal code: five digits of a ZIP, no blanks."""
    bare = postal_code.replace(" ", "").upper()
    return bare[:5] if bare[:5].isdigit() else bare


def two_months_after(day: date) -> date:
    """Return the day a link made on `day` expires (interface.md 8): the last of a shorter month."""
    year, month = divmod(day.year * 12 + day.month - 1 + 2, 12)
    return date(year, month + 1, min(day.day, calendar.monthrange(year, month + 1)[1]))
