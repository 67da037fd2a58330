"""Placement jobs merged from records and messages.

The result is the same in any order, and for repeated messages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any, NamedTuple

from flows.extensions.partner_api.causes import UNREADABLE
from flows.extensions.partner_api.profile import INTERFACE, Profile, Words
from flows.extensions.partner_api.responses import LOST_PAGE, messages_in
from flows.extensions.partner_api.service_objects import (
    AUTHENTICATED,
    AUTHENTICATING,
    BILLABLE,
    CODE,
    OTHER,
    PENDING,
    Messages,
    RunStatus,
)
from flows.extensions.partner_api.translation import elements, fold, meaning_of
from flows.redaction import redact
from flows.results.masking import mask, mask_host
from flows.runs.identity import canonical, digest
from flows.secret_words import speaks_of_cvv

DONE = 100  # percent
LONGEST = 60  # characters of a merchant site's name that are kept
_CODE = re.compile(CODE)
_JOB_ID = re.compile(r"^[A-Za-z0-9_-]{1,64}$")
_UNKEPT = frozenset({"account_link", "status_message", "label", "envelope_id"})
# properties of a message whose values are kept as they are, where they can be such a value
_IDS = frozenset({"id", "job_id", "cardholder_id", "card_id", "account_id"})
_JOB_IDS = frozenset(f"job{name}" for name in ("id", "ref", "key", "number", "reference"))
# names of the partner's own that may lead to such an id
_STRUCTURE = _JOB_IDS | {"ref", "key", "number", "reference", "job", "seq", "id"}
_CODES = frozenset({"type", "status", "termination_type"})
_AMOUNTS = frozenset({"percent_complete", "auth_percent_complete", "job_timeout"})
_HOSTS = frozenset({"merchant_site", "merchant_site_name", "merchant_site_hostname"})
_LEAST_LARGE = 100_000  # of percents and seconds


class Job(NamedTuple):
    """What is known of one placement job; `termination_type` is None while it runs.

    `authenticated` and `percent` are None where the service does not say.
    """

    job_id: str
    status: str
    termination_type: str | None = None
    authenticated: bool | None = None
    percent: int | None = None
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
    """Return a job from its record or a message (interface.md 2.1, 2.2, 2.4).

    None without a usable id.
    """
    if job_id is None or not _JOB_ID.match(job_id):
        return None
    state = code(standing.status)
    ended = code(standing.termination_type) if standing.termination_type else None
    authenticated = _authenticated(state, ended, standing.auth_percent_complete)
    percent = standing.percent_complete
    if percent is not None:
        percent = min(DONE, max(0, percent))
    merchant_site = site_name(site or "")
    return Job(job_id, state, ended, authenticated, percent, merchant_site)


def site_name(site: str) -> str | None:
    """Return what is kept of a merchant site's name, None for none."""
    return mask_host(site)[:LONGEST] or None


def _authenticated(state: str, ended: str | None, percent: int | None) -> bool | None:
    """Return whether a job has authenticated with its site; None if nothing says so."""
    if state in AUTHENTICATED or ended == BILLABLE:
        return True
    if percent is not None:
        return percent >= DONE
    if state in AUTHENTICATING or state.startswith(PENDING):
        return False
    return None


def kept(body: bytes) -> list[Any]:
    """Return what is stored of a messages body of any shape.

    The states of jobs as they are; of everything else what is harmless (`flows.harmless`). No text
    for people, no envelope id.
    """
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        text = body.decode("utf-8", "replace")
        return [mask(text)] if text.strip() else []
    return [_kept("", element) for element in elements(document, INTERFACE)]


def _kept(name: str, value: Any, parent: str = "") -> Any:
    """Return what is stored of a value; `name`: of the property whose value it is, `parent`: of the
    one that this is in.
    """
    match value:
        case dict():
            kept_names = [below for below in value if below not in _UNKEPT]
            return {_kept_name(below): _kept(below, value[below], name) for below in kept_names}
        case list():
            return [_kept(name, element, parent) for element in value]
        case None | bool():
            return value
    if _is_known(name, value) or _is_id_of_job(name, parent, value):
        return value
    kept_text = mask(str(value), secret=speaks_of_cvv(name))
    return value if kept_text == str(value) else kept_text


def _kept_name(name: str) -> str:
    """Return what is stored of a property's name; one that settings may name is kept."""
    return name if fold(name) in _STRUCTURE else mask(name)


def _is_id_of_job(name: str, parent: str, value: float | str) -> bool:
    """Return whether a value is the id of a job under a name of the partner's own.

    It is kept, so that a message can be read once the settings name it.
    """
    is_named_so = {fold(name), fold(parent + name)} & _JOB_IDS
    return (
        bool(is_named_so)
        and _JOB_ID.match(str(value)) is not None
        and redact(str(value)) == str(value)
    )


def _is_known(name: str, value: float | str) -> bool:
    """Return whether a value is of a property that we know, and one that it can have."""
    if name in _AMOUNTS:
        return abs(value) < _LEAST_LARGE if isinstance(value, int | float) else False
    text = str(value)
    if name in _IDS:
        return _JOB_ID.match(text) is not None and redact(text) == text
    if name in _CODES:
        return code(text) == text.strip().upper()
    return name in _HOSTS and mask_host(text) == text


def code(text: str | None) -> str:
    """Return a status or termination type in upper case, OTHER for anything that is none."""
    name = (text or "").strip().upper()
    return name if _CODE.match(name) else OTHER


def merged(jobs: Iterable[Job]) -> tuple[Job, ...]:
    """Merge states of jobs from different times: one per id, sorted by id.

    An end wins over any earlier state, more progress over less; authentication, the merchant site
    and that a record was read are kept.
    """
    known: dict[str, Job] = {}
    for state in jobs:
        before = known.get(state.job_id)
        known[state.job_id] = state if before is None else _merged(before, state)
    return tuple(known[job_id] for job_id in sorted(known))


def best(jobs: Iterable[Job]) -> Job | None:
    """Return the job that counts for a cardholder.

    It is placed, else running, else the one with the most progress.
    """
    return max(jobs, key=_precedence, default=None)


def _precedence(state: Job) -> tuple[Any, ...]:
    """Return the sort key of a cardholder's jobs, the one that counts last."""
    flags = (state.placed, state.running, state.authenticated is True)
    return (*flags, *_progress(state), state.job_id)


def _merged(first: Job, second: Job) -> Job:
    """Merge two states of one job."""
    ahead = max(first, second, key=_progress)
    sites = [site for site in (first.merchant_site, second.merchant_site) if site]
    return ahead._replace(
        authenticated=first.authenticated or second.authenticated or ahead.authenticated,
        merchant_site=max(sites, default=None),
        recorded=first.recorded or second.recorded,
    )


def _progress(state: Job) -> tuple[Any, ...]:
    """Return the sort key of one job's states; the texts only make the order total."""
    ended = (state.placed, not state.running)
    percent = -1 if state.percent is None else state.percent
    texts = (state.termination_type or "", state.status)
    return (*ended, percent, *texts, state.authenticated is not None)


class Placement(NamedTuple):
    """What the service knows of a linked row: a row of the table `placement`, and its `cuid`."""

    run: str
    row: int
    cuid: str | None = None
    cardholder_id: str | None = None
    opened: bool | None = None  # None: not known
    opened_at: datetime | None = None  # when the first check learned it
    placed_at: datetime | None = None
    jobs: tuple[Job, ...] = ()
    jobs_asked: bool = False  # its cardholder's jobs were asked for, and the service answered
    lost: int = 0
    unread: int = 0
    trouble: str | None = None
    jobs_trouble: str | None = None
    seen_at: datetime | None = None
    moved_at: datetime | None = None
    messages_at: datetime | None = None

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Placement:
        """Read a row back; what is null in a row that was never written stays as it is at first."""
        known = {name: record[name] for name in cls._fields if record.get(name) is not None}
        known["jobs"] = jobs_of(record["jobs"])
        return cls(**{**known, "jobs_asked": record["running"] is not None})

    @property
    def missed(self) -> int:
        """How many responses with messages were lost or could not be read."""
        return self.lost + self.unread

    @property
    def placed(self) -> bool:
        """Whether one of its jobs has placed the card."""
        return any(state.placed for state in self.jobs)

    @property
    def running(self) -> bool | None:
        """Whether a job runs, and none has placed the card; None if that is not known.

        All that is known may have been missed.
        """
        if not self.jobs and (self.missed or not self.jobs_asked):
            return None
        return not self.placed and any(state.running for state in self.jobs)

    @property
    def authenticated(self) -> bool | None:
        """Whether one of its jobs has authenticated; None if that is not known."""
        states = [state.authenticated for state in self.jobs]
        if any(states):
            return True
        is_known = self.running is not None and None not in states
        return False if is_known else None

    def with_jobs(self, states: Iterable[Job]) -> Placement:
        """Merge in states of jobs; a cardholder with a job has opened the link."""
        jobs = merged((*self.jobs, *states))
        return self._replace(jobs=jobs, opened=True if jobs else self.opened)

    def dated(self, before: Placement, now: datetime) -> Placement:
        """Return it with when what is new since `before` was learned."""
        is_opened = bool(self.opened) and not before.opened
        dated = self
        if is_opened or self.jobs != before.jobs:
            dated = dated._replace(moved_at=now)
        if self.opened:
            dated = dated._replace(opened_at=self.opened_at or now)
        placed_at = (self.placed_at or now) if self.placed else None
        return dated._replace(placed_at=placed_at)

    def record(self) -> dict[str, Any]:
        """Return the row of the table."""
        chosen = best(self.jobs)
        stored = self._asdict()
        del stored["cuid"], stored["jobs_asked"]
        return {
            **stored,
            "authenticated": self.authenticated,
            "running": self.running,
            "termination_type": chosen.termination_type if chosen else None,
            "merchant_site": chosen.merchant_site if chosen else None,
            "jobs": [state._asdict() for state in self.jobs],
            "open_jobs": sum(state.running or not state.recorded for state in self.jobs),
        }


def jobs_of(column: str | None) -> tuple[Job, ...]:
    """Return the jobs that a row of the table `placement` has, None for no such row."""
    return tuple(Job(**state) for state in json.loads(column or "[]"))


def with_messages(placement: Placement, stored: Sequence[Any], profile: Profile) -> Placement:
    """Count in stored messages; a credential request carries its job's state too.

    Where none of them names a job, they are unread.
    """
    messages = [_read(element, profile) for element in stored]
    states = list(chain.from_iterable(map(_states, messages)))
    known = _jobs(states)
    is_unread = any(element.unread for element in messages)
    if LOST_PAGE in stored or ((states or is_unread) and not known):
        placement = placement._replace(unread=placement.unread + 1)
    return placement.with_jobs(known)


def read_anew(
    placement: Placement, contents: Iterable[Sequence[Any]], profile: Profile
) -> Placement:
    """Read all stored messages of a row, and what is known of its jobs, in the words of a profile.

    A row with jobs that nobody knew is due for their records.
    """
    jobs = tuple(_reworded(state, profile.words) for state in placement.jobs)
    recounted = placement._replace(unread=0, jobs=jobs)
    for content in contents:
        recounted = with_messages(recounted, content, profile)
    if len(recounted.jobs) > len(placement.jobs):
        return recounted._replace(jobs_trouble=UNREADABLE)
    return recounted


def reading_of(profile: Profile) -> str:
    """Return a digest of the settings that messages and jobs are read with."""
    tables = {
        "message": profile.fields("message"),
        "job": profile.fields("job"),
        "words": profile.words.model_dump(mode="json"),
    }
    return digest(canonical(tables))


def _read(element: Any, profile: Profile) -> Messages:
    """Read a stored message: in the interface's words, as it is stored where it could be read, else
    in the partner's.
    """
    messages = messages_in(elements(element, INTERFACE))
    if _jobs(_states(messages)):
        return messages
    anew = messages_in(elements(element, profile))
    return anew if _jobs(_states(anew)) else messages


def _jobs(states: Iterable[tuple[str | None, RunStatus]]) -> list[Job]:
    jobs = [job(job_id, state) for job_id, state in states]
    return [state for state in jobs if state is not None]


def _states(messages: Messages) -> Iterator[tuple[str | None, RunStatus]]:
    """Yield the id of a job and its state, of each message."""
    for status in messages.statuses:
        yield status.job_id, status.message
    for request in messages.requests:
        yield request.job_id, request.message


def _reworded(state: Job, words: Words) -> Job:
    """Return a job whose stored words mean what the settings say now."""
    end = state.termination_type
    return state._replace(
        status=meaning_of(state.status, words.status),
        termination_type=meaning_of(end, words.termination_type) if end else None,
    )
