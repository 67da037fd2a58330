"""Placement jobs merged from records and messages: the same result in any order, and for repeated
messages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from flows.redaction import redact
from flows.results.masking import mask, printable
from schemas.partner_api.jobs import RunStatus
from schemas.partner_api.link_placements import AUTHENTICATED, BILLABLE, CODE, OTHER

DONE = 100  # percent
LONGEST = 60  # characters of a merchant site's name that are kept
LONGEST_BODY = 2000  # characters of a body that is not JSON
_CODE = re.compile(CODE)
_JOB_ID = re.compile(r"^[A-Za-z0-9_-]{1,64}$")
_UNKEPT = frozenset({"account_link", "status_message", "label", "envelope_id"})
_LEAST_CARD = 10**11  # smaller numbers have fewer digits than a card number


class Job(NamedTuple):
    """What is known of one placement job; `termination_type` is None while it runs."""

    job_id: str
    status: str
    termination_type: str | None = None
    authenticated: bool = False
    percent: int = 0
    merchant_site: str | None = None
    recorded: bool = False  # known from its record, not only from messages

    @property
    def placed(self) -> bool:
        """Whether the card is placed."""
        return self.termination_type == BILLABLE

    @property
    def running(self) -> bool:
        """Whether it has no termination type yet."""
        return self.termination_type is None


def job(job_id: str | None, standing: RunStatus, site: str | None = None) -> Job | None:
    """Return a job from its record or a message (interface.md 2.1, 2.2, 2.4); None without a usable
    id.
    """
    if job_id is None or not _JOB_ID.match(job_id):
        return None
    state = code(standing.status)
    ended = code(standing.termination_type) if standing.termination_type else None
    authenticated = (
        state in AUTHENTICATED or ended == BILLABLE or (standing.auth_percent_complete or 0) >= DONE
    )
    percent = min(DONE, max(0, standing.percent_complete or 0))
    return Job(
        job_id,
        state,
        ended,
        authenticated,
        percent,
        (mask(site)[:LONGEST] or None) if site else None,
    )


def kept(body: bytes) -> list[Any]:
    """Return what is stored of a messages body of any shape: no text for people, no envelope id, no
    card number.

    The rest is stored unchanged, for later readers.
    """
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return (
            [redact(printable(body.decode("utf-8", "replace")))[:LONGEST_BODY]]
            if body.strip()
            else []
        )
    return list(map(_kept, found)) if isinstance(found, list) else [_kept(found)] if found else []


def _kept(found: Any) -> Any:
    match found:
        case dict():
            return {
                redact(name): _kept(value) for name, value in found.items() if name not in _UNKEPT
            }
        case list():
            return list(map(_kept, found))
        case str():
            return redact(printable(found))
        case int() if abs(found) >= _LEAST_CARD:
            return redact(str(found))
    return found


def code(text: str | None) -> str:
    """Return a status or termination type in upper case, OTHER for anything that is no such
    name.
    """
    name = (text or "").strip().upper()
    return name if _CODE.match(name) else OTHER


def merged(jobs: Iterable[Job]) -> tuple[Job, ...]:
    """Merge states of jobs from different times: one per id, sorted by id.

    An end wins over any earlier state, more progress over less; authentication, the merchant site
    and that a record was read are kept.
    """
    known: dict[str, Job] = {}
    for one in jobs:
        before = known.get(one.job_id)
        known[one.job_id] = one if before is None else _later(before, one)
    return tuple(known[job_id] for job_id in sorted(known))


def best(jobs: Iterable[Job]) -> Job | None:
    """Return the job that counts for a cardholder: placed, else running, else the one with the most
    progress.
    """
    return max(
        jobs,
        key=lambda one: (one.placed, one.running, one.authenticated, *_rank(one), one.job_id),
        default=None,
    )


def _later(one: Job, other: Job) -> Job:
    ahead = max(one, other, key=_rank)
    sites = [site for site in (one.merchant_site, other.merchant_site) if site]
    return ahead._replace(
        authenticated=one.authenticated or other.authenticated,
        merchant_site=max(sites, default=None),
        recorded=one.recorded or other.recorded,
    )


def _rank(one: Job) -> tuple[bool, bool, int, str, str]:
    """Return the sort key of one job's states; the texts only make the order total."""
    return one.placed, not one.running, one.percent, one.termination_type or "", one.status


class Placement(NamedTuple):
    """What the service knows of one linked row
    (`schemas.partner_api.link_placements.Placements`).
    """

    row: int
    cuid: str | None
    last_4: str | None
    cardholder_id: str | None = None
    opened: bool = False
    jobs: tuple[Job, ...] = ()
    reads: int = 0
    trouble: str | None = None
    seen: datetime | None = None

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Placement:
        """Read a record of the table back."""
        jobs = tuple(Job(**one) for one in record["jobs"] or ())
        return cls(**{name: record[name] for name in cls._fields if name != "jobs"}, jobs=jobs)

    def hear(self, jobs: Iterable[Job]) -> Placement:
        """Merge in states of jobs; a cardholder with a job has opened the link."""
        together = merged((*self.jobs, *jobs))
        return self._replace(jobs=together, opened=self.opened or bool(together))

    def record(self) -> dict[str, Any]:
        """Return the record of the table."""
        chosen, placed = best(self.jobs), any(one.placed for one in self.jobs)
        reported = chosen._asdict() if chosen else dict.fromkeys(Job._fields)
        return {
            **self._asdict(),
            "jobs": [one._asdict() for one in self.jobs],
            "authenticated": any(one.authenticated for one in self.jobs),
            **{
                name: reported[name]
                for name in ("job_id", "status", "termination_type", "merchant_site")
            },
            "running": any(one.running for one in self.jobs) and not placed,
            "settled": placed and all(one.recorded for one in self.jobs),
        }
