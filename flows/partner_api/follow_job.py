"""Follow one placement job to its end, as interface.md 1 to 3 and 9 describe: show, warn, ask, answer, tell the end.

The list `account_link` alone says what to collect; the type of a request is never looked at. What is typed in goes
to the service and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from flows.partner_api.service import AnswerLostError, Jobs, NoSuchRecordError, ServiceBusyError, ServiceRefusedError
from schemas.partner_api.jobs import ACK, CredentialRequest, RunStatus

WARN_SECONDS: Final = 60  # before a job's time is up (2.1, rule 3)
EVERY_SECONDS: Final = 2.0  # from one look to the next
ADDED_SECONDS: Final = 5.0  # more than a job's time jumps by rounding: time was added to it
QUIET_LOOKS: Final = 5  # without a message before the record is read: another client may have read them
MOST_SILENT: Final = 10  # looks in a row the service does not answer
_ACKNOWLEDGED: Final = ("tfa_message",)  # a message was sent to the user: there is no code to type

PLACED: Final = "BILLABLE"
MEANINGS: Final[Mapping[str, str]] = {
    PLACED: "The card is placed with the merchant.",
    "USER_DATA_FAILURE": "What the cardholder gave was not accepted, or not given in time: let them start again.",
    "SITE_INTERACTION_FAILURE": "The merchant's site did not work as expected: try again later.",
    "PROCESS_FAILURE": "The service went wrong by itself: try again, and tell the partner the job's id if it stays so.",
    "NEVER_STARTED": "The job was never started: let the cardholder open the link and choose the site again.",
}
UNKNOWN_END: Final = "This end is not known here: ask the partner what it means."


class JobDialogue(Protocol):
    """Whoever is told how the job goes, and asked for what it needs."""

    def show(self, standing: RunStatus, left: float | None) -> None:
        """Show how the job stands; `left`: seconds until its time is up, where known."""
        ...

    def warn(self, left: float) -> None:
        """Say that the job's time is almost up."""
        ...

    def note(self, text: str) -> None:
        """Say something in a sentence."""
        ...

    def collect(self, request: CredentialRequest, left: float | None) -> dict[str, str]:
        """Return what the user types in for each key of a request, warning while they type."""
        ...


class Clock(NamedTuple):
    """Monotonic seconds, a way to let them pass, and how many pass between two looks."""

    now: Callable[[], float]
    sleep: Callable[[float], None]
    every: float = EVERY_SECONDS


class Followed(NamedTuple):
    """How a job ended: `meaning` is for people; `answered` counts requests, and nothing of what was typed stays."""

    job_id: str
    status: str
    termination_type: str
    meaning: str
    answered: int

    @property
    def placed(self) -> bool:
        """True where the card is placed."""
        return self.termination_type == PLACED


def follow(jobs: Jobs, job_id: str, talk: JobDialogue, clock: Clock, *, polling: bool = False) -> Followed:
    """Follow a job to its end by messages, or by polling its record, answering what it asks.

    Raises NoSuchRecordError, and ServiceBusyError where the service does not answer ten looks in a row.
    """
    return _Following(jobs, job_id, talk, clock, polling).to_the_end()


class _Poll(NamedTuple):
    """What one look gave."""

    standings: Sequence[RunStatus]
    requests: Sequence[CredentialRequest]


class _Following:
    def __init__(self, jobs: Jobs, job_id: str, talk: JobDialogue, clock: Clock, polling: bool) -> None:
        self._jobs, self._job_id, self._talk, self._clock, self._polling = jobs, job_id, talk, clock, polling
        self._last = RunStatus()
        self._deadline: float | None = None
        self._warned = False
        self._seen: set[str] = set()  # envelope ids that need nothing more of us
        self._answered = self._quiet = self._silent = 0

    def to_the_end(self) -> Followed:
        heard = self._record()
        while not self._take_in(heard):
            self._clock.sleep(self._clock.every)
            heard = self._look()
        end = self._last.termination_type or ""
        return Followed(self._job_id, self._last.status or "", end, MEANINGS.get(end, UNKNOWN_END), self._answered)

    def _look(self) -> _Poll:
        """Look once; a service that does not answer for a while is waited for."""
        try:
            heard = self._messages() or self._record()
        except ServiceBusyError:
            self._silent += 1
            if self._silent >= MOST_SILENT:
                raise
        else:
            self._silent = 0
            return heard
        self._talk.note("The service does not answer; the job runs on. Trying again.")
        return _Poll((), ())

    def _record(self) -> _Poll:
        self._quiet = 0
        record = self._jobs.job(self._job_id)
        return _Poll([record], record.requests)

    def _messages(self) -> _Poll | None:
        """Read the messages; None where the record has to be read instead."""
        if self._polling or self._quiet >= QUIET_LOOKS:
            return None
        try:
            reported = self._jobs.messages(self._job_id)
        except AnswerLostError:
            return None
        self._quiet = 0 if reported.statuses or reported.requests else self._quiet + 1
        standings = [one.message for one in reported.statuses]
        blocked = any(one.blocked for one in standings[-1:])  # told of by a status only: ask what for
        return _Poll(standings, reported.requests or (self._jobs.credential_requests(self._job_id) if blocked else ()))

    def _take_in(self, heard: _Poll) -> bool:
        """Show, warn and answer; True at the end."""
        for standing in heard.standings:
            self._hear(standing)
        if self._last.ended:
            return True
        for request in heard.requests:
            if request.envelope_id not in self._seen and request.job_id in (None, self._job_id):
                self._respond(request)
        self._warn()
        return False

    def _hear(self, standing: RunStatus) -> None:
        """Take in one standing; a heartbeat that says nothing new is not shown."""
        if standing.job_timeout is not None:
            deadline = self._clock.now() + standing.job_timeout
            self._warned = self._warned and deadline < (self._deadline or 0) + ADDED_SECONDS
            self._deadline = deadline
        if not self._last.ended and _shown_state(standing) != _shown_state(self._last):
            self._last = standing
            self._talk.show(standing, self._left())

    def _respond(self, request: CredentialRequest) -> None:
        self._hear(request.message)
        if not request.account_link:
            self._seen.add(request.envelope_id)
            self._talk.note("The job waits, and names nothing to type in.")
            return
        if [one.key_name for one in request.account_link] in [[name] for name in _ACKNOWLEDGED]:
            self._talk.note(request.account_link[0].label or "A message was sent to you.")
            answers = {"tfa": ACK}
        else:
            answers = self._talk.collect(request, self._left())
        self._answer(request, answers)

    def _answer(self, request: CredentialRequest, answers: Mapping[str, str]) -> None:
        """Send an answer once; a request that is open after all comes with the next look."""
        try:
            self._jobs.answer(self._job_id, request.envelope_id, answers)
        except AnswerLostError:
            self._talk.note("The answer may not have arrived; if the job still asks, it is asked again.")
        except (NoSuchRecordError, ServiceRefusedError):
            self._talk.note("The service did not take that answer; the request may have run out.")
        except ServiceBusyError:
            self._talk.note("The service is busy and did not take the answer.")
        else:
            self._seen.add(request.envelope_id)
            self._answered += 1

    def _warn(self) -> None:
        left = self._left()
        if left is not None and left <= WARN_SECONDS and not self._warned:
            self._warned = True
            self._talk.warn(left)

    def _left(self) -> float | None:
        return None if self._deadline is None else max(0.0, self._deadline - self._clock.now())


def _shown_state(standing: RunStatus) -> tuple[object, ...]:
    """Return what is worth showing again when it changes."""
    return (
        standing.status,
        standing.percent_complete,
        standing.auth_percent_complete,
        standing.status_message,
        standing.termination_type,
    )
