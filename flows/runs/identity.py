"""What identifies a run: canonical JSON and digests, the header and settings that shape its rows,
its business date.
"""

import csv
import hashlib
import json
import re
from contextlib import suppress
from datetime import date, datetime, timedelta
from io import StringIO
from itertools import islice
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from pydantic import BaseModel

from flows.errors import OperatorError
from schemas.issuer import PROOFS, Issuer
from schemas.manifest import FACTS
from schemas.portal import INTERFACE, columns
from schemas.settings import WEEK, Schedule

DATE_IN_NAME = re.compile(r"(?<!\d)(20\d\d)[-_]?(0[1-9]|1[0-2])[-_]?(0[1-9]|[12]\d|3[01])(?!\d)")

YEAR = 366  # days to look back for a business day before giving up


class TemplateError(OperatorError):
    """The template's header is not the portal's (interface.md 2.6)."""

    message = "Template {name}: missing columns: {missing}; unknown or repeated columns: {unknown}."
    next_step = "Download the blank template from the partner's portal again and name it in [portal] template."


class Header(NamedTuple):
    """The header row: our column names in the portal's order, and the line as it is written."""

    order: tuple[str, ...]
    line: bytes

    @property
    def names(self) -> dict[str, str]:
        """The portal's names of its columns, by ours."""
        return dict(zip(self.order, next(csv.reader([self.line.decode()])), strict=True))


def default_header() -> Header:
    """Return the header of interface.md 2.6."""
    return _header(columns(), columns())


def header_from_template(text: str, name: str) -> Header:
    """Take names and order from the portal's own template; TemplateError where they do not fit
    interface.md 2.6.
    """
    first = next(csv.reader(StringIO(text.removeprefix("\ufeff"))), [])
    theirs = [cell.strip() for cell in first]
    ours = {column.partition(".")[2]: column for column in columns()}
    order = tuple(ours.get(cell.partition(".")[2], "") for cell in theirs)
    missing = [column for column in columns() if column not in order]
    unknown = [
        cell
        for cell, column in zip(theirs, order, strict=True)
        if not column or order.count(column) > 1
    ]
    if missing or unknown:
        raise TemplateError(
            name=name, missing=", ".join(missing) or "none", unknown=", ".join(unknown) or "none"
        )
    return _header(order, tuple(theirs))


def _header(order: tuple[str, ...], names: tuple[str, ...]) -> Header:
    line = StringIO()
    csv.writer(line, lineterminator="\n").writerow(names)
    return Header(order, line.getvalue().encode())


def canonical(document: BaseModel | dict[str, Any]) -> bytes:
    """Return JSON with sorted keys and no spaces: equal documents are equal bytes."""
    plain = document.model_dump(mode="json") if isinstance(document, BaseModel) else document
    return (
        json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
        + b"\n"
    )


def facts_as_stored(facts: dict[str, Any]) -> bytes:
    """Return the bytes of a JSON object that is no Document, with its version unless that is the
    first.
    """
    return canonical({**facts, "format": FACTS} if FACTS > 1 else facts)


def digest(data: bytes) -> str:
    """Return the SHA-256 of stored bytes, 64 hex digits."""
    return hashlib.sha256(data).hexdigest()


def row_settings(issuer: Issuer, header: Header) -> dict[str, Any]:
    """Return every setting that decides which rows are in which chunk and how they are written."""
    shaping = issuer.model_dump(mode="json", include={"columns", "filter", "rules", "repairs"})
    shaping["source"] = issuer.source.model_dump(mode="json", exclude=set(PROOFS))
    if issuer.full_portfolio:
        shaping["portfolio"] = issuer.portfolio.model_dump(mode="json")
    portal = issuer.portal.model_dump(
        mode="json", include={"extension", "armor", "compression", "rows_per_chunk"}
    )
    return {**shaping, "portal": {**portal, "header": header.line.decode()}, "interface": INTERFACE}


def differences(old: dict[str, Any], new: dict[str, Any], prefix: str = "") -> list[str]:
    """Return the names of the settings that differ, dotted (`rules.luhn`)."""
    named: list[str] = []
    # earlier versions stored one of them
    unshaping = PROOFS if prefix == "source." else frozenset()
    for key in sorted((old.keys() | new.keys()) - unshaping):
        before, after = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            named += differences(before, after, f"{prefix}{key}.")
        elif before != after:
            named.append(f"{prefix}{key}")
    return named


def date_in_name(key: str) -> date | None:
    """Return the business date in an extract's name (2026-11-20, 20261120), None where it has
    none.
    """
    if found := DATE_IN_NAME.search(key.rpartition("/")[2]):
        with suppress(ValueError):  # 20260231 is not a date
            return date(int(found[1]), int(found[2]), int(found[3]))
    return None


def local_day(moment: datetime, time_zone: str) -> date:
    """Return the issuer's local date at that moment."""
    return moment.astimezone(ZoneInfo(time_zone)).date()


def day_off(schedule: Schedule, day: date) -> str:
    """Return why a day is not a business day, `holiday` or the weekday's name; "" where it is
    one.
    """
    if day in schedule.holidays:
        return "holiday"
    return "" if WEEK[day.weekday()] in schedule.days else f"{day:%A}"


def due(schedule: Schedule, now: datetime, time_zone: str) -> tuple[date, datetime] | None:
    """Return the last business day whose hour has passed, and the hour of the one before: an
    extract is due since then.

    None where no hour is set, or a year has fewer than two business days.
    """
    if schedule.extract_by is None:
        return None
    zone, today = ZoneInfo(time_zone), local_day(now, time_zone)
    days = (
        day for back in range(YEAR) if not day_off(schedule, day := today - timedelta(days=back))
    )
    hours = ((day, datetime.combine(day, schedule.extract_by, zone)) for day in days)
    passed = list(islice((one for one in hours if one[1] <= now), 2))
    return (passed[0][0], passed[1][1]) if len(passed) == 2 else None
