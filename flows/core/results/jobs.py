"""What the service tells of placement jobs, in records and messages, put together: the same in any order and number.

Statuses and termination types are open sets (interface.md 2.3): one that nobody knows yet is kept as it is named.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from flows.core.results.masking import mask
from schemas.placements import AUTHENTICATED, BILLABLE, CODE, OTHER

DONE = 100  # percent
LONGEST = 60  # characters of a merchant site's name that are kept
_CODE = re.compile(CODE)


class Job(NamedTuple):
    """One placement job as far as it is known; `termination_type` is None while it runs."""

    job_id: str
    status: str
    termination_type: str | None = None
    authenticated: bool = False
    percent: int = 0
    merchant_site: str | None = None

    @property
    def placed(self) -> bool:
        """True where the card is placed."""
        return self.termination_type == BILLABLE

    @property
    def running(self) -> bool:
        """True until it has a termination type."""
        return self.termination_type is None


def job(
    job_id: str,
    status: str | None,
    *,
    termination_type: str | None = None,
    percent: int | None = None,
    auth_percent: int | None = None,
    site: str | None = None,
) -> Job:
    """Return a job from the words of its record (interface.md 2.2) or of a message (2.1)."""
    state, ended = code(status), code(termination_type) if termination_type else None
    authenticated = state in AUTHENTICATED or ended == BILLABLE or (auth_percent or 0) >= DONE
    name = mask(site)[:LONGEST] if site else None
    return Job(job_id, state, ended, authenticated, min(DONE, max(0, percent or 0)), name or None)


def code(text: str | None) -> str:
    """Return a status or termination type as it is named, OTHER for anything that is no such name."""
    name = (text or "").strip().upper()
    return name if _CODE.match(name) else OTHER


def merged(jobs: Iterable[Job]) -> tuple[Job, ...]:
    """Put together what was told of jobs at different times: one of each id, by id.

    An end stands over what was told before it, the furthest word over a lesser one; authentication and the merchant
    site are not forgotten.
    """
    known: dict[str, Job] = {}
    for one in jobs:
        before = known.get(one.job_id)
        known[one.job_id] = one if before is None else _later(before, one)
    return tuple(known[job_id] for job_id in sorted(known))


def best(jobs: Iterable[Job]) -> Job | None:
    """Return the job a cardholder counts by: placed, else one that runs, else the one that came furthest."""
    return max(
        jobs, key=lambda one: (one.placed, one.running, one.authenticated, *_rank(one), one.job_id), default=None
    )


def _later(one: Job, other: Job) -> Job:
    ahead = max(one, other, key=_rank)
    sites = [site for site in (one.merchant_site, other.merchant_site) if site]
    return ahead._replace(
        authenticated=one.authenticated or other.authenticated,
        percent=max(one.percent, other.percent),
        merchant_site=max(sites, default=None),
    )


def _rank(one: Job) -> tuple[bool, bool, int, bool, str, str]:
    """Order what can be told of one job; the texts only make the order total."""
    return (
        one.placed,
        not one.running,
        one.percent,
        one.authenticated,
        one.termination_type or "",
        one.status,
    )
