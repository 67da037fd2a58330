"""Query the service for one link: its record, its cardholder's messages, the records of the jobs.

A question is answered, or asked in vain and has a cause. What was answered before one failed is
kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple, TypeVar

from flows.errors import CardlinkError, TryAgainError
from flows.extensions.partner_api.causes import (
    NO_CARDHOLDER,
    NO_LINK_ID,
    NO_OPENING,
    NO_RECORD,
    OTHER_CARDHOLDER,
    REFUSED,
    SHARED_LINK_ID,
    UNAVAILABLE,
    UNREADABLE,
)
from flows.extensions.partner_api.job_records import Job, Placement, job, kept, with_messages
from flows.extensions.partner_api.placements import StoredPlacements
from flows.extensions.partner_api.run_links import LinkIds
from flows.extensions.partner_api.service import (
    AnswerLostError,
    NoSuchRecordError,
    Placing,
    ServiceRefusedError,
    StrangeAnswerError,
    UnauthorisedError,
)
from flows.extensions.partner_api.service_objects import CardLink
from flows.extensions.partner_api.settings import ServiceSettings

LINK_RECORDS = "link records"
MESSAGES = "messages"
JOB_RECORDS = "job records"
ANSWERED = ""  # in place of a cause
READ_ANYWAY_AFTER = timedelta(days=7)  # messages of a cardholder whose link is not opened

T = TypeVar("T")


class Question(NamedTuple):
    """A question about a link: who was asked, and why in vain (ANSWERED: it was not)."""

    source: str
    cause: str


class LinkAnswer(NamedTuple):
    """What the queries for one link came to; `failure` is the error that ended them early.

    `messages`: how many responses with messages were stored.
    """

    placement: Placement
    questions: Counter[Question]
    messages: int
    failure: CardlinkError | None

    @property
    def has_learned(self) -> bool:
        """Whether any question was answered."""
        return any(question.cause == ANSWERED for question in self.questions)


class QueryContext(NamedTuple):
    """Whom to query and how, and where messages are stored."""

    service: Placing
    settings: ServiceSettings
    stored: StoredPlacements
    now: Callable[[], datetime]


def query_link(context: QueryContext, ids: LinkIds, placement: Placement, url: str) -> LinkAnswer:
    """Follow a link's record to its cardholder, to its jobs, to their ends."""
    return _LinkQueries(context, ids, placement).answer(url)


class _FailedError(Exception):
    """A question failed in a way that no other is put for this link."""

    def __init__(self, error: CardlinkError) -> None:
        super().__init__()
        self.error = error


class _LinkQueries:
    def __init__(self, context: QueryContext, ids: LinkIds, placement: Placement) -> None:
        self._context = context
        self._ids = ids
        self._before = placement
        self._placement = placement._replace(trouble=None, jobs_trouble=None)
        self._questions: Counter[Question] = Counter()
        self._messages = 0  # responses that were stored
        self._follows = context.settings.follow_cardholders

    def answer(self, url: str) -> LinkAnswer:
        failure = None
        try:
            self._read_record(url)
            self._read_messages()
            self._read_jobs()
        except _FailedError as failed:
            failure = failed.error
        answer = LinkAnswer(self._placement, self._questions, self._messages, failure)
        now = self._context.now()
        dated = answer.placement.dated(self._before, now)
        if answer.has_learned:
            dated = dated._replace(seen_at=now)
        return answer._replace(placement=dated)

    def _read_record(self, url: str) -> None:
        """Read the link's record, unless its cardholder and its opening are known."""
        if self._placement.cardholder_id and self._placement.opened:
            return
        link_id = self._ids.of(url, self._placement.cuid)
        if link_id is None:
            self._in_vain(LINK_RECORDS, NO_LINK_ID)
        elif self._ids.is_shared(link_id):
            self._in_vain(LINK_RECORDS, SHARED_LINK_ID)
        else:
            self._read_record_of(link_id)

    def _read_record_of(self, link_id: str) -> None:
        """Read a record, and note what it says."""
        try:
            record = self._ask(LINK_RECORDS, lambda: self._context.service.card_link(link_id))
        except NoSuchRecordError:
            self._in_vain(LINK_RECORDS, NO_RECORD)
            return
        if self._is_of_another(record):
            self._in_vain(LINK_RECORDS, OTHER_CARDHOLDER)
        else:
            self._note_record(record)

    def _note_record(self, record: CardLink) -> None:
        """Note what a record of the cardholder says."""
        cardholder_id = self._placement.cardholder_id or record.cardholder_id
        self._placement = self._placement._replace(cardholder_id=cardholder_id)
        self._note_opening(record.opened)
        if self._follows and not cardholder_id:
            self._in_vain(MESSAGES, NO_CARDHOLDER)

    def _is_of_another(self, record: CardLink) -> bool:
        """Return whether a record names another cardholder than the row, where both name one."""
        cuid = self._placement.cuid
        return cuid is not None and record.cuid is not None and record.cuid != cuid

    def _note_opening(self, opened: bool | None) -> None:
        """Note what a record says of the opening; what was known of it before stays."""
        known = self._placement.opened
        if opened is None:
            self._questions[Question(LINK_RECORDS, NO_OPENING)] += 1
            trouble = NO_OPENING if known is None else None
            self._placement = self._placement._replace(trouble=trouble)
        else:
            self._questions[Question(LINK_RECORDS, ANSWERED)] += 1
            self._placement = self._placement._replace(opened=known or opened)

    def _read_messages(self) -> None:
        """Read the cardholder's messages, and store them before they are interpreted."""
        cardholder_id = self._placement.cardholder_id
        if not (self._follows and cardholder_id) or self._is_unopened():
            return
        try:
            body = self._ask(
                MESSAGES, lambda: self._context.service.cardholder_messages(cardholder_id)
            )
        except NoSuchRecordError:  # this cardholder has no messages yet
            body = b""
        messages = kept(body)
        unread = self._placement.unread
        if messages:
            self._context.stored.store_messages(self._placement, self._context.now(), messages)
            self._messages += 1
            self._placement = with_messages(self._placement, messages, self._context.settings)
        if self._placement.unread > unread:
            self._in_vain(MESSAGES, UNREADABLE)
            return
        self._questions[Question(MESSAGES, ANSWERED)] += 1
        now = self._context.now()
        self._placement = self._placement._replace(jobs_asked=True, messages_at=now)

    def _is_unopened(self) -> bool:
        """Return whether a link cannot have led to a job that its messages were not read for.

        They are read from time to time all the same: a record may not know of every opening.
        """
        read = self._placement.messages_at
        is_recent = read is not None and self._context.now() - read < READ_ANYWAY_AFTER
        return self._placement.opened is False and is_recent

    def _read_jobs(self) -> None:
        """Read the record of each job that has not ended or was never read."""
        for known in self._placement.jobs:
            if known.running or not known.recorded:
                self._read_job(known)

    def _read_job(self, known: Job) -> None:
        job_id = known.job_id
        try:
            record = self._ask(JOB_RECORDS, lambda: self._context.service.job(job_id))
        except NoSuchRecordError:  # what its messages said of it stands
            self._questions[Question(JOB_RECORDS, NO_RECORD)] += 1
            return
        self._questions[Question(JOB_RECORDS, ANSWERED)] += 1
        state = job(job_id, record, record.merchant_site)
        if state:
            self._placement = self._placement.with_jobs([state._replace(recorded=True)])

    def _ask(self, source: str, question: Callable[[], T]) -> T:
        """Put a question; NoSuchRecordError, or _FailedError where no other is to be put."""
        try:
            return question()
        except (
            UnauthorisedError,
            ServiceRefusedError,
            StrangeAnswerError,
            AnswerLostError,
            TryAgainError,
        ) as error:
            failure: CardlinkError = error
        if isinstance(failure, AnswerLostError):
            self._placement = self._placement._replace(lost=self._placement.lost + 1)
        self._in_vain(source, cause_of(failure))
        raise _FailedError(failure)

    def _in_vain(self, source: str, cause: str) -> None:
        """Note a question that was put in vain, and what is therefore not known."""
        self._questions[Question(source, cause)] += 1
        if source == LINK_RECORDS:
            self._placement = self._placement._replace(trouble=cause)
        needs_record = self._follows and not self._placement.cardholder_id
        if source != LINK_RECORDS or needs_record:
            self._placement = self._placement._replace(jobs_trouble=cause)


def cause_of(error: CardlinkError) -> str:
    """Return the code of a question that failed, with its status or kind."""
    match error:
        case UnauthorisedError() | ServiceRefusedError():
            return f"{REFUSED}.{error.fields['status']}"
        case StrangeAnswerError():
            return UNREADABLE
    kind = str(error.fields.get("kind", "")).removeprefix("HTTP ")
    return f"{UNAVAILABLE}.{kind}".rstrip(".")
