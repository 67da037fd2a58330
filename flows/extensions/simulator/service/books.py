"""Everything the service knows, and its one clock: uploads, links, jobs, messages.

No network, no time of its own.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from itertools import chain
from typing import Any, NamedTuple

from flows.extensions.simulator import link_styles
from flows.extensions.simulator.chance import token
from flows.extensions.simulator.portal import Behaviour, Portal
from flows.extensions.simulator.service import on_demand
from flows.extensions.simulator.service.channels import (
    Channels,
    Message,
    credential_request,
    status_message,
)
from flows.extensions.simulator.service.jobs import Job, Pace, Snapshot
from flows.extensions.simulator.service.links import Card, Link, Links
from flows.extensions.simulator.service.refusals import Disturbance, refused
from flows.extensions.simulator.service.sites import SITES
from flows.runs.sealing import Opener
from schemas.challenges import USUAL


class Client(NamedTuple):
    """Who may log in (interface.md 2.8): practice values, no secret of anybody."""

    app_name: str = "practice"
    app_key: str = "practice-key"
    username: str = "cardlink"
    password: str = "practice"  # noqa: S105 - the practice service's own, printed at its start


@dataclass(frozen=True)
class Habits:
    """What a service of this kind may do otherwise, and what an institution configures."""

    # of the links: a URL is https://<host>/l/<id> or of another style, its page <address>/l/<id>
    host: str = "links.example.com"
    challenges: tuple[str, ...] = USUAL
    fi_key: str = ""  # empty: any
    fail_share: float = 0.0  # of bulk rows, for reasons only the partner knows
    shuffle: bool = False  # the rows of a result come in another order than sent
    links: str = link_styles.USUAL  # the style of the URLs of bulk links
    job_id_as_string: bool = False
    session_seconds: float = 900
    client: Client = field(default_factory=Client)
    pace: Pace = field(default_factory=Pace)
    seed: int = 0
    expires: date | None = None  # the last day of bulk links, otherwise two months on


class ServiceState:
    """The service's whole state; a RefusedRequestError changes nothing."""

    def __init__(
        self,
        opener: Opener,
        now: datetime,
        habits: Habits | None = None,
        header: Sequence[str] | None = None,
    ) -> None:
        self.now = now
        self.lead = timedelta(0)  # how far it was taken ahead of the clock
        self.habits = habits or Habits()
        self.links = Links(self.habits.challenges)
        self.jobs: dict[int, Job] = {}
        # what is answered instead, by the beginning of the path, until it is taken away
        self.disturbances: dict[str, Disturbance] = {}
        self.portal = Portal(
            opener,
            today=now.date(),
            host=self.habits.host,
            header=header,
            fail_share=self.habits.fail_share,
            shuffle=self.habits.shuffle,
            seed=self.habits.seed,
            links=self.habits.links,
            expires=self.habits.expires,
            on_link=self._take_up,
        )
        self._results: list[bytes] = []
        self._sessions: dict[str, datetime] = {}
        self._channels: dict[int, Channels] = {}
        self._jobs_of: dict[int, list[Job]] = {}
        self._accounts: dict[tuple[int, str], int] = {}
        self._due: list[tuple[datetime, int]] = []
        self._counter: Counter[str] = Counter()

    def advance(self, to: datetime) -> None:
        """Let happen, in order, everything that is due by then; the clock never goes back."""
        while self._due and self._due[0][0] <= to:
            when, job_id = heapq.heappop(self._due)
            job = self.jobs[job_id]
            if job.due == when:  # else an answer has changed its plans since
                self.now = max(self.now, when)
                self._report(job, job.step(when))
        self.now = max(self.now, to)

    def login(self, client: Client) -> str:
        """Return a session token; refused with 401 for anybody unknown."""
        if client != self.habits.client:
            raise refused(401, "session", "refused", "is not open to these credentials")
        session = self._new_token("session")
        self._sessions[session] = self.now + timedelta(seconds=self.habits.session_seconds)
        return session

    def logged_in(self, session: str) -> bool:
        """Say whether a session token holds."""
        return session in self._sessions and self.now < self._sessions[session]

    def upload(self, name: str, content: bytes, behaviour: Behaviour | None = None) -> int:
        """Take a bulk file (interface.md 2.6) and return the upload's id.

        It is answered as the service's habits say, or by a behaviour of its own. UploadRefusedError
        takes nothing.
        """
        self.portal.today = self.now.date()
        earlier = sum(upload.name.partition(" (")[0] == name for upload in self.portal.books)
        unique_name = f"{name} ({earlier})" if earlier else name
        self._results.append(self.portal.upload(unique_name, content, behaviour))
        return len(self._results)

    def result(self, upload_id: int) -> bytes:
        """Return the result CSV of an upload (interface.md 2.7)."""
        if not 1 <= upload_id <= len(self._results):
            raise refused(404, "upload", "unknown", "there is no such upload", "id")
        return self._results[upload_id - 1]

    def create_link(self, request: Mapping[str, Any], fi_key: str) -> Link:
        """Make a single link (interface.md 2.8).

        The request has its required objects and strings.
        """
        if self.habits.fi_key and fi_key != self.habits.fi_key:
            raise refused(422, "financial_institution", "unknown", "is not configured", "key")
        service = request["service"]
        if Client(*(service[name] for name in Client._fields)) != self.habits.client:
            raise refused(401, "service", "refused", "is not open to these credentials")
        fields = on_demand.read_fields(request, self.now.date())
        expires = on_demand.expiry(request.get("expiration"), self.now.date())
        card = self._referred(request["card"].get("reference"), fields["cuid"])
        if card is None:
            cuid = fields["cuid"] or f"made-{self._new_token('cuid')[:12]}"
            card = self.links.card(self.links.cardholder(cuid, fields), fields)
        link_id = self._new_token("link")
        return self._link(link_id, f"https://{self.habits.host}/l/{link_id}", card, expires)

    def place(
        self, link_id: str, sites: Sequence[str], credentials: Mapping[str, Mapping[str, str]]
    ) -> list[Job]:
        """Start a placement job at each site for the cardholder of a verified link.

        Credentials are by site.
        """
        link = self.links.find(link_id)
        if link.authenticated_on is None:
            raise refused(403, "verification", "missing", "comes before the choice of sites")
        if not set(sites) <= SITES.keys() or not sites:
            raise refused(422, "placement", "unknown", "is no merchant site here", "merchant_sites")
        return [self._start(link, site, bool(credentials.get(site))) for site in sites]

    def job(self, job_id: int) -> Job:
        """Return a job; refused with 404 where there is none."""
        if job_id not in self.jobs:
            raise refused(404, "job", "unknown", "there is no such job", "id")
        return self.jobs[job_id]

    def job_record(self, job_id: int, *, hydrate: bool = False) -> dict[str, Any]:
        """Return a job record (interface.md 2.2); `hydrate`: with its credential requests."""
        job = self.job(job_id)
        snapshot = job.snapshot(self.now)._asdict()
        del snapshot["job_timeout"]
        record = {
            "id": job.id,
            "cardholder_id": job.cardholder_id,
            "card_id": job.card_id,
            "account_id": job.account_id,
            "type": "CARD_PLACEMENT",
            "merchant_site": job.site.name,
            **snapshot,
            "created_on": job.created_on.isoformat(),
            "last_updated_on": job.last_updated_on.isoformat(),
        }
        if hydrate:
            record["credential_requests"] = self._pending(job, polled=True)
        return record

    def answer(self, job_id: int, envelope_id: str, answers: Mapping[str, str]) -> None:
        """Take the answer of a credential request; the job goes on."""
        job = self.job(job_id)
        self._report(job, job.answer(envelope_id, answers, self.now))

    def update_account(self, job_id: int) -> None:
        """Take an ordinary account update, which answers nothing (interface.md 4 rule 2).

        The values are not kept.
        """
        self.job(job_id).last_updated_on = self.now

    def messages(self, job_id: int) -> list[Message]:
        """Read a job's main channel: status messages once, then the waiting credential request."""
        job = self.job(job_id)
        return self._channels[job_id].read() + self._pending(job)

    def cardholder_messages(self, cardholder_id: int) -> list[Message]:
        """Read the main channels of all jobs of a cardholder; what is read here is read there."""
        if cardholder_id not in self.links.cardholders:
            raise refused(404, "cardholder", "unknown", "there is no such cardholder", "id")
        jobs = self.jobs_of(cardholder_id)
        return list(chain.from_iterable(self.messages(job.id) for job in jobs))

    def jobs_of(self, cardholder_id: int) -> Sequence[Job]:
        """Return the jobs of a cardholder, the first started first."""
        return self._jobs_of.get(cardholder_id, ())

    def credential_requests(self, job_id: int) -> list[Message]:
        """Return what a job waits for; it stays until it is answered."""
        return self._pending(self.job(job_id))

    def register(self, job_id: int) -> str:
        """Open a broadcast channel of a job and return its access key."""
        channels = self._channels[self.job(job_id).id]
        key = self._new_token("access key")
        channels.register(key)
        return key

    def broadcasts(self, job_id: int, access_key: str) -> list[Message]:
        """Read a broadcast channel: status messages only, whatever other channels have read."""
        return self._channels[self.job(job_id).id].broadcast(access_key)

    def _referred(self, reference: Mapping[str, Any] | None, cuid: str) -> Card | None:
        """Return the card a request refers to, which must be the cardholder's own."""
        if reference is None:
            return None
        card = self.links.cards.get(reference["id"])
        if card is None or (cuid and cuid != self.links.cardholders[card.cardholder_id].cuid):
            raise refused(
                422, "card", "unknown", "reference is not a card of this cardholder", "reference"
            )
        return card

    def _start(self, link: Link, site: str, with_credentials: bool) -> Job:
        account = self._accounts.setdefault((link.cardholder_id, site), len(self._accounts) + 1)
        number = len(self.jobs) + 1
        job = Job(
            id=number,
            cardholder_id=link.cardholder_id,
            card_id=link.card_id,
            account_id=account,
            site=SITES[site],
            created_on=self.now,
            pace=self.habits.pace,
            seed=self.habits.seed,
        )
        self.jobs[number] = job
        self._channels[number] = Channels()
        self._jobs_of.setdefault(link.cardholder_id, []).append(job)
        self._report(job, job.begin(with_credentials=with_credentials))
        return job

    def _report(self, job: Job, snapshot: Snapshot | None) -> None:
        """Send a status to the job's channels, and note what comes next.

        It is not sent where a request of the job says it.
        """
        if snapshot and not job.request:
            self._channels[job.id].send(status_message(self._message_id(job), snapshot))
        if job.due:
            heapq.heappush(self._due, (job.due, job.id))

    def _pending(self, job: Job, *, polled: bool = False) -> list[Message]:
        if not job.request:
            return []
        snapshot = job.snapshot(self.now)
        return [credential_request(job, self._message_id(job), snapshot, polled=polled)]

    def _message_id(self, job: Job) -> int | str:
        """Return the id of a job as messages have it."""
        return str(job.id) if self.habits.job_id_as_string else job.id

    def _take_up(self, cuid: str, url: str, expires: date, fields: Mapping[str, str]) -> None:
        """Enter a link of a bulk file."""
        cardholder = self.links.cardholder(cuid, fields)
        self._link(link_styles.id_in(url), url, self.links.card(cardholder, fields), expires)

    def _link(self, link_id: str, url: str, card: Card, expires: date) -> Link:
        long_token = token(self.habits.seed, "long", link_id)
        link = Link(link_id, url, long_token, card.cardholder_id, card.id, self.now, expires)
        self.links.links[link_id] = link
        return link

    def _new_token(self, kind: str) -> str:
        self._counter[kind] += 1
        return token(self.habits.seed, kind, self._counter[kind])
