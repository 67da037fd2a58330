"""One placement job (interface.md 2.1 to 2.5, 3, 8): it moves by the moments it is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from flows.extensions.simulator.chance import token
from flows.extensions.simulator.service.refusals import refused
from flows.extensions.simulator.service.sites import IDLE, TIMEOUT, TOO_MANY_TRIES, Ask, End, Site

SIGNING_IN = 0.6  # share of the whole that the account-link phase counts for
UPDATING = "UPDATING"
BILLABLE = "BILLABLE"
WRONG_BEFORE = "The site did not take that. "


class Pace(NamedTuple):
    """How long things take, in seconds; `timeout` and `added` come from interface.md 2.1."""

    auth: float = 6  # after each answer, until the site asks more or has authenticated
    update: float = 12
    heartbeat: float = 10
    timeout: float = 300
    added: float = 120  # whenever the cardholder is asked
    tries: int = 3  # of one question, before the site gives up


class Request(NamedTuple):
    """A credential request that waits for its answer."""

    envelope_id: str
    ask: Ask
    tries: int  # this one included


class Snapshot(NamedTuple):
    """A job's status data at a moment: `message` of interface.md 2.1."""

    status: str
    percent_complete: int
    auth_percent_complete: int
    job_timeout: int
    status_message: str
    termination_type: str | None


@dataclass
class Job:
    """A job from start to end; `due` says when something happens next, `step` lets it happen."""

    id: int
    cardholder_id: int
    card_id: int
    account_id: int
    site: Site
    created_on: datetime
    pace: Pace = field(default_factory=Pace)
    seed: int = 0
    status: str = "REQUESTED"
    status_message: str = "The placement is about to start."
    termination_type: str | None = None
    authenticated: bool = False
    request: Request | None = None
    answered: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.last_updated_on = self.created_on
        self._since = self.created_on
        self._deadline = self.created_on + timedelta(seconds=self.pace.timeout)
        self._beat = self._after(self.pace.heartbeat)
        self._done: datetime | None = None  # when the work in hand is done
        self._passed = 0  # asks that are answered right
        # answered wrong, and repeated when the site has noticed
        self._wrong: Request | None = None
        # shares of the account-link phase and of the placement: they never fall
        self._signed_in = 0.0
        self._whole = 0.0

    def begin(self, *, with_credentials: bool = False) -> Snapshot:
        """Start; without credentials the job asks for them first (interface.md 6)."""
        if self.site.end is not IDLE:
            self._passed = int(with_credentials)
            if with_credentials:
                self._work("AUTH", "Signing in.", self.pace.auth)
            else:
                self._ask(self.site.asks[0])
        return self.snapshot(self.created_on)

    @property
    def due(self) -> datetime | None:
        """The moment of what happens next; None when the job has ended."""
        if self.termination_type:
            return None
        if self.request:
            return self._deadline
        return min(self._deadline, self._beat, self._done or self._deadline)

    def step(self, now: datetime) -> Snapshot | None:
        """Let happen what is due; return the status message that follows from it.

        None where a request speaks instead.
        """
        self.last_updated_on = now
        if now >= self._deadline:
            self._end(IDLE if self.site.end is IDLE else TIMEOUT)
        elif self._done and now >= self._done:
            self._finish_work()
        else:
            self._beat = self._after(self.pace.heartbeat)
        return None if self.request else self.snapshot(now)

    def answer(self, envelope_id: str, answers: Mapping[str, str], now: datetime) -> Snapshot:
        """Take the answer of a credential request and go on; return the new status.

        That is interface.md 2.4 rule 1.
        """
        request = self.request
        if envelope_id in self.answered:
            raise refused(
                409, "credential_request", "answered", "was answered or has run out", "envelope_id"
            )
        if request is None or request.envelope_id != envelope_id:
            raise refused(
                404, "credential_request", "unknown", "is not known to this job", "envelope_id"
            )
        for key in request.ask.lacks(answers):
            raise refused(422, "account_link", "missing", f"{key} is required", key)
        self.answered.add(envelope_id)
        self.last_updated_on = now
        self.request = None
        if request.ask.right(answers):
            self._passed += 1
        else:
            self._wrong = request
        self._work("AUTH", "The site checks your answer.", self.pace.auth)
        return self.snapshot(now)

    def snapshot(self, now: datetime) -> Snapshot:
        """Return the status data at a moment; percentages never fall."""
        self._signed_in = max(self._signed_in, self._progress(now))
        whole = self._signed_in * SIGNING_IN
        if self.status == UPDATING:
            whole += self._share(now) * (1 - SIGNING_IN)
        if self.termination_type == BILLABLE:
            whole = 1.0
        self._whole = max(self._whole, whole)
        return Snapshot(
            status=self.status,
            percent_complete=int(100 * self._whole),
            auth_percent_complete=int(100 * self._signed_in),
            job_timeout=self._seconds_left(now),
            status_message=self.status_message,
            termination_type=self.termination_type,
        )

    def _seconds_left(self, now: datetime) -> int:
        if self.termination_type:
            return 0
        return max(0, int((self._deadline - now).total_seconds()))

    def _progress(self, now: datetime) -> float:
        """Return how much of the account-link phase is done.

        That is the questions passed, and the work after the last one.
        """
        if self.authenticated or not self._passed:
            return float(self.authenticated)
        passed = self._passed - 1.0
        if self.request is None and self._wrong is None:
            passed += self._share(now)
        return passed / len(self.site.asks)

    def _share(self, now: datetime) -> float:
        """Return the share of the work in hand that is done."""
        if self._done is None or self._done == self._since:
            return 0.0
        return min(1.0, (now - self._since) / (self._done - self._since))

    def _finish_work(self) -> None:
        self._done = None
        if self.status == UPDATING:
            self._end(self.site.end)
        elif self._wrong:
            self._repeat(self._wrong)
        elif self._passed < len(self.site.asks):
            self._ask(self.site.asks[self._passed])
        elif self.site.end.authenticated:
            self.authenticated = True
            self._work(UPDATING, "Placing your card; you may leave now.", self.pace.update)
        else:
            self._end(self.site.end)

    def _repeat(self, request: Request) -> None:
        self._wrong = None
        if request.tries >= self.pace.tries:
            self._end(TOO_MANY_TRIES)
        elif request.ask.type in ("initial_account_link", "credential_request"):
            new_ask = request.ask._replace(type="credential_request", polled="credential_request")
            self._ask(new_ask, "PENDING_NEWCREDS", request.tries + 1)
        else:
            self._ask(request.ask, "PENDING", request.tries + 1)

    def _ask(self, ask: Ask, status: str = "PENDING", tries: int = 1) -> None:
        envelope = str(UUID(token("envelope", self.seed, self.id, self._passed, tries)))
        self.request = Request(envelope, ask, tries)
        self.status = status
        self.status_message = ask.says
        if tries > 1:
            self.status_message = WRONG_BEFORE + ask.says
        self._deadline += timedelta(seconds=self.pace.added)

    def _work(self, status: str, says: str, seconds: float) -> None:
        self.status = status
        self.status_message = says
        self._since = self.last_updated_on
        self._done = self._after(seconds)
        self._beat = self._after(self.pace.heartbeat)

    def _end(self, end: End) -> None:
        if self.request:
            self.answered.add(self.request.envelope_id)  # too late for it now
        self.request = None
        self._done = None
        self.status = end.status
        self.termination_type = end.termination_type
        self.status_message = end.says

    def _after(self, seconds: float) -> datetime:
        return self.last_updated_on + timedelta(seconds=seconds)
