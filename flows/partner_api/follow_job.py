"""Follow one placement job to its end, as interface.md 1 to 3 and 9 describe.

Show, warn, prompt, answer, report. The list `account_link` decides what to collect; the type of a
request only whether it is acknowledged. What is typed in goes to the service and nowhere else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from flows.partner_api.service import (
    AnswerLostError,
    Jobs,
    NoSuchRecordError,
    ServiceBusyError,
    ServiceRefusedError,
)
from schemas.partner_api.jobs import ACK, ACK_KEY, CredentialRequest, Prompt, RunStatus
from schemas.partner_api.profile import INTERFACE, Profile

WARN_SECONDS: Final = 60  # before a job times out (2.1, rule 3)
EVERY_SECONDS: Final = 2.0  # between two polls
ADDED_SECONDS: Final = 5.0  # a deadline that moves by more than rounding: time was added
# polls without a message before the record is read: another client may have read the messages
QUIET_LOOKS: Final = 5
MOST_SILENT: Final = 10  # polls in a row without a response
MOST_REFUSED: Final = 3  # answers to one request
# A job has five minutes and is given more where it waits for input (2.1): no job has hours.
LONGEST_TIMEOUT: Final = 7200  # seconds

PLACED: Final = "BILLABLE"
MEANINGS: Final[Mapping[str, str]] = {
    PLACED: "The card is placed with the merchant.",
    "USER_DATA_FAILURE": (
        "The cardholder's input was not accepted, or came too late: let them start again."
    ),
    "SITE_INTERACTION_FAILURE": "The merchant's site did not work as expected: try again later.",
    "PROCESS_FAILURE": (
        "The service failed: try again, and send the partner the job's id if it fails again."
    ),
    "NEVER_STARTED": (
        "The job was never started: let the cardholder open the link and choose the site again."
    ),
}
UNKNOWN_END: Final = "Unknown termination type: ask the partner what it means."


class JobDialogue(Protocol):
    """The person who watches the job and is prompted for what it needs."""

    def show(self, standing: RunStatus, left: float | None) -> None:
        """Show the job's state; `left`: seconds until it times out, if known."""
        ...

    def warn(self, left: float) -> None:
        """Warn that the job is about to time out."""
        ...

    def note(self, text: str) -> None:
        """Show a sentence."""
        ...

    def collect(self, request: CredentialRequest, left: float | None) -> dict[str, str]:
        """Return what the user types for each key of a request; warn while they type."""
        ...


class Clock(NamedTuple):
    """Monotonic seconds, sleep, and the seconds between two polls."""

    now: Callable[[], float]
    sleep: Callable[[float], None]
    every: float = EVERY_SECONDS


class Followed(NamedTuple):
    """How a job ended: `meaning` is for people; `answered` counts requests.

    Nothing that was typed is kept.
    """

    job_id: str
    status: str
    termination_type: str
    meaning: str
    answered: int

    @property
    def placed(self) -> bool:
        """Whether the card is placed."""
        return self.termination_type == PLACED


def follow(
    jobs: Jobs,
    job_id: str,
    talk: JobDialogue,
    clock: Clock,
    *,
    polling: bool = False,
    profile: Profile = INTERFACE,
) -> Followed:
    """Follow a job to its end by its messages, or by polling its record, and answer its requests.

    Raises NoSuchRecordError, and ServiceBusyError after ten polls in a row without a response.
    """
    return _Following(jobs, job_id, talk, clock, polling, profile).to_the_end()


class _Poll(NamedTuple):
    """What one poll returned."""

    standings: Sequence[RunStatus]
    requests: Sequence[CredentialRequest]


class _Following:
    def __init__(
        self,
        jobs: Jobs,
        job_id: str,
        talk: JobDialogue,
        clock: Clock,
        polling: bool,
        profile: Profile,
    ) -> None:
        self._jobs = jobs
        self._job_id = job_id
        self._talk = talk
        self._clock = clock
        self._polling = polling
        self._profile = profile
        self._last = RunStatus()
        self._deadline: float | None = None
        self._warned = False
        self._seen: set[str] = set()  # envelope ids that need no answer any more
        self._refused: Counter[str] = Counter()  # answers, by envelope id
        self._acknowledged: tuple[Prompt, ...] = ()  # what the last acknowledged request asked
        self._doubted = False
        self._answered = 0
        self._quiet = 0  # polls in a row without a message
        self._silent = 0  # polls in a row without a response

    def to_the_end(self) -> Followed:
        poll = self._record()
        while not self._take_in(poll):
            self._clock.sleep(self._clock.every)
            poll = self._poll()
        status = self._last.status or ""
        end = self._last.termination_type or ""
        meaning = MEANINGS.get(end, UNKNOWN_END)
        return Followed(self._job_id, status, end, meaning, self._answered)

    def _poll(self) -> _Poll:
        """Poll once; tolerate a service that does not respond for a while."""
        try:
            poll = self._messages() or self._record()
        except ServiceBusyError:
            self._silent += 1
            if self._silent >= MOST_SILENT:
                raise
        else:
            self._silent = 0
            return poll
        self._talk.note("The service does not respond; the job continues. Trying again.")
        return _Poll((), ())

    def _record(self) -> _Poll:
        self._quiet = 0
        record = self._jobs.job(self._job_id)
        return _Poll([record], record.requests)

    def _messages(self) -> _Poll | None:
        """Read the messages; None if the record must be read instead."""
        if self._polling or self._quiet >= QUIET_LOOKS:
            return None
        try:
            messages = self._jobs.messages(self._job_id)
        except AnswerLostError:
            return None
        standings = [status.message for status in messages.statuses]
        requests: Sequence[CredentialRequest] = messages.requests
        self._quiet = 0 if standings or requests else self._quiet + 1
        if not requests and standings and standings[-1].blocked:
            # only a status says so: read what it waits for
            requests = self._jobs.credential_requests(self._job_id)
        return _Poll(standings, requests)

    def _take_in(self, poll: _Poll) -> bool:
        """Show, warn and answer; True at the end."""
        for standing in poll.standings:
            self._update(standing)
        if self._last.ended:
            return True
        for request in poll.requests:
            if request.envelope_id not in self._seen and request.job_id in (None, self._job_id):
                self._respond(request)
        self._warn()
        return False

    def _update(self, standing: RunStatus) -> None:
        """Take in one state; a heartbeat without news is not shown."""
        if standing.job_timeout is not None:
            self._set_deadline(standing.job_timeout)
        if not self._last.ended and _shown_state(standing) != _shown_state(self._last):
            self._last = standing
            self._talk.show(standing, self._left())

    def _set_deadline(self, seconds: int) -> None:
        """Take in how long the job has; what no job has is doubted instead."""
        if seconds > LONGEST_TIMEOUT:
            self._deadline = None
            self._doubt_timeout(seconds)
            return
        deadline = self._clock.now() + seconds
        self._warned = self._warned and deadline < (self._deadline or 0) + ADDED_SECONDS
        self._deadline = deadline

    def _doubt_timeout(self, seconds: int) -> None:
        if not self._doubted:
            self._doubted = True
            self._talk.note(
                f"The service says that {seconds:,} seconds are left, which no job has: these may "
                "be milliseconds ([service.job] job_timeout_unit). No time is shown."
            )

    def _respond(self, request: CredentialRequest) -> None:
        self._update(request.message)
        if not request.account_link:
            self._seen.add(request.envelope_id)
            self._talk.note("The job is waiting, but requests no input.")
            return
        if self._is_to_acknowledge(request):
            self._talk.note(request.account_link[0].label or "A message was sent to you.")
            answers = {ACK_KEY: ACK}
            self._acknowledged = request.account_link
        else:
            answers = self._talk.collect(request, self._left())
        self._answer(request, answers)

    def _is_to_acknowledge(self, request: CredentialRequest) -> bool:
        """Return whether a request wants no input.

        One that was refused an acknowledgement, or comes anew after it, wants some.
        """
        is_repeated = self._acknowledged == request.account_link
        is_refused = self._refused[request.envelope_id] > 0
        return self._profile.acknowledged.wants_no_input(request) and not (
            is_repeated or is_refused
        )

    def _answer(self, request: CredentialRequest, answers: Mapping[str, str]) -> None:
        """Send an answer once; a request that is still open comes with the next poll."""
        try:
            self._jobs.answer(self._job_id, request.envelope_id, answers)
        except AnswerLostError:
            self._talk.note("The answer may not have arrived; if so, the job requests it again.")
        except (NoSuchRecordError, ServiceRefusedError):
            self._note_refusal(request.envelope_id)
        except ServiceBusyError:
            self._talk.note("The service is busy and did not accept the answer.")
        else:
            self._seen.add(request.envelope_id)
            self._answered += 1

    def _note_refusal(self, envelope_id: str) -> None:
        """Say that an answer was refused; after some, the request is not answered any more."""
        self._talk.note("The service did not accept that answer; the request may have timed out.")
        self._refused[envelope_id] += 1
        if self._refused[envelope_id] >= MOST_REFUSED:
            self._seen.add(envelope_id)
            self._talk.note(
                f"The service refused {MOST_REFUSED} answers to this request; "
                "no more are sent. Ask the partner what it expects."
            )

    def _warn(self) -> None:
        left = self._left()
        if left is not None and left <= WARN_SECONDS and not self._warned:
            self._warned = True
            self._talk.warn(left)

    def _left(self) -> float | None:
        return None if self._deadline is None else max(0.0, self._deadline - self._clock.now())


def _shown_state(standing: RunStatus) -> tuple[object, ...]:
    """Return what is shown again when it changes."""
    return (
        standing.status,
        standing.percent_complete,
        standing.auth_percent_complete,
        standing.status_message,
        standing.termination_type,
    )
