"""The partner's book: links, cardholders, jobs and messages, moved on by its own clock."""

from __future__ import annotations

import heapq
import itertools
import secrets
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from tests.other_partner.people import JOBS, PEOPLE, Cardholder, Request, Stage

JOB_SECONDS = 300.0
ANSWER_SECONDS = 2.0


class Clock:
    """Seconds since 1970, as far ahead of the wall's as it was put forward."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def __call__(self) -> float:
        """Return the seconds by this clock."""
        return time.time() + self._ahead

    def put_forward(self, seconds: float) -> None:
        """Let so many seconds pass at once."""
        self._ahead += seconds


@dataclass
class Link:
    """A card link and whose it is."""

    key: str
    link_id: str
    long_token: str
    cuid: str
    last_4: str
    holder_id: int
    card_id: int
    created: float
    expires: float
    person: Cardholder
    opened: float | None = None
    verified: bool = False
    revision: int = 1


@dataclass
class Job:
    """A placement at one site."""

    job_id: int
    link: Link
    site: str
    stages: Iterator[Stage]
    created: float
    ends_by: float
    now: Stage
    updated: float
    request: Request | None = None
    envelope: str = ""
    revision: int = 1
    account: dict[str, str] = field(default_factory=dict)


class World:
    """Everything the partner knows; each request first lets time pass."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.links: dict[str, Link] = {}
        self.jobs: dict[int, Job] = {}
        self.messages: dict[int, list[dict[str, object]]] = {}
        self.channels: dict[str, tuple[int, list[dict[str, object]]]] = {}
        self._due: list[tuple[float, int, Callable[[float], None]]] = []
        self._count = itertools.count(1)
        self._people = itertools.cycle(PEOPLE)

    def later(self, moment: float, act: Callable[[float], None]) -> None:
        """Do `act` when the clock has come to `moment`."""
        heapq.heappush(self._due, (moment, next(self._count), act))

    def pass_time(self) -> float:
        """Do all that is due and return the time."""
        now = self.clock()
        while self._due and self._due[0][0] <= now:
            moment, _, act = heapq.heappop(self._due)
            act(moment)
        return now

    def make_link(self, cuid: str, last_4: str, expires: datetime | None = None) -> Link:
        """Make a cardholder, a card and their link."""
        now = self.clock()
        number = next(self._count)
        two_months = datetime.fromtimestamp(now, UTC) + timedelta(days=61)
        link = Link(
            key=secrets.token_urlsafe(12),
            link_id=f"lnk_{number:08d}",
            long_token=secrets.token_hex(16),
            cuid=cuid or str(secrets.randbelow(10**10)),
            last_4=last_4,
            holder_id=700_000 + number,
            card_id=300_000 + number,
            created=now,
            expires=(expires or two_months).timestamp(),
            person=next(self._people),
        )
        self.links[link.key] = link
        if link.person.opens_after is not None:
            self.later(now + link.person.opens_after, lambda moment: self._open(link, moment))
        return link

    def link_named(self, name: str) -> Link | None:
        """Return the link with this key or link id."""
        by_id = (link for link in self.links.values() if link.link_id == name)
        return self.links.get(name) or next(by_id, None)

    def live_link_of(self, cuid: str) -> Link | None:
        """Return the cardholder's link that has not expired."""
        now = self.clock()
        live = (link for link in self.links.values() if link.cuid == cuid and link.expires > now)
        return next(live, None)

    def _open(self, link: Link, moment: float) -> None:
        link.opened = moment
        link.verified = link.person.verifies
        link.revision += 1
        for wait, (site, path) in enumerate(link.person.sites, 1):
            self.later(
                moment + wait,
                lambda when, s=site, p=path: self._begin(link, s, p, when),  # type: ignore[misc]
            )

    def _begin(self, link: Link, site: str, path: str, moment: float) -> None:
        stages = iter(JOBS[path])
        job = Job(
            job_id=5_000_000 + next(self._count),
            link=link,
            site=site,
            stages=stages,
            created=moment,
            ends_by=moment + JOB_SECONDS,
            now=next(stages),
            updated=moment,
        )
        self.jobs[job.job_id] = job
        self._tell(job)
        self._go_on(job, moment)

    def _go_on(self, job: Job, moment: float) -> None:
        stage = next(job.stages, None)
        if stage is not None:
            self.later(moment + stage.after, lambda when: self._enter(job, stage, when))

    def _enter(self, job: Job, stage: Stage, moment: float) -> None:
        job.now = stage
        job.updated = moment
        job.revision += 1
        job.request = stage.request
        if stage.request is None:
            self._tell(job)
            self._go_on(job, moment)
            return
        job.envelope = str(uuid.uuid4())
        job.ends_by += 120
        envelope = job.envelope
        if stage.request.cardholder_answers:
            self.later(moment + ANSWER_SECONDS, lambda when: self._answered(job, envelope, when))
        self.later(job.ends_by, lambda when: self._time_out(job, envelope, when))

    def _answered(self, job: Job, envelope: str, moment: float) -> None:
        if job.request is not None and job.envelope == envelope:
            job.request = None
            job.now = Stage(0, "AUTH", job.now.percent, job.now.auth, "Thank you")
            job.revision += 1
            job.updated = moment
            self._tell(job)
            self._go_on(job, moment)

    def _time_out(self, job: Job, envelope: str, moment: float) -> None:
        if job.request is not None and job.envelope == envelope:
            stage = Stage(0, "TIMEOUT_TFA", 20, 60, "No answer came", "USER_DATA_FAILURE")
            job.stages = iter(())
            self._enter(job, stage, moment)

    def answer(self, job: Job, envelope: str, values: Mapping[str, str]) -> str | None:
        """Take the client's answer to a request; return what is wrong with it."""
        if job.request is None or envelope != job.envelope:
            return "no pending request has this envelope"
        missing = [key for key, _, _ in job.request.keys if not values.get(key)]
        if missing:
            return f"values are missing: {', '.join(missing)}"
        if job.request.kind == "tfa_message" and values != {"tfa": "ack"}:
            return "this request is acknowledged with ack"
        self._answered(job, envelope, self.clock())
        return None

    def status_message(self, job: Job) -> dict[str, object]:
        """Return what a message says of the job now."""
        message: dict[str, object] = {
            "status": job.now.status,
            "percent_complete": job.now.percent,
            "auth_percent_complete": job.now.auth,
            "job_timeout": max(0, round((job.ends_by - self.clock()) * 1000)),
            "status_message": job.now.text,
        }
        if job.now.termination:
            message["termination_type"] = job.now.termination
        return message

    def _tell(self, job: Job) -> None:
        message = {
            "type": "job_status",
            "job_id": job.job_id,
            "message": self.status_message(job),
        }
        self.messages.setdefault(job.job_id, []).append(message)
        for job_id, heard in self.channels.values():
            if job_id == job.job_id:
                heard.append(message)

    def jobs_of(self, holder_id: int) -> list[Job]:
        """Return the cardholder's jobs."""
        return [job for job in self.jobs.values() if job.link.holder_id == holder_id]
